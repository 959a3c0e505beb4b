/*
 * Mapped files. See mapped.h for the invariant.
 */
#define _GNU_SOURCE
#include "store/mapped.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/recorder_thread.h"
#include "util/visit.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define STEP ((uint64_t)2 << 20)        /* bytes mapped at a time */
#define AHEAD ((uint64_t)32 << 20)      /* most bytes mapped ahead of the claims */
#define BEHIND ((uint64_t)8 << 20)      /* bytes kept in memory behind the claims */
#define RESERVE ((uint64_t)1 << 40)     /* address space, if available */
#define RESERVE_LEAST ((uint64_t)64 << 20)
#define WAKE ((uint64_t)512 << 10)      /* bytes claimed between two wake-ups of the helper */
#define WAIT_MS 2000
#define CLOSE_WAIT_MS 2000
#define HELPER_STACK (256u << 10)

static void fail(struct mapped *m, const char *what, int error)
{
	int none = 0;

	if (!atomic_compare_exchange_strong(&m->failure, &none, 1))
		return;
	file_explain(m->reason, sizeof(m->reason), what, m->file.path, error);
	atomic_store(&m->failure, 2);
}

bool mapped_failed(struct mapped *m, char *text, size_t size)
{
	if (atomic_load(&m->failure) != 2)
		return false;
	snprintf(text, size, "%s", m->reason);
	return true;
}

/* ---- the helper ---- */

/* Makes pages writable without page faults, because a failing fault raises a signal. */
static bool populate(uint8_t *at, uint64_t size)
{
	while (madvise(at, size, MADV_POPULATE_WRITE)) {
		if (errno == EINVAL) { /* Linux before 5.14 */
			for (uint64_t i = 0; i < size; i += 4096)
				*(volatile uint8_t *)(at + i) = *(volatile uint8_t *)(at + i);
			return true;
		}
		if (errno != EINTR && errno != EAGAIN)
			return false;
	}
	return true;
}

static bool map(struct mapped *m, uint64_t from, uint64_t size)
{
	return file_ours(&m->file) && mmap(m->base + from, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, m->file.fd,
					   (off_t)from) != MAP_FAILED;
}

/* Does not overwrite the header. */
static bool reserve_step(struct mapped *m, uint64_t at)
{
	uint64_t skip = at ? 0 : TT_FILE_HEADER_SIZE;

	return file_reserve(&m->file, at + skip, STEP - skip);
}

static bool extend(struct mapped *m)
{
	uint64_t at = atomic_load_explicit(&m->mapped, memory_order_relaxed);

	if (atomic_load(&m->failure))
		return false;
	if (at + STEP > m->reserve)
		fail(m, "mapping more of", EFBIG);
	else if (!reserve_step(m, at))
		fail(m, "reserving disk space for", errno);
	else if (!map(m, at, STEP) || !populate(m->base + at, STEP))
		fail(m, "mapping", errno);
	if (atomic_load(&m->failure))
		return false;
	atomic_store_explicit(&m->mapped, at + STEP, memory_order_release);
	atomic_store(&m->stalled, false);
	return true;
}

/* Bytes to map ahead: few in short programs, else as much as was used so far. */
static uint64_t wanted(const struct mapped *m)
{
	uint64_t used = atomic_load_explicit(&m->claimed, memory_order_relaxed);

	return used + (used < STEP ? STEP : used > AHEAD ? AHEAD : used);
}

/* Maps the same bytes again at the same address: drops the pages without a gap in the mapping. */
static void recycle(struct mapped *m)
{
	uint64_t used = atomic_load_explicit(&m->claimed, memory_order_relaxed), to;

	if (used < m->recycled + 2 * BEHIND)
		return;
	to = (used - BEHIND) / STEP * STEP;
	if (map(m, 0, to))
		m->recycled = to;
}

static void *help(void *context)
{
	struct mapped *m = context;

	for (;;) {
		while (sem_wait(&m->wake))
			continue;
		if (atomic_load(&m->stop))
			return NULL;
		while (atomic_load(&m->mapped) < wanted(m) && !atomic_load(&m->stop) && extend(m))
			recycle(m);
	}
}

/* ---- claiming ---- */

static bool is_mapped(struct mapped *m, uint64_t end)
{
	return end <= atomic_load_explicit(&m->mapped, memory_order_acquire);
}

static bool wait_for(struct mapped *m, uint64_t end)
{
	const struct timespec pause = {.tv_nsec = 50000};
	const uint64_t until = clock_ns() + WAIT_MS * UINT64_C(1000000);

	if (!atomic_load(&m->stalled) && !atomic_load(&m->failure))
		sem_post(&m->wake);
	while (!atomic_load(&m->stalled) && !atomic_load(&m->failure) && atomic_load(&m->open)) {
		if (is_mapped(m, end))
			return true;
		if (clock_ns() > until)
			atomic_store(&m->stalled, true);
		nanosleep(&pause, NULL);
	}
	return is_mapped(m, end);
}

void *mapped_claim(struct mapped *m, uint64_t size)
{
	struct visit v = visit_begin();
	uint64_t at = atomic_load(&m->claimed);
	bool good;

	/* Claims only mapped bytes, so no claimed bytes stay unused. */
	do
		good = atomic_load(&m->open) && (is_mapped(m, at + size) || wait_for(m, at + size));
	while (good && !atomic_compare_exchange_weak(&m->claimed, &at, at + size));
	if (good && (at / WAKE != (at + size) / WAKE || at == TT_FILE_HEADER_SIZE))
		sem_post(&m->wake);
	visit_end(v);
	return good ? m->base + at : NULL;
}

/* ---- open and close ---- */

static bool reserve_addresses(struct mapped *m)
{
	for (m->reserve = RESERVE; m->reserve >= RESERVE_LEAST; m->reserve /= 2) {
		m->base = mmap(NULL, m->reserve, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (m->base != MAP_FAILED)
			return true;
	}
	m->base = NULL;
	return false;
}

static void start_anew(struct mapped *m)
{
	atomic_store(&m->mapped, 0);
	atomic_store(&m->claimed, TT_FILE_HEADER_SIZE);
	atomic_store(&m->stalled, false);
	atomic_store(&m->failure, 0);
	atomic_store(&m->stop, false);
	m->recycled = 0;
	m->end = (struct file_end){0};
	sem_init(&m->wake, 0, 0);
}

bool mapped_open(struct mapped *m, const struct folder *folder, const char *name, enum tt_file_kind kind, uint32_t record_size,
		 const char *thread, char *error, size_t error_size)
{
	struct visit v = visit_begin();
	char what[64];

	start_anew(m);
	m->name = name;
	snprintf(what, sizeof(what), "creating %s in", name);
	if (!file_create_records(&m->file, folder, name, false, kind, record_size, 0, TT_ENCODING_PLAIN)) {
		file_explain(error, error_size, what, folder->path, errno);
	} else if (!reserve_addresses(m)) {
		file_explain(error, error_size, "reserving addresses for", m->file.path, errno);
	} else if (!extend(m)) {
		mapped_failed(m, error, error_size);
	} else if ((errno = recorder_thread(&m->helper, thread, HELPER_STACK, help, m))) {
		file_explain(error, error_size, "starting a thread for", m->file.path, errno);
	} else {
		atomic_store(&m->open, true);
	}
	if (!m->open) {
		if (m->base)
			munmap(m->base, m->reserve);
		m->base = NULL;
		file_discard(&m->file);
	}
	visit_end(v);
	return m->open;
}

/* Ends the helper. False: the disk blocks it; then it keeps its resources, and the file its unused end. */
static bool stop(struct mapped *m)
{
	atomic_store(&m->stop, true);
	sem_post(&m->wake);
	struct timespec until = clock_in(CLOSE_WAIT_MS);
	return !pthread_timedjoin_np(m->helper, NULL, &until);
}

static bool detach(struct mapped *m, uint64_t from, uint64_t to, int flags, int fd)
{
	return from >= to ||
	       mmap(m->base + from, to - from, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED | flags, fd,
		    (off_t)(fd < 0 ? 0 : from)) != MAP_FAILED;
}

/*
 * Threads may still use pieces. A private copy replaces the mapping before the end, so the file keeps its check.
 * Anonymous memory replaces it after the end.
 */
static void cut_off(struct mapped *m, uint64_t end)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t from = (end + page - 1) / page * page, to = atomic_load(&m->mapped);

	if (detach(m, from, to, MAP_ANONYMOUS, -1) && file_truncate(&m->file, end) && file_ours(&m->file) &&
	    detach(m, 0, from, 0, m->file.fd))
		m->end = file_end_read(&m->file, end);
	file_close(&m->file);
}

void mapped_close(struct mapped *m, uint64_t (*used)(void))
{
	int error = errno;

	if (atomic_exchange(&m->open, false) && stop(m))
		cut_off(m, used ? used() : atomic_load(&m->claimed));
	errno = error;
}

void mapped_json(const struct mapped *m, struct json *j)
{
	if (m->end.size)
		file_end_json(j, m->name, &m->end);
}

void mapped_forget(struct mapped *m)
{
	int error = errno;

	if (!atomic_exchange(&m->open, false))
		return;
	munmap(m->base, m->reserve);
	m->base = NULL;
	file_close(&m->file);
	start_anew(m);
	errno = error;
}
