/*
 * The recorder's threads.
 *
 * Invariant: they block all signals, because signals are for the program's own threads.
 */
#ifndef TT_UTIL_RECORDER_THREAD_H
#define TT_UTIL_RECORDER_THREAD_H

#include <pthread.h>

/* stack: bytes, 0: default. joined NULL: detached. Returns 0, or the error. */
int recorder_thread(pthread_t *joined, const char *name, size_t stack, void *(*body)(void *), void *context);

#endif
