/*
 * Large arrays in a file. See spill.h.
 *
 * The file is mapped shared: the system writes its pages to the disk and takes them back when memory is short. Space
 * in the file is reserved before an array uses it, so a full disk is an allocation that fails, not a signal.
 */
#include "load/spill.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define EXPORT __attribute__((visibility("default")))
#define STACK (1ul << 20) /* a thread's: all of it counts as memory, and libraries begin one per processor */
#define LARGE (1ull << 20) /* smaller arrays are malloc's */
#define HOLE (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)

/* What numpy takes: PyDataMem_Handler, version 1, of NEP 49. */
struct handler {
	char name[127];
	uint8_t version;
	void *context;
	void *(*malloc)(void *context, size_t size);
	void *(*calloc)(void *context, size_t count, size_t size);
	void *(*realloc)(void *context, void *old, size_t size);
	void (*free)(void *context, void *old, size_t size);
};

/* In front of each array, and as aligned as numpy expects. size: with this. offset: in the file. */
struct array {
	uint64_t size, offset;
};
#define IN_MEMORY UINT64_MAX

static int file = -1;
static uint64_t room;
static _Atomic uint64_t in_memory, end;

static void *map(uint64_t size, int flags, int descriptor, uint64_t offset)
{
	void *begin = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, descriptor, (off_t)offset);

	return begin == MAP_FAILED ? NULL : begin;
}

static struct array *new_in_memory(uint64_t size)
{
	struct array *one = NULL;

	if (atomic_fetch_add(&in_memory, size) + size <= room)
		one = map(size, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (one)
		one->offset = IN_MEMORY;
	else
		atomic_fetch_sub(&in_memory, size);
	return one;
}

static struct array *new_in_file(uint64_t size)
{
	const uint64_t pages = (size + 4095) / 4096 * 4096, offset = atomic_fetch_add(&end, pages);
	struct array *one;

	if (posix_fallocate(file, (off_t)offset, (off_t)size))
		return NULL;
	one = map(size, MAP_SHARED, file, offset);
	if (one)
		one->offset = offset;
	else
		fallocate(file, HOLE, (off_t)offset, (off_t)size);
	return one;
}

/* NULL: neither memory nor the file has room. Mapped pages are zeros. */
static void *new_array(size_t bytes, bool zeros)
{
	struct array *one;
	size_t size;

	if (__builtin_add_overflow(bytes, sizeof *one, &size))
		return NULL;
	if (size < LARGE)
		one = zeros ? calloc(1, size) : malloc(size);
	else if (!(one = new_in_memory(size)))
		one = new_in_file(size);
	if (!one)
		return NULL;
	one->size = size;
	return one + 1;
}

static void *take(void *context, size_t size)
{
	(void)context;
	return new_array(size, false);
}

static void *take_zeros(void *context, size_t count, size_t size)
{
	size_t bytes;

	(void)context;
	return __builtin_mul_overflow(count, size, &bytes) ? NULL : new_array(bytes, true);
}

static void give(void *context, void *old, size_t size)
{
	struct array *one = (struct array *)old - 1, was;

	(void)context;
	(void)size; /* numpy does not know it in all cases */
	if (!old)
		return;
	was = *one;
	if (was.size < LARGE) {
		free(one);
		return;
	}
	munmap(one, was.size);
	if (was.offset == IN_MEMORY)
		atomic_fetch_sub(&in_memory, was.size);
	else
		fallocate(file, HOLE, (off_t)was.offset, (off_t)was.size);
}

static void *resize(void *context, void *old, size_t size)
{
	void *begin = take(context, size);
	size_t before;

	if (!begin || !old)
		return begin;
	before = ((struct array *)old)[-1].size - sizeof(struct array);
	memcpy(begin, old, size < before ? size : before);
	give(context, old, before);
	return begin;
}

EXPORT const void *tt_spill(int descriptor, uint64_t bytes)
{
	static const struct handler handler = {"ttanalyze_spill", 1, NULL, take, take_zeros, resize, give};
	pthread_attr_t threads;

	if (file >= 0)
		return NULL;
	if (!pthread_getattr_default_np(&threads)) {
		pthread_attr_setstacksize(&threads, STACK);
		pthread_setattr_default_np(&threads);
		pthread_attr_destroy(&threads);
	}
	file = descriptor;
	room = bytes;
	return &handler;
}
