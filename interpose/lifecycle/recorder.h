/*
 * The recorder as a whole: when it begins, what it has been told, how it ends.
 *
 * Invariant: recording starts at the first call that works in a usable context, never in
 * cuInit and never in a constructor; whatever fails in it turns it off for the rest of the
 * process with one line on stderr, and the program goes on.
 */
#ifndef TT_LIFECYCLE_RECORDER_H
#define TT_LIFECYCLE_RECORDER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "format.h"
#include "store/store.h"

struct region;
struct context;

enum recorder_state {
	RECORDER_UNDECIDED, /* no call so far */
	RECORDER_ON,
	RECORDER_OFF, /* not asked for, failed at the start, ended */
	RECORDER_STOPPED, /* failed on the way: what it holds in contexts is still there, and may still work */
};
extern _Atomic int recorder_state;

/* At the first call in a usable context; returns whether we record. */
bool recorder_start(void);
/* One line on stderr and into the run; recording ends for good. Never blocks on the driver. */
void recorder_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Into the run's warnings, and on stderr, each distinct text once. */
void recorder_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same, of something that should have been recorded and is not. */
void recorder_lost(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define CONTEXT_UNKNOWN "the driver does not say which context is current"
#define NAMES_LOST "names were lost: no host memory"

/* On stderr, as long as that is the one that the program was started with. */
void recorder_say(const char *lines, size_t size);
/* Writes process.json as it is now. */
void recorder_note(void);

/* Last epochs, drain, files. From exit, signals, or when the last context goes; safe to repeat. */
void recorder_finish(const char *status, const char *reason);

void recorder_forget(void); /* in a fork's child */

store *recorder_store(void);
uint64_t recorder_next_seq(void);
uint64_t recorder_last_seq(void);
uint32_t recorder_next_epoch(void);
void recorder_set_next_epoch(uint32_t number);
void recorder_region(struct tt_region *record);
void recorder_region_gone(struct region *r);

/* What run.json says of the ring. */
void recorder_ring(uint64_t bytes, const char *place);

struct recorder_counters {
	_Atomic uint64_t epochs, epochs_refused, epochs_dropped, bytes_read, bytes_changed, bytes_stored;
};
extern struct recorder_counters recorder_counters;

#endif
