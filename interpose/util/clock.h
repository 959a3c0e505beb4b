/*
 * The clock of the recorder: CLOCK_MONOTONIC, or a processor's counter that is adjusted to it.
 *
 * Invariant: it has no steps, and is within microseconds of CLOCK_MONOTONIC as long as clock_tune
 * is called regularly.
 */
#ifndef TT_UTIL_CLOCK_H
#define TT_UTIL_CLOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "util/cache_line.h"

/* ns + (counter - ticks) * scale / 2^32 */
struct clock_line {
	AT_CACHE_LINE uint64_t ticks;
	uint64_t ns;
	int64_t scale;
};

/* NULL: the counter is not calibrated yet, or not reliable. */
extern const struct clock_line *_Atomic clock_line;

/* Calibrates the counter against CLOCK_MONOTONIC. Called by one thread, about every second. */
void clock_tune(void);

static inline uint64_t clock_ticks(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t ticks;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
	return ticks;
#else
	return 0;
#endif
}

static inline uint64_t clock_on_line(const struct clock_line *line, uint64_t ticks)
{
	return line->ns + (uint64_t)((__int128)(int64_t)(ticks - line->ticks) * line->scale >> 32);
}

static inline uint64_t clock_ns(void)
{
	const struct clock_line *line = atomic_load_explicit(&clock_line, memory_order_acquire);
	struct timespec t;

	if (__builtin_expect(line != NULL, 1))
		return clock_on_line(line, clock_ticks());
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Nanoseconds since 1970. */
static inline uint64_t clock_real_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The time in `ms` milliseconds, for timed waits of pthreads. */
static inline struct timespec clock_in(uint64_t ms)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	ms += (uint64_t)t.tv_nsec / 1000000;
	return (struct timespec){.tv_sec = t.tv_sec + (time_t)(ms / 1000),
				 .tv_nsec = (long)(ms % 1000) * 1000000 + t.tv_nsec % 1000000};
}

/* Takes a lock that may never be released; false: not available within `ms` milliseconds. */
static inline bool lock_within(pthread_mutex_t *lock, uint64_t ms)
{
	struct timespec until = clock_in(ms);

	return !pthread_mutex_timedlock(lock, &until);
}

#endif
