/*
 * Loads pieces. See load.h.
 *
 * Invariant: a buffer is filled only after its previous contents were copied.
 */
#include "load/load.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#include "util/xxh3.h"

#define EXPORT __attribute__((visibility("default")))
#define LARGE_PAGE ((size_t)2 << 20)
#define SMALL_PAGE 4096
#define FILLING 16 /* limit of threads */

/* ---- memory ---- */

/* Uses large pages if available. */
static char *allocate(size_t size)
{
	char *map = mmap(NULL, size + LARGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (map == MAP_FAILED)
		return NULL;
	size_t skip = -(uintptr_t)map % LARGE_PAGE;
	if (skip)
		munmap(map, skip);
	munmap(map + skip + size, LARGE_PAGE - skip);
	madvise(map + skip, size, MADV_HUGEPAGE);
	return map + skip;
}

struct part {
	char *memory;
	size_t size;
	pthread_t thread;
	bool runs;
};

static void *fill(void *part)
{
	const struct part *p = part;

	for (size_t at = 0; at < p->size; at += SMALL_PAGE)
		((volatile char *)p->memory)[at] = 0;
	return NULL;
}

/* Faster than locking, which fills memory in one thread and by small pages. */
static void fill_all(char *memory, size_t size, unsigned threads)
{
	struct part parts[FILLING];
	unsigned count = threads < FILLING ? threads : FILLING;
	size_t each = (size / LARGE_PAGE + count - 1) / count * LARGE_PAGE;

	for (unsigned i = 0; i < count; i++) {
		size_t begin = i * each < size ? i * each : size;
		parts[i] = (struct part){.memory = memory + begin, .size = size - begin < each ? size - begin : each};
		parts[i].runs = i && !pthread_create(&parts[i].thread, NULL, fill, &parts[i]);
	}
	for (unsigned i = 0; i < count; i++)
		if (!parts[i].runs)
			fill(&parts[i]);
	for (unsigned i = 0; i < count; i++)
		if (parts[i].runs)
			pthread_join(parts[i].thread, NULL);
}

EXPORT int tt_load_lock(const struct tt_load_driver *driver, struct tt_load_area *area, size_t size, unsigned threads)
{
	char *memory = allocate(size);

	*area = (struct tt_load_area){.call = "mmap", .result = CUDA_ERROR_OUT_OF_MEMORY};
	if (!memory)
		return 0;
	fill_all(memory, size, threads ? threads : 1);
	CUresult result = driver->lock(memory, size, CU_MEMHOSTREGISTER_PORTABLE);
	if (result != CUDA_SUCCESS) {
		*area = (struct tt_load_area){.call = "cuMemHostRegister", .result = (int)result};
		munmap(memory, size);
		return 0;
	}
	*area = (struct tt_load_area){.memory = memory, .size = size};
	return 1;
}

EXPORT void tt_load_unlock(const struct tt_load_driver *driver, struct tt_load_area *area)
{
	if (area->memory) {
		driver->unlock(area->memory);
		munmap(area->memory, area->size);
	}
	*area = (struct tt_load_area){0};
}

/* ---- pieces ---- */

static bool read_all(const struct tt_load_read *read, char *memory)
{
	for (uint32_t done = 0; done < read->size;) {
		ssize_t n = pread(read->file, memory + read->begin + done, read->size - done, (off_t)(read->offset + done));
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

static bool call(struct tt_load_thread *t, const char *name, CUresult result)
{
	t->call = name;
	t->result = (int)result;
	return result == CUDA_SUCCESS;
}

static bool load_piece(const struct tt_load_work *work, struct tt_load_thread *t, struct tt_load_buffer *buffer)
{
	const struct tt_load_driver *driver = work->driver;
	const struct tt_load_piece *piece = &work->pieces[t->piece];

	if (!buffer->copied && !call(t, "cuEventCreate", driver->create(&buffer->copied, CU_EVENT_DISABLE_TIMING)))
		return false;
	if (!call(t, "cuEventSynchronize", driver->wait(buffer->copied)))
		return false;
	if (!read_piece(work, t, buffer->memory))
		return false;
	for (uint32_t i = piece->copy; i < piece[1].copy; i++) {
		const struct tt_load_copy *copy = &work->copies[i];
		if (!call(t, "cuMemcpyHtoDAsync",
			  driver->copy(copy->to, (char *)buffer->memory + copy->begin, copy->size, t->stream)))
			return false;
	}
	return call(t, "cuEventRecord", driver->record(buffer->copied, t->stream));
}

EXPORT int tt_load(struct tt_load_work *work, struct tt_load_thread *t)
{
	for (unsigned turn = 0; !__atomic_load_n(&work->stop, __ATOMIC_RELAXED); turn ^= 1) {
		t->piece = __atomic_fetch_add(&work->next, 1, __ATOMIC_RELAXED);
		if (t->piece >= work->count)
			return 1;
		if (!load_piece(work, t, &t->buffers[turn])) {
			__atomic_store_n(&work->stop, 1, __ATOMIC_RELAXED);
			return 0;
		}
	}
	return 1;
}

EXPORT void tt_load_release(const struct tt_load_driver *driver, struct tt_load_thread *t)
{
	for (int i = 0; i < 2; i++) {
		if (t->buffers[i].copied)
			driver->destroy(t->buffers[i].copied);
		t->buffers[i] = (struct tt_load_buffer){0};
	}
}
