/*
 * In-flight work: submitted work that is not known to be complete.
 *
 * It is computed on demand from the recorded calls and the driver, so calls cost nothing more. Work
 * is complete if it comes before a wait of the host that returned, a captured epoch, work whose end
 * the timeline has seen, or a stream or recorded event that the driver says is complete.
 *
 * Invariant: nothing here allocates, or waits without a bound for a lock or a hanging driver.
 */
#ifndef TT_LIFECYCLE_INFLIGHT_H
#define TT_LIFECYCLE_INFLIGHT_H

#include <stdbool.h>
#include <stdint.h>

#include "format.h"
#include "track/streams.h"

#define INFLIGHT_STREAMS 64 /* streams that are reported */
#define INFLIGHT_CALLS 8    /* calls of each */

struct inflight_stream {
	uint32_t context, thread; /* thread: of a per-thread default stream, else 0 */
	bool destroyed; /* by the program: the driver can't be queried about it */
	uint64_t id;
	uint64_t count; /* calls whose work may be in flight; 0: some work is, but its calls are unknown */
	bool more;      /* there may be more in calls that are too old to examine */
	uint32_t listed;
	const struct tt_event *calls[INFLIGHT_CALLS]; /* the first of them, in order */
	const struct inflight_stream *behind; /* the first call waits for this stream */
};

struct inflight {
	bool answered; /* by the driver, in time; else less may be in flight */
	CUresult lost; /* the driver's error for a lost context, and that context */
	uint32_t lost_context;
	uint32_t count; /* streams with work in flight; the first INFLIGHT_STREAMS are reported */
	const struct inflight_stream
		*streams[INFLIGHT_STREAMS]; /* existing streams that wait for no other come first, then by their first call */
};

/* Starts the thread that queries the driver. */
void inflight_open(void);
/*
 * In-flight work of a context, of all if NULL. ask: query the driver too. The result is valid until inflight_done.
 * NULL: another thread has it.
 */
const struct inflight *inflight_look(const struct context *c, bool ask);
void inflight_done(void); /* releases the result */

/* Work that was submitted in the context before this call is complete. */
void inflight_completed(struct context *c, uint64_t seq);

/* Before the program destroys an event, a stream or a context: it is not queried afterwards. */
void inflight_event_ends(CUevent event);
void inflight_handle_ends(void);

#endif
