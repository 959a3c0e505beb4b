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
	uint32_t offset;     /* byte offset of the instruction in its kernel */
	uint32_t kinds;      /* bits 1 << enum tt_trace_kind; 0: nothing is inserted */
	const char *refused; /* set: why it has no recording code, or NULL */
};

/* What code may use, of that which warps have once. */
struct trace_used {
	struct uniforms uniforms;
	uint32_t barriers;   /* of convergence, as bits */
	const char *refused; /* why that is unknown, or NULL */
};

struct trace_kernel {
	unsigned architecture;
	unsigned registers; /* of each thread */
	uint32_t parameter; /* offset of the additional one in constant bank 0 */
	const struct instruction *code;
	size_t count;       /* of instructions */
	struct trace_used used; /* by the kernel and all functions that it may call */
	const bool *relocated;  /* by instruction; these are not moved */
};

/* The new code, which the caller frees. */
struct traced_code {
	struct instruction *code;
	size_t count;
	unsigned registers;
	uint32_t *moved; /* by old instruction: its new offset in bytes, 0 if not moved; the caller frees it */
	size_t points;   /* that have recording code */
};

/* The kinds that an architecture has recording code for, as bits; 0: none. */
uint32_t trace_kinds(unsigned architecture);
void trace_use(unsigned architecture, struct instruction i, struct trace_used *used);
/* Returns NULL, or why the kernel cannot be traced; `points` are sorted by offset. */
const char *trace_insert(const struct trace_kernel *k, struct trace_point *points, size_t count, struct traced_code *out);

#endif
