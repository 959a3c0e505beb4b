/*
 * How the recorder asks the simulator to trace a launch: the simulator exports ttSimTraceNext, and its interpreter
 * writes the records that instrumented machine code would write.
 */
#ifndef TT_SIM_TRACE_H
#define TT_SIM_TRACE_H

#include "trace_ring.h"

struct tt_sim_trace {
	struct tt_trace_param param;
	const uint8_t *lines; /* by line of the PTX text, from 1: bits 1 << enum tt_trace_kind of what is recorded there */
	uint32_t line_count;
};

/* The next kernel launch of this thread is traced. Everything is copied. */
typedef void tt_sim_trace_next(const struct tt_sim_trace *trace);

#endif
