/*
 * Event slots. See events.h for the invariant.
 *
 * The file is mapped into one large reserved range, so that a slot's address follows from its
 * number. A helper thread extends file and mapping ahead of the threads that claim: space is
 * allocated on disk before it is mapped, since a store into a mapping that the disk has no
 * room for would kill the program, and its pages are made present before it is given out.
 * Far behind, the mapping is made anew, which frees its pages from this process and still
 * lets a thread that kept a slot for long write to it.
 *
 * Where the helper falls behind, a claim waits, but at most WAIT_MS; then that event and, until
 * the helper has moved on, those after it are lost and counted. The helper is up to AHEAD bytes
 * in front, 260000 events, so that this takes a disk that hangs.
 */
#define _GNU_SOURCE
#include "events.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "../hot.h"
#include "../state/clock.h"
#include "file.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define RUN_BYTES (EVENTS_RUN * sizeof(struct tt_event))
#define STEP ((uint64_t)2 << 20)        /* bytes mapped at a time */
#define AHEAD ((uint64_t)32 << 20)      /* most bytes mapped ahead of the claims */
#define BEHIND ((uint64_t)8 << 20)      /* bytes left in memory behind them */
#define RESERVE ((uint64_t)1 << 40)     /* of addresses, where they are to be had */
#define RESERVE_LEAST ((uint64_t)64 << 20)
#define WAKE_RUNS 8                     /* claims between two wake-ups of the helper */
#define WAIT_MS 2000
#define CLOSE_WAIT_S 2
#define HELPER_STACK (256u << 10)
#define LEFTOVERS 4096                  /* rests of runs that ended threads handed back */
#define ENDINGS 3                       /* thread destructors run in rounds; after so many ours might not */

struct cursor {
	struct tt_event *next, *end;
	uint32_t generation; /* of the recording that the slots belong to */
	uint32_t endings;
	struct cursor *after, *before; /* all cursors of the generation */
};

static __thread struct cursor self __attribute__((tls_model("initial-exec")));

HOT_DATA static _Atomic uint32_t generation; /* 0: not recording */
static uint32_t generations;
static uint8_t *base;    /* of the reserved range: the file's first byte */
static uint64_t reserve; /* its size */
static _Atomic uint64_t mapped;     /* bytes of the file that are there to be claimed */
static _Atomic uint64_t runs;       /* claimed */
static _Atomic uint64_t lost;
static _Atomic bool stalled;        /* a claim waited in vain, and the helper has not moved since */
static _Atomic int failure;         /* 0, 1 while the reason is being written, 2 from then on */
static char reason[512];
static struct file file = {.fd = -1};
static uint64_t recycled;

static sem_t wake;
static _Atomic bool stop;
static pthread_t helper;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* all below */
static struct cursor cursors = {.after = &cursors, .before = &cursors};
static struct {
	struct tt_event *next, *end;
} leftovers[LEFTOVERS];
static _Atomic size_t leftover_count;
static uint64_t abandoned, final_count;
static pthread_key_t at_thread_end;
static bool key_made;

static void fail(const char *what, int error)
{
	int none = 0;

	if (!atomic_compare_exchange_strong(&failure, &none, 1))
		return;
	file_explain(reason, sizeof(reason), what, file.path, error);
	atomic_store(&failure, 2);
}

bool events_failed(char *text, size_t size)
{
	if (atomic_load(&failure) != 2)
		return false;
	snprintf(text, size, "%s", reason);
	return true;
}

/* ---- the helper ---- */

/* Makes pages present for writing, without a fault that could only end in a signal. */
static bool populate(uint8_t *at, uint64_t size)
{
	while (madvise(at, size, MADV_POPULATE_WRITE)) {
		if (errno == EINVAL) { /* a kernel before 5.14 */
			for (uint64_t i = 0; i < size; i += 4096)
				*(volatile uint8_t *)(at + i) = *(volatile uint8_t *)(at + i);
			return true;
		}
		if (errno != EINTR && errno != EAGAIN)
			return false;
	}
	return true;
}

static bool map(uint64_t from, uint64_t size)
{
	return file_ours(&file) && mmap(base + from, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.fd,
					(off_t)from) != MAP_FAILED;
}

/* The header, written before, is kept. */
static bool reserve_step(uint64_t at)
{
	uint64_t skip = at ? 0 : TT_FILE_HEADER_SIZE;

	return file_reserve(&file, at + skip, STEP - skip);
}

static bool extend(void)
{
	uint64_t at = atomic_load_explicit(&mapped, memory_order_relaxed);

	if (atomic_load(&failure))
		return false;
	if (at + STEP > reserve)
		fail("mapping more of", EFBIG);
	else if (!reserve_step(at))
		fail("reserving disk space for", errno);
	else if (!map(at, STEP) || !populate(base + at, STEP))
		fail("mapping", errno);
	if (atomic_load(&failure))
		return false;
	atomic_store_explicit(&mapped, at + STEP, memory_order_release);
	atomic_store(&stalled, false);
	return true;
}

static uint64_t claimed_bytes(void)
{
	return TT_FILE_HEADER_SIZE + atomic_load_explicit(&runs, memory_order_relaxed) * RUN_BYTES;
}

/* Short programs get little, fast ones as much again as they have used. */
static uint64_t wanted(void)
{
	uint64_t used = claimed_bytes();

	return used + (used < STEP ? STEP : used > AHEAD ? AHEAD : used);
}

/* Mapping the same bytes at the same place again drops the pages, and at no moment leaves a hole. */
static void recycle(void)
{
	uint64_t used = claimed_bytes(), to;

	if (used < recycled + 2 * BEHIND)
		return;
	to = (used - BEHIND) / STEP * STEP;
	if (map(0, to))
		recycled = to;
}

static void *help(void *unused)
{
	(void)unused;
	for (;;) {
		while (sem_wait(&wake))
			continue;
		if (atomic_load(&stop))
			return NULL;
		while (atomic_load(&mapped) < wanted() && !atomic_load(&stop) && extend())
			recycle();
	}
}

static bool start_helper(void)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	int error;

	/* The program's signals are for its own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, HELPER_STACK);
	error = pthread_create(&helper, &attributes, help, NULL);
	if (error == EINVAL) /* thread-local data may need more than the stack we ask for */
		error = pthread_create(&helper, NULL, help, NULL);
	pthread_attr_destroy(&attributes);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!error)
		pthread_setname_np(helper, "tt-events");
	errno = error;
	return !error;
}

/* ---- claiming ---- */

/* Slots of the run that the cursor has not given out. */
static uint64_t rest(const struct cursor *c)
{
	const struct tt_event *next = __atomic_load_n(&c->next, __ATOMIC_RELAXED);

	if (!next)
		return 0;
	return -(uint64_t)(next - (const struct tt_event *)(base + TT_FILE_HEADER_SIZE)) % EVENTS_RUN;
}

static void take(struct cursor *c, struct tt_event *next, struct tt_event *end)
{
	c->end = end;
	__atomic_store_n(&c->next, next, __ATOMIC_RELAXED);
}

/* What a thread leaves over goes to the next that asks: threads may be many and short. */
static void thread_ended(void *value)
{
	struct cursor *c = value;

	pthread_mutex_lock(&lock);
	if (c->generation && c->generation == atomic_load(&generation)) {
		if (c->next != c->end && leftover_count < LEFTOVERS) {
			leftovers[leftover_count].next = c->next;
			leftovers[leftover_count++].end = c->end;
		} else {
			abandoned += rest(c);
		}
		c->after->before = c->before;
		c->before->after = c->after;
	}
	take(c, NULL, NULL);
	c->generation = 0;
	c->endings++;
	pthread_mutex_unlock(&lock);
}

static bool enlist(struct cursor *c, uint32_t current)
{
	if (c->endings >= ENDINGS || pthread_setspecific(at_thread_end, c))
		return false;
	pthread_mutex_lock(&lock);
	if (atomic_load(&generation) == current) {
		take(c, NULL, NULL);
		c->generation = current;
		c->after = &cursors;
		c->before = cursors.before;
		cursors.before->after = c;
		cursors.before = c;
	}
	pthread_mutex_unlock(&lock);
	return c->generation == current;
}

static bool take_leftover(struct cursor *c, uint32_t current)
{
	bool taken = false;

	if (!atomic_load_explicit(&leftover_count, memory_order_relaxed))
		return false;
	pthread_mutex_lock(&lock);
	if (leftover_count && atomic_load(&generation) == current) {
		leftover_count--;
		take(c, leftovers[leftover_count].next, leftovers[leftover_count].end);
		taken = true;
	}
	pthread_mutex_unlock(&lock);
	return taken;
}

static bool is_mapped(uint64_t run)
{
	return TT_FILE_HEADER_SIZE + (run + 1) * RUN_BYTES <= atomic_load_explicit(&mapped, memory_order_acquire);
}

static bool wait_for(uint64_t run)
{
	const struct timespec pause = {.tv_nsec = 50000};
	const uint64_t until = clock_ns() + WAIT_MS * UINT64_C(1000000);

	if (!atomic_load(&stalled) && !atomic_load(&failure))
		sem_post(&wake);
	while (!atomic_load(&stalled) && !atomic_load(&failure) && atomic_load(&generation)) {
		if (is_mapped(run))
			return true;
		if (clock_ns() > until)
			atomic_store(&stalled, true);
		nanosleep(&pause, NULL);
	}
	return is_mapped(run);
}

static bool take_run(struct cursor *c)
{
	uint64_t run = atomic_load(&runs);
	struct tt_event *slots;

	/* Only what is mapped is claimed, so that no run is ever left behind unused. */
	do
		if (!is_mapped(run) && !wait_for(run))
			return false;
	while (!atomic_compare_exchange_weak(&runs, &run, run + 1));
	if (run % WAKE_RUNS == 0)
		sem_post(&wake);
	slots = (struct tt_event *)(base + TT_FILE_HEADER_SIZE + run * RUN_BYTES);
	take(c, slots, slots + EVENTS_RUN);
	return true;
}

static __attribute__((noinline, cold)) struct tt_event *claim(struct cursor *c)
{
	uint32_t current = atomic_load(&generation);
	struct tt_event *e = NULL;
	int error = errno, cancel;

	if (!current)
		return NULL;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	if ((c->generation == current || enlist(c, current)) && (take_leftover(c, current) || take_run(c))) {
		e = c->next;
		take(c, e + 1, c->end);
	} else if (atomic_load(&generation)) {
		atomic_fetch_add(&lost, 1);
	}
	pthread_setcancelstate(cancel, NULL);
	errno = error;
	return e;
}

static inline void prefetch_write(const void *at)
{
#if defined(__x86_64__)
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)at)); /* compilers take it for an extension */
#else
	__builtin_prefetch(at, 1);
#endif
}

HOT struct tt_event *events_next(void)
{
	struct cursor *c = &self;
	struct tt_event *e = c->next;

	if (__builtin_expect(e == c->end || c->generation != atomic_load_explicit(&generation, memory_order_relaxed), 0))
		return claim(c);
	__atomic_store_n(&c->next, e + 1, __ATOMIC_RELAXED);
	/* By the next call its lines are here: else stores to them would be waited for by the driver's doorbells. */
	prefetch_write(e + 1);
	prefetch_write((char *)(e + 1) + 64);
	return e;
}

/* The caller holds the lock. */
static uint64_t count_now(void)
{
	uint64_t n = atomic_load(&runs) * EVENTS_RUN - abandoned;

	for (struct cursor *c = cursors.after; c != &cursors; c = c->after)
		n -= rest(c);
	for (size_t i = 0; i < leftover_count; i++)
		n -= (uint64_t)(leftovers[i].end - leftovers[i].next);
	return n;
}

uint64_t events_count(void)
{
	uint64_t n;

	pthread_mutex_lock(&lock);
	n = atomic_load(&generation) ? count_now() : final_count;
	pthread_mutex_unlock(&lock);
	return n;
}

uint64_t events_lost(void)
{
	return atomic_load(&lost);
}

/* ---- open and close ---- */

static bool reserve_addresses(void)
{
	for (reserve = RESERVE; reserve >= RESERVE_LEAST; reserve /= 2) {
		base = mmap(NULL, reserve, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (base != MAP_FAILED)
			return true;
	}
	base = NULL;
	return false;
}

static void start_anew(void)
{
	atomic_store(&mapped, 0);
	atomic_store(&runs, 0);
	atomic_store(&lost, 0);
	atomic_store(&stalled, false);
	atomic_store(&failure, 0);
	atomic_store(&stop, false);
	atomic_store(&leftover_count, 0);
	recycled = abandoned = final_count = 0;
	cursors.after = cursors.before = &cursors;
	sem_init(&wake, 0, 0);
}

bool events_open(const char *directory, char *error, size_t error_size)
{
	int saved = errno;
	bool good = false;

	pthread_mutex_lock(&lock);
	if (atomic_load(&generation)) {
		snprintf(error, error_size, "%s/events.bin: events are being recorded already", directory);
	} else if (!key_made && pthread_key_create(&at_thread_end, thread_ended)) {
		snprintf(error, error_size, "%s/events.bin: no thread-specific key left", directory);
	} else {
		key_made = true;
		start_anew();
		if (!file_create_records(&file, directory, "events.bin", false, TT_FILE_EVENTS,
					 sizeof(struct tt_event), 0)) {
			file_explain(error, error_size, "creating events.bin in", directory, errno);
		} else if (!reserve_addresses()) {
			file_explain(error, error_size, "reserving addresses for", file.path, errno);
		} else if (!extend()) {
			events_failed(error, error_size);
		} else if (!start_helper()) {
			file_explain(error, error_size, "starting a thread for", file.path, errno);
		} else {
			atomic_store(&generation, ++generations);
			good = true;
		}
		if (!good) {
			if (base)
				munmap(base, reserve);
			base = NULL;
			file_discard(&file);
		}
	}
	pthread_mutex_unlock(&lock);
	errno = saved;
	return good;
}

/* Bytes of the file up to the end of the last slot in use. */
static uint64_t used_bytes(void)
{
	const struct tt_event *slots = (const struct tt_event *)(base + TT_FILE_HEADER_SIZE);
	uint64_t n = atomic_load(&runs) * EVENTS_RUN;

	while (n && !__atomic_load_n(&slots[n - 1].kind, __ATOMIC_ACQUIRE))
		n--;
	return TT_FILE_HEADER_SIZE + n * sizeof(*slots);
}

/* Threads may still hold slots behind the end: memory of no file takes the file's place there first. */
static void trim(void)
{
	uint64_t end = used_bytes(), page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t from = (end + page - 1) / page * page, to = atomic_load(&mapped);

	if (from < to && mmap(base + from, to - from, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		return;
	(void)file_truncate(&file, end);
}

void events_close(void)
{
	struct timespec until;
	int saved = errno;

	pthread_mutex_lock(&lock);
	if (atomic_load(&generation)) {
		atomic_store(&generation, 0);
		final_count = count_now();
		atomic_store(&stop, true);
		sem_post(&wake);
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec += CLOSE_WAIT_S;
		/* A helper that the disk holds up keeps what it uses, and the file its unused end. */
		if (!pthread_timedjoin_np(helper, NULL, &until)) {
			trim();
			file_close(&file);
		}
	}
	pthread_mutex_unlock(&lock);
	errno = saved;
}

void events_forget(void)
{
	int saved = errno;

	if (base)
		munmap(base, reserve);
	base = NULL;
	atomic_store(&generation, 0);
	file_close(&file);
	take(&self, NULL, NULL);
	self.generation = 0;
	start_anew();
	pthread_mutex_init(&lock, NULL);
	errno = saved;
}
