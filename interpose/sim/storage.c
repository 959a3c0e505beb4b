/*
 * The bytes behind simulated memory.
 *
 * Invariant: fresh memory holds no zero byte, and what it holds depends on the seed and on how
 * much was allocated before, so that nothing can rely on it. Large blocks are private mappings
 * of one garbage file: they cost memory only where they are written, however large they are.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver.h"

#define GARBAGE_BYTES (4u << 20)
#define SMALL_BYTES (64u << 10) /* below this, a mapping per block would be a waste */

static int garbage_file = -1;
static unsigned char *garbage;
static pthread_once_t garbage_once = PTHREAD_ONCE_INIT;
static uint64_t blocks; /* handed out so far */

static void garbage_fill(unsigned char *memory, size_t size, uint64_t seed)
{
	for (size_t i = 0; i < size; i += sizeof seed) {
		uint64_t word = sim_mix(seed + i) | 0x0101010101010101;
		memcpy(memory + i, &word, size - i < sizeof word ? size - i : sizeof word);
	}
}

static void garbage_setup(void)
{
	garbage_file = memfd_create("garbage", MFD_CLOEXEC);
	if (garbage_file < 0 || ftruncate(garbage_file, GARBAGE_BYTES))
		return;
	void *map = mmap(NULL, GARBAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, garbage_file, 0);
	if (map == MAP_FAILED)
		return;
	garbage = map;
	garbage_fill(garbage, GARBAGE_BYTES, sim_mix(sim_settings.seed));
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
		void *map = mmap(memory, part, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, garbage_file, (off_t)offset);
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
	pthread_once(&garbage_once, garbage_setup);
	if (size < SMALL_BYTES) {
		unsigned char *memory = aligned_alloc(SIM_ALIGNMENT, ROUND_UP(size, SIM_ALIGNMENT));
		if (memory)
			garbage_fill(memory, size, sim_mix(sim_settings.seed + ++blocks));
		return memory;
	}
	size = page_round(size);
	void *map = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (map == MAP_FAILED)
		return NULL;
	if (!garbage || !map_garbage(map, size)) {
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

int storage_file(size_t size)
{
	int file = memfd_create("ttanalyze simulator memory", MFD_CLOEXEC);
	void *map;

	if (file < 0)
		return -1;
	if (ftruncate(file, (off_t)size)
		|| (map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)) == MAP_FAILED) {
		close(file);
		return -1;
	}
	storage_garbage(map, size);
	munmap(map, size);
	return file;
}
