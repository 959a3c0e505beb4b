/*
 * Traces launches with machine code of our own: a module with a copy of the kernel that records what it does, which is
 * launched in its place.
 *
 * Invariant: the program's module and its kernels stay as they are. A kernel that has no copy runs as it is, with a
 * reason.
 */
#ifndef TT_INSTRUMENT_PATCHER_H
#define TT_INSTRUMENT_PATCHER_H

#include "instrument/flights.h"
#include "track/functions.h"

/* The arguments of a launch. */
struct launch_arguments {
	CUfunction f;
	void **params, **extra;
	unsigned threads; /* of a block */
	bool flat;        /* the grid and its blocks have one dimension */
	CUstream stream;
};

static inline bool launch_is_flat(const unsigned grid[3], const unsigned block[3])
{
	return grid[1] == 1 && grid[2] == 1 && block[1] == 1 && block[2] == 1;
}

struct patched;

/* A module was loaded: keeps its image. */
void patcher_module(uint32_t module, const struct loading *l);
/*
 * The copy of a kernel for this context, which is current; of a kernel without instructions that are to be traced, what
 * stands for it. NULL: *refused (enum tt_trace_refused) and *text say why.
 */
const struct patched *patcher_copy(struct context *c, const struct function *f, const struct launch_arguments *a,
				   uint32_t *refused, const char **text);
/* What the driver compiled for it, as in tt_traced. */
uint64_t patcher_image(const struct patched *p);
/* What it counts. */
struct flight_counts patcher_counts(const struct patched *p);
/*
 * Replaces the arguments by those for the copy: its values last until the flight has ended. Brings the copy up to date in
 * the stream. a->f is NULL if the program's kernel is to run. False: no memory.
 */
bool patcher_redirect(const struct patched *p, const struct function *f, struct flight *flight, struct launch_arguments *a);

void patcher_context_ends(struct context *c);
void patcher_forget(void); /* in a forked child */

#endif
