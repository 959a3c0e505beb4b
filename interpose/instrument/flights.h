/*
 * Traced launches that may still run, and the thread that stores their records.
 *
 * Invariant: the thread holds no lock while it waits for the device. A launch whose record in traced.bin exists gets
 * its TT_TRACE_END unless the context is lost or the launch does not end.
 */
#ifndef TT_INSTRUMENT_FLIGHTS_H
#define TT_INSTRUMENT_FLIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#include "capture/memory.h"
#include "format.h"
#include "trace_ring.h"
#include "track/streams.h"

struct flight;

/* What a launch counts, and how it records. */
struct flight_counts {
	uint32_t instructions; /* that may be counted; 0: none */
	uint32_t slots, copies; /* as in tt_trace_param; copies 0: a pair for each instruction */
	bool several_rings;           /* its code can use them */
	const uint32_t *slot; /* with copies: the slot of each instruction, from 1; 0: it is not counted */
};

/*
 * A launch that is about to be submitted: its record. NULL: t->refused says why. The caller has the context current.
 */
struct flight *flight_begin(struct context *c, struct tt_traced *t, const struct flight_counts *counts);
/* Room for the values of its parameters, valid until the launch has ended; NULL: no memory. */
void **flight_values(struct flight *f, size_t count);
/* What its kernel gets; valid until the launch has ended. `device`: memory for a copy. */
struct tt_trace_param *flight_param(struct flight *f, CUdeviceptr *device);
/* It was submitted to this stream, or failed. */
void flight_submitted(struct flight *f, CUstream stream, bool failed);
/* Writes the record of a launch that is not traced. */
void flight_refused(struct tt_traced *t);

/* Waits for the launches of a context, for a limited time, and frees its ring. */
void flights_context_ends(struct context *c);
/* The same for all, and ends the thread. */
void flights_close(void);
void flights_forget(void); /* in a forked child */

/*
 * What the warps of unfinished launches do, as a JSON list, which the caller frees. NULL: unknown, or no answer within this
 * time.
 */
char *flights_warps(uint64_t wait_ns);
/*
 * For how long (ns) readings of heartbeats found no launch that moved; UINT64_MAX: no launch with heartbeats is unfinished.
 */
uint64_t flights_still(void);

#endif
