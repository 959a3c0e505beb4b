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

#define INFLIGHT_STREAMS 64 /* that are reported */
#define INFLIGHT_CALLS 8    /* of each */

struct inflight_stream {
	uint32_t context, thread; /* thread: of a per-thread default stream, else 0 */
	bool destroyed; /* by the program: the driver can't be asked about it */
	uint64_t id;
	uint64_t count; /* calls whose work may be in flight; 0: there is some, but its calls are not known */
	bool more;      /* and some longer ago than is looked back */
	uint32_t listed;
	const struct tt_event *calls[INFLIGHT_CALLS]; /* the first of them, in order */
	const struct inflight_stream *behind; /* the first waits for this one */
};

struct inflight {
	bool answered; /* by the driver, in time; else it may be that less is in flight */
	CUresult lost; /* what the driver said of a context that is lost, and whose */
	uint32_t lost_context;
	uint32_t count; /* streams with work in flight; the first INFLIGHT_STREAMS are reported */
	const struct inflight_stream
		*streams[INFLIGHT_STREAMS]; /* those first that are there and wait for no other, by their first call */
};

/* Starts the thread that asks the driver. */
void inflight_open(void);
/*
 * What is in flight in a context, in all of them where that is NULL. ask: the driver too. The answer holds
 * until the next inflight_look. NULL: another thread is looking.
 */
const struct inflight *inflight_look(const struct context *c, bool ask);
void inflight_done(void); /* with the answer */

/* All that was submitted in the context before this call is complete. */
void inflight_completed(struct context *c, uint64_t seq);

/* Before the program destroys an event, a stream or a context: none is asked about after that. */
void inflight_event_ends(CUevent event);
void inflight_handle_ends(void);

#endif
