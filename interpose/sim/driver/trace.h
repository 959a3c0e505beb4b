/*
 * Reports the simulator's work to its own CUPTI.
 *
 * Invariant: all functions are called with the simulator's lock held, and do not call the simulator.
 */
#ifndef TT_SIM_DRIVER_TRACE_H
#define TT_SIM_DRIVER_TRACE_H

#include <stdint.h>

enum trace_kind { TRACE_KERNEL, TRACE_COPY, TRACE_SET };

struct trace_work {
	enum trace_kind kind;
	uint32_t correlation; /* the result of `submitted` */
	uint64_t begin, end;  /* CLOCK_MONOTONIC */
	uint64_t bytes;
	const char *name; /* of a kernel */
	uint32_t device, context;
	uint64_t node; /* number of the graph node, else 0 */
};

struct trace_client {
	uint32_t (*submitted)(void); /* by the calling thread */
	void (*ran)(const struct trace_work *w);
};

/* NULL: none. */
void sim_trace(const struct trace_client *client);

#endif
