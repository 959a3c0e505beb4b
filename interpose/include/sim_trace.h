/*
 * How the recorder asks the simulator to trace a launch: the simulator exports ttSimTraceNext, ttSimTraceNode and
 * ttSimText, and its interpreter writes the records that instrumented machine code would write.
 */
#ifndef TT_SIM_TRACE_H
#define TT_SIM_TRACE_H

#include "cuda.h"
#include "trace_ring.h"

struct tt_sim_trace {
	struct tt_trace_param param;
	const uint8_t *lines; /* lines[i]: bits 1 << enum tt_trace_kind of what is recorded at line i of the PTX text, from 1 */
	uint32_t line_count;  /* elements of lines, and pairs of param.counts */
};

/*
 * The next kernel launch of this thread is traced, unless it fails; captured launches do not count. Everything is
 * copied. Blocks outside of first_block to last_block have heartbeats only.
 */
typedef void tt_sim_trace_next(const struct tt_sim_trace *trace);
/* The same for a kernel node in the next launch of an executable graph; NULL: it is not traced. */
typedef void tt_sim_trace_node(CUgraphExec exec, CUgraphNode node, const struct tt_sim_trace *trace);

/* ttSimText: the PTX of a kernel's module, to be freed; NULL: there is no such kernel in the current context. */
typedef char *tt_sim_text(CUfunction f);

#endif
