/*
 * The recording, for all of its parts: whether it is active, its messages, its numbers and its files. lifecycle/
 * starts and ends it.
 *
 * Invariant: any failure turns the recording off for the rest of the process with one line on stderr, and the
 * program goes on. Nothing here waits for the driver.
 */
#ifndef TT_SESSION_SESSION_H
#define TT_SESSION_SESSION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver/driver.h"
#include "format.h"
#include "store/store.h"

struct context;
struct json;
struct region;

enum session_state {
	SESSION_UNDECIDED, /* no call yet */
	SESSION_ON,
	SESSION_OFF, /* not requested, failed at the start, or ended */
	SESSION_STOPPED, /* failed later: its resources in contexts remain and may still be in use */
};
extern _Atomic int session_state;

/* ---- messages ---- */

/* Writes one line to stderr and into the run; ends recording for good. Never blocks on the driver. */
void session_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Adds a warning to the run, and writes it to stderr; each text once. */
void session_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same, for data that is missing in the run. */
void session_lost(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define CONTEXT_UNKNOWN "the driver does not say which context is current"
#define NAMES_LOST "names were lost: no host memory"

/* Writes to stderr, if that is still the one that the program started with. */
void session_say(const char *lines, size_t size);
/* Remembers the current stderr. */
void session_take_stderr(void);

/* Why the recording failed, or NULL. */
const char *session_failure(void);
/* The files could not be completed: reports it, unless another failure has a reason. */
void session_stopped(const char *reason);
/* The warnings as a list, or only the losses. */
void session_warnings_json(struct json *j, bool losses);

/* ---- numbers ---- */

extern struct session_seq {
	_Alignas(64) _Atomic uint64_t last; /* the last call's; its own cache line, because every call writes it */
} session_seq;
static inline uint64_t session_next_seq(void)
{
	return atomic_fetch_add_explicit(&session_seq.last, 1, memory_order_relaxed) + 1;
}
/* The number is not used after all. It stays unused only if another thread has got the next one. */
static inline void session_return_seq(uint64_t seq)
{
	atomic_compare_exchange_strong(&session_seq.last, &seq, seq - 1);
}
static inline uint64_t session_last_seq(void)
{
	return atomic_load_explicit(&session_seq.last, memory_order_relaxed);
}
uint32_t session_next_epoch(void);
void session_set_next_epoch(uint32_t number);

struct session_counters {
	_Atomic uint64_t epochs, epochs_refused, epochs_dropped, bytes_read, bytes_changed, bytes_stored;
};
extern struct session_counters session_counters;

/* The ring's description in run.json. */
struct session_ring {
	uint64_t bytes;
	const char *memory; /* "device", "host" or "none" */
};
void session_set_ring(uint64_t bytes, const char *memory);
struct session_ring session_ring(void);

/* ---- files ---- */

store *session_store(void);
void session_set_store(store *run);
void session_region(struct tt_region *record);

/* ---- a quick end ---- */

/* The process is being ended: from now on waits are short, and there are no new messages. */
void session_hurry(void);
/* The time of that; 0: not yet. */
uint64_t session_hurried(void);

/* ---- callbacks of upper layers; set before recording begins ---- */

struct session_listeners {
	void (*region_gone)(struct region *r);
	/* Whether all captures in a context that began before have ended. Does not wait. */
	bool (*captures_ended)(struct context *c);
	/* A call of the recorder returned an error of a lost context. */
	void (*context_failed)(struct context *c, CUresult r, const char *call, uint64_t seq);
	void (*epoch_stored)(const struct tt_epoch *e);
	/* process.json is outdated. */
	void (*changed)(void);
};
extern struct session_listeners session_listeners;

#endif
