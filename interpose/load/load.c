/*
 * Loads pieces. See load.h.
 *
 * Invariant: a place is read into only when what was read into it before is copied.
 */
#include "load.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../capture/xxh3.h"

#define EXPORT __attribute__((visibility("default")))
#define LARGE_PAGE ((size_t)2 << 20)
#define SMALL_PAGE 4096

static bool call(struct tt_load_thread *t, const char *name, CUresult result)
{
	t->call = name;
	t->result = (int)result;
	return result == CUDA_SUCCESS;
}

/* Memory in large pages as far as there are any, filled here: locking it would do that with a
   lock held that all threads wait for. */
static char *allocate(size_t size)
{
	char *map = mmap(NULL, size + LARGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (map == MAP_FAILED)
		return NULL;
	size_t skip = -(uintptr_t)map % LARGE_PAGE;
	if (skip)
		munmap(map, skip);
	munmap(map + skip + size, LARGE_PAGE - skip);
	map += skip;
	madvise(map, size, MADV_HUGEPAGE);
	for (size_t at = 0; at < size; at += SMALL_PAGE)
		((volatile char *)map)[at] = 0;
	return map;
}

static bool make_place(const struct tt_load_driver *driver, struct tt_load_thread *t, struct tt_load_place *place)
{
	char *memory;

	if (!place->copied && !call(t, "cuEventCreate", driver->create(&place->copied, CU_EVENT_DISABLE_TIMING)))
		return false;
	memory = allocate(t->size);
	if (!memory)
		return call(t, "mmap", CUDA_ERROR_OUT_OF_MEMORY);
	if (!call(t, "cuMemHostRegister", driver->lock(memory, t->size, CU_MEMHOSTREGISTER_PORTABLE))) {
		munmap(memory, t->size);
		return false;
	}
	place->memory = memory;
	return true;
}

static bool read_all(const struct tt_load_read *read, char *memory)
{
	for (uint32_t done = 0; done < read->size;) {
		ssize_t n = pread(read->file, memory + read->begin + done, read->size - done,
			(off_t)(read->offset + done));
		if (n == 0 || (n < 0 && errno != EINTR))
			return false;
		done += n > 0 ? (uint32_t)n : 0;
	}
	return true;
}

static bool read_piece(const struct tt_load_work *work, struct tt_load_thread *t, char *memory)
{
	const struct tt_load_piece *piece = &work->pieces[t->piece];

	t->call = NULL;
	for (uint32_t i = piece->read; i < piece[1].read; i++)
		if (!read_all(&work->reads[i], memory))
			return false;
	if (!work->check)
		return true;
	for (uint32_t i = piece->block; i < piece[1].block; i++) {
		const struct tt_load_block *block = &work->blocks[i];
		if (xxh3_64(memory + block->begin, block->size) != block->digest)
			return false;
	}
	return true;
}

static bool load_piece(const struct tt_load_work *work, struct tt_load_thread *t, struct tt_load_place *place)
{
	const struct tt_load_driver *driver = work->driver;
	const struct tt_load_piece *piece = &work->pieces[t->piece];

	if (!place->memory && !make_place(driver, t, place))
		return false;
	if (!call(t, "cuEventSynchronize", driver->wait(place->copied)))
		return false;
	if (!read_piece(work, t, place->memory))
		return false;
	for (uint32_t i = piece->copy; i < piece[1].copy; i++) {
		const struct tt_load_copy *copy = &work->copies[i];
		if (!call(t, "cuMemcpyHtoDAsync",
			    driver->copy(copy->to, (char *)place->memory + copy->begin, copy->size, t->stream)))
			return false;
	}
	return call(t, "cuEventRecord", driver->record(place->copied, t->stream));
}

EXPORT int tt_load(struct tt_load_work *work, struct tt_load_thread *t)
{
	for (unsigned turn = 0; !__atomic_load_n(&work->stop, __ATOMIC_RELAXED); turn ^= 1) {
		t->piece = __atomic_fetch_add(&work->next, 1, __ATOMIC_RELAXED);
		if (t->piece >= work->count)
			return 1;
		if (!load_piece(work, t, &t->places[turn])) {
			__atomic_store_n(&work->stop, 1, __ATOMIC_RELAXED);
			return 0;
		}
	}
	return 1;
}

EXPORT void tt_load_release(const struct tt_load_driver *driver, struct tt_load_thread *t)
{
	for (int i = 0; i < 2; i++) {
		struct tt_load_place *place = &t->places[i];
		if (place->copied)
			driver->destroy(place->copied);
		if (place->memory) {
			driver->unlock(place->memory);
			munmap(place->memory, t->size);
		}
		*place = (struct tt_load_place){0};
	}
}
