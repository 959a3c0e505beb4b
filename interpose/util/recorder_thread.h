/*
 * The recorder's threads.
 *
 * Invariant: they block all signals, because signals are for the program's own threads.
 */
#ifndef TT_UTIL_RECORDER_THREAD_H
#define TT_UTIL_RECORDER_THREAD_H

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* stack: bytes, 0: default. joined NULL: detached. Returns 0, or the error. */
int recorder_thread(pthread_t *joined, const char *name, size_t stack, void *(*body)(void *), void *context);

/* Where later threads run: on these cores (NULL: those of the program), and only when a core is idle. */
void recorder_threads_place(const cpu_set_t *cores, bool idle);

struct recorder_thread_cost {
	char name[16];
	unsigned count; /* of threads with this name */
	uint64_t cpu_ns; /* processor time of all of them so far */
};
#define RECORDER_THREAD_NAMES 16 /* later names are not counted */
/* Returns how many names there are. */
unsigned recorder_threads_cost(struct recorder_thread_cost costs[RECORDER_THREAD_NAMES]);
void recorder_threads_forget(void); /* in a forked child */

#endif
