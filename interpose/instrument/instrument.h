/*
 * Traces what the instructions of chosen launches do.
 *
 * Invariant: a launch that is not traced runs the program's own code. A traced one computes the same. If tracing is not
 * possible, the launch runs as it is, and its record says why.
 */
#ifndef TT_INSTRUMENT_INSTRUMENT_H
#define TT_INSTRUMENT_INSTRUMENT_H

#include "instrument/patcher.h"

/* Call before the driver is initialised. */
void instrument_open(void);
/* A module was loaded: keeps its code, if the patcher may need it. */
void instrument_module(uint32_t module, const struct loading *l);
/* Its kernels are not launched any more. */
void instrument_module_unloaded(uint32_t module);

struct traced_launch {
	struct launch_arguments program, runs; /* runs: in their place; runs.f NULL: the program's */
	const unsigned *grid, *block;
	uint64_t seq;
	CUgraphExec exec; /* it is this node of an executable graph, or NULL: */
	CUgraphNode node;
	uint32_t number; /* of the node, as in tt_graph_record; TT_NO_ID: it is none */
	const char *refused; /* why it can't be traced, or NULL */
};

/* A function whose name was chosen will be launched, or a graph with such functions: whether that launch is traced. */
bool instrument_next(void);
/* Right before the driver's call for a launch that is traced. NULL: it can't be. */
struct flight *instrument_begin(struct context *c, const struct function *f, struct traced_launch *l);
/* After the call. */
void instrument_submitted(struct flight *flight, const struct function *f, CUstream stream, bool failed);

void instrument_context_ends(struct context *c);
void instrument_forget(void); /* in a forked child */

#endif
