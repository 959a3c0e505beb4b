/*
 * Puts code that records into the machine code of a kernel.
 *
 * An instruction with recording code is replaced by a branch to the end of the code, which grows by this code, the
 * instruction itself and a branch back. The kernel then needs more registers, and one more parameter: struct
 * tt_trace_param, see trace_ring.h.
 *
 * Invariant: what the kernel computes does not change. An instruction of which that is not known is left as it is,
 * with a reason.
 */
#ifndef TT_SASS_TRACE_CODE_H
#define TT_SASS_TRACE_CODE_H

#include "sass/code.h"

struct trace_point {
	uint32_t kinds;      /* bits 1 << enum tt_trace_kind */
	const char *refused; /* set: why it has no recording code, or NULL */
};

/* What code may use, of that which warps have once. */
struct trace_used {
	struct uniforms uniforms;
	uint32_t barriers;   /* of convergence, as bits */
	uint32_t predicates; /* that may be written, as bits */
	unsigned exits;      /* instructions that end threads */
	bool levels;         /* warps change their number of registers */
	const char *refused; /* why that is unknown, or NULL */
};

struct trace_wish {
	bool some_blocks; /* of the grid are counted; else all */
	bool beats;       /* warps keep heartbeats */
	bool flat;        /* grids and blocks have one dimension */
	unsigned threads; /* of a block that is to be possible; see also traced_code. 0: unknown */
};

struct trace_kernel {
	unsigned architecture;
	unsigned registers; /* of each thread */
	uint32_t parameter; /* offset of the additional one in constant bank 0 */
	const struct instruction *code;
	size_t count;       /* of instructions */
	struct trace_used used; /* by the kernel and all functions that it may call */
	const bool *fixed;      /* by instruction; these are not moved. NULL: none */
	struct trace_wish wish;
	struct levels *levels; /* for trace_insert */
};

/* The new code, freed with traced_code_free. */
struct traced_code {
	struct instruction *code;
	size_t count;
	unsigned registers;
	bool of_threads; /* only for blocks of wish.threads */
	unsigned stack;  /* bytes of it that the kernel needs besides its own */
	uint32_t *moved; /* by old instruction: its new offset in bytes, 0 if not moved */
	size_t points;   /* that have recording code */
	uint32_t *slots; /* by old instruction: the number, from 1, of the count of its executions; 0: not counted */
	uint32_t slot_count;
	uint32_t stride, copies; /* of the counts: room for that many in each copy, see tt_trace_param */
};

/* The kinds that an architecture has recording code for, as bits; 0: none. */
uint32_t trace_kinds(unsigned architecture);
void trace_use(unsigned architecture, struct instruction i, struct trace_used *used);
/*
 * points[i] is for instruction i. Instructions of a block that are executed equally often share a count. Returns NULL, or
 * why the kernel cannot be traced.
 */
const char *trace_insert(const struct trace_kernel *k, struct trace_point *points, struct traced_code *out);
void traced_code_free(struct traced_code *code);

#endif
