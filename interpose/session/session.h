/*
 * The recording for all of its parts: whether it is active, its messages, its numbers and its
 * files. lifecycle/ starts and ends it.
 *
 * Invariant: any failure turns the recording off for the rest of the process with one line on
 * stderr, and the program goes on. Nothing here waits for the driver.
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
	SESSION_UNDECIDED, /* no call so far */
	SESSION_ON,
	SESSION_OFF, /* not asked for, failed at the start, ended */
	SESSION_STOPPED, /* failed on the way: what it holds in contexts is still there, and may still work */
};
extern _Atomic int session_state;

/* ---- messages ---- */

/* One line on stderr and into the run; recording ends for good. Never blocks on the driver. */
void session_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Into the run's warnings, and on stderr, each distinct text once. */
void session_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same, of something that should have been recorded and is not. */
void session_lost(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define CONTEXT_UNKNOWN "the driver does not say which context is current"
#define NAMES_LOST "names were lost: no host memory"

/* On stderr, as long as that is the one that the program was started with. */
void session_say(const char *lines, size_t size);
/* Keeps what stderr is now. */
void session_take_stderr(void);

/* Why the recording failed, or NULL. */
const char *session_failure(void);
/* It failed at the files' end: told, and no reason of another failure. */
void session_stopped(const char *reason);
/* The warnings as a list, or those of losses. */
void session_warnings_json(struct json *j, bool losses);

/* ---- numbers ---- */

uint64_t session_next_seq(void);
uint64_t session_last_seq(void);
uint32_t session_next_epoch(void);
void session_set_next_epoch(uint32_t number);

struct session_counters {
	_Atomic uint64_t epochs, epochs_refused, epochs_dropped, bytes_read, bytes_changed, bytes_stored;
};
extern struct session_counters session_counters;

/* What run.json says of the ring. */
struct session_ring {
	uint64_t bytes;
	const char *place;
};
void session_set_ring(uint64_t bytes, const char *place);
struct session_ring session_ring(void);

/* ---- files ---- */

store *session_store(void);
void session_set_store(store *run);
void session_region(struct tt_region *record);

/* ---- an end that must not take long ---- */

/* Something ends the process: from now on waits are short, and nothing new is said. */
void session_hurry(void);
/* When that was; 0: not so far. */
uint64_t session_hurried(void);

/* ---- what parts above want to know; they are set before the recording begins ---- */

struct session_listeners {
	void (*region_gone)(struct region *r);
	/* A call of the recorder's own gave a result that tells of a lost context. */
	void (*context_failed)(struct context *c, CUresult r, const char *call, uint64_t seq);
	void (*epoch_stored)(const struct tt_epoch *e);
	/* process.json is no longer right. */
	void (*changed)(void);
};
extern struct session_listeners session_listeners;

#endif
