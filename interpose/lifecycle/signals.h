/*
 * Signals that end a process by default.
 *
 * Invariant: the program sees its own dispositions. Our handler is installed only where the program
 * has SIG_DFL, and the program is told SIG_DFL. The handler finishes the recording within a bounded
 * time; then the signal has its default effect.
 */
#ifndef TT_LIFECYCLE_SIGNALS_H
#define TT_LIFECYCLE_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * From now on. finish: called once, on a thread of ours, with the signal's number, or with 0 where
 * the program has run for limit_ms (0: no limit), and SIGTERM then ends it. give_up: called where
 * finish does not come to its end, before the process ends all the same. False without threads
 * for that.
 */
bool signals_watch(void (*finish)(int number), void (*give_up)(void), uint64_t limit_ms);
/* In a fork's child: the default dispositions are default again. */
void signals_forget(void);

#endif
