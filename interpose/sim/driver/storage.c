/*
 * The bytes of simulated memory.
 *
 * Invariant: new memory has no zero byte, and its contents depend on the seed and on earlier allocations,
 * so that no program can rely on it. Large blocks are private mappings of one file of garbage where
 * possible: only written pages use memory.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim/driver/driver.h"

#define GARBAGE_BYTES (4u << 20)
#define PIECE_BYTES (64u << 10) /* of garbage that is made at a time */
#define SMALL_BYTES (64u << 10) /* below this, a mapping per block would be a waste */

static const unsigned char *garbage; /* what the garbage file holds */
static int garbage_file = -1;
static struct stat garbage_status;
static uint64_t blocks; /* number given out so far */

static void garbage_fill(unsigned char *memory, size_t size, uint64_t seed)
{
	for (size_t i = 0; i < size; i += sizeof seed) {
		uint64_t word = sim_mix(seed + i) | 0x0101010101010101;
		memcpy(memory + i, &word, size - i < sizeof word ? size - i : sizeof word);
	}
}

/* A descriptor of new memory. -1: the program's limit allows no file of this size. */
static int file_new(const char *name, size_t size)
{
	struct rlimit limit;

	/* Exceeding the limit would raise a signal in the program. */
	if (getrlimit(RLIMIT_FSIZE, &limit) || (limit.rlim_cur != RLIM_INFINITY && size > limit.rlim_cur))
		return -1;
	int file = memfd_create(name, MFD_CLOEXEC);
	if (file >= 0 && ftruncate(file, (off_t)size)) {
		close(file);
		file = -1;
	}
	return file;
}

/* Appends to a file; this takes fewer page faults than filling a mapping. */
static bool file_write(int file, const unsigned char *bytes, size_t size)
{
	while (size) {
		ssize_t n = write(file, bytes, size);
		if (n <= 0)
			return false;
		bytes += n;
		size -= (size_t)n;
	}
	return true;
}

static bool file_fill(int file, uint64_t seed)
{
	unsigned char *piece = malloc(PIECE_BYTES);
	bool good = piece != NULL;

	for (size_t at = 0; good && at < GARBAGE_BYTES; at += PIECE_BYTES) {
		garbage_fill(piece, PIECE_BYTES, seed + at);
		good = file_write(file, piece, PIECE_BYTES);
	}
	free(piece);
	return good;
}

/* Programs close descriptors that are not theirs; the number may then belong to another file. */
static bool garbage_ready(void)
{
	struct stat status;

	if (garbage && !fstat(garbage_file, &status) && status.st_ino == garbage_status.st_ino &&
	    status.st_dev == garbage_status.st_dev)
		return true;
	garbage_file = file_new("garbage", GARBAGE_BYTES);
	if (garbage_file < 0)
		return false;
	void *map = MAP_FAILED;
	if (file_fill(garbage_file, sim_mix(sim_settings.seed)) && !fstat(garbage_file, &garbage_status))
		map = mmap(NULL, GARBAGE_BYTES, PROT_READ, MAP_SHARED, garbage_file, 0);
	if (map == MAP_FAILED) {
		close(garbage_file);
		return false;
	}
	if (garbage)
		munmap((void *)garbage, GARBAGE_BYTES);
	garbage = map;
	return true;
}

static size_t page_round(size_t size)
{
	return ROUND_UP(size, (size_t)4096);
}

/* Where the garbage of a new block begins. */
static size_t garbage_offset(void)
{
	return sim_mix(sim_settings.seed + ++blocks) % (GARBAGE_BYTES / 4096) * 4096;
}

static size_t garbage_part(size_t offset, size_t size)
{
	return GARBAGE_BYTES - offset < size ? GARBAGE_BYTES - offset : size;
}

static bool map_garbage(unsigned char *memory, size_t size)
{
	size_t offset = garbage_offset();

	while (size) {
		size_t part = garbage_part(offset, size);
		void *map = mmap(memory, part, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, garbage_file,
				 (off_t)offset);
		if (map == MAP_FAILED)
			return false;
		memory += part;
		size -= part;
		offset = 0;
	}
	return true;
}

unsigned char *storage_new(size_t size)
{
	if (size < SMALL_BYTES) {
		size = ROUND_UP(size, SIM_ALIGNMENT);
		unsigned char *memory = aligned_alloc(SIM_ALIGNMENT, size);
		if (memory)
			garbage_fill(memory, size, sim_mix(sim_settings.seed + ++blocks));
		return memory;
	}
	size = page_round(size);
	void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (map == MAP_FAILED)
		return NULL;
	if (!garbage_ready()) {
		storage_garbage(map, size);
	} else if (!map_garbage(map, size)) {
		munmap(map, size);
		return NULL;
	}
	return map;
}

void storage_delete(unsigned char *memory, size_t size)
{
	if (size < SMALL_BYTES)
		free(memory);
	else
		munmap(memory, page_round(size));
}

void storage_garbage(unsigned char *memory, size_t size)
{
	garbage_fill(memory, size, sim_mix(sim_settings.seed + ++blocks));
}

static bool write_garbage(int file, size_t size)
{
	size_t offset = garbage_offset();

	for (size_t at = 0, part; at < size; at += part, offset = 0) {
		part = garbage_part(offset, size - at);
		if (!file_write(file, garbage + offset, part))
			return false;
	}
	return true;
}

unsigned char *storage_shared(size_t size, int *file)
{
	bool filled = garbage_ready(); /* first: the program sees no other descriptors than without this one */
	int made = file_new(STORAGE_FILE_NAME, size);

	if (made < 0 && file)
		return NULL;
	filled = filled && made >= 0 && write_garbage(made, size);
	int flags = MAP_SHARED | MAP_NORESERVE | (made < 0 ? MAP_ANONYMOUS : 0);
	void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, made, 0);
	if (file)
		*file = made;
	if (made >= 0 && (!file || map == MAP_FAILED))
		close(made);
	if (map == MAP_FAILED)
		return NULL;
	if (!filled)
		storage_garbage(map, size);
	return map;
}
