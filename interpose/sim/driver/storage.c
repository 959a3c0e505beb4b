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
#define SMALL_BYTES (64u << 10) /* below this, a mapping per block would be a waste */

static unsigned char *garbage; /* what the garbage file holds */
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
	void *map = mmap(NULL, GARBAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, garbage_file, 0);
	if (map == MAP_FAILED || fstat(garbage_file, &garbage_status)) {
		close(garbage_file);
		return false;
	}
	if (garbage)
		munmap(garbage, GARBAGE_BYTES);
	garbage = map;
	garbage_fill(garbage, GARBAGE_BYTES, sim_mix(sim_settings.seed));
	return true;
}

static size_t page_round(size_t size)
{
	return ROUND_UP(size, (size_t)4096);
}

static bool map_garbage(unsigned char *memory, size_t size)
{
	size_t offset = sim_mix(sim_settings.seed + ++blocks) % (GARBAGE_BYTES / 4096) * 4096;

	while (size) {
		size_t part = GARBAGE_BYTES - offset < size ? GARBAGE_BYTES - offset : size;
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

unsigned char *storage_shared(size_t size, int *file)
{
	int flags = MAP_SHARED | MAP_NORESERVE;

	if (file && (*file = file_new(STORAGE_FILE_NAME, size)) < 0)
		return NULL;
	void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, file ? flags : flags | MAP_ANONYMOUS, file ? *file : -1, 0);
	if (map == MAP_FAILED) {
		if (file)
			close(*file);
		return NULL;
	}
	storage_garbage(map, size);
	return map;
}
