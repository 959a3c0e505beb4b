/*
 * Signals that end a process by default.
 *
 * Invariant: the program sees its own dispositions. The recorder's handler is installed only where the program has
 * SIG_DFL, and the program is told SIG_DFL. The handler finishes the recording within a bounded time; then the
 * signal has its default effect.
 */
#ifndef TT_LIFECYCLE_SIGNALS_H
#define TT_LIFECYCLE_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * From now on. finish: called once, in a thread of the recorder, with the signal's number. Number 0: the program
 * ran for limit_ms (0: no limit), and SIGTERM then ends it. give_up: called if finish hangs, before the process
 * ends. False: no threads.
 */
bool signals_watch(void (*finish)(int number), void (*give_up)(void), uint64_t limit_ms);
/* The process has exceeded another limit: the same happens as at the time limit, once. */
void signals_expire(void);
/* In a forked child: restores default dispositions. */
void signals_forget(void);
/* Of a signal that ends a process by default, such as "SIGTERM"; NULL for others. */
const char *signals_name(int number);

#endif
