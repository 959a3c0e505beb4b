/*
 * Makes cubins of which one kernel records what it does.
 *
 * The kernel gets one more parameter, struct tt_trace_param, behind its own. It uses the variables of the program's
 * module, not those of the new one.
 *
 * Invariant: what the kernel computes does not change; else there is no new cubin, with a reason. Input and output are
 * in memory; nothing else is read, kept or changed.
 */
#ifndef TT_SASS_TRACE_IMAGE_H
#define TT_SASS_TRACE_IMAGE_H

#include "sass/cubin.h"
#include "sass/trace_code.h"

/* The address of a variable of the program's module; 0: unknown. */
struct trace_variables {
	uint64_t (*address)(void *user, const char *name);
	void *user;
};

struct traced_image {
	uint8_t *bytes; /* freed with traced_image_free */
	size_t size;
	uint32_t parameters; /* of the program's kernel */
	uint32_t offset;     /* of the additional one among them */
	unsigned registers;
	bool of_threads; /* as in traced_code */
	size_t points; /* instructions with recording code */
	uint32_t *slots, slot_count, stride, copies; /* as in traced_code */
};

/* points[i] is for instruction i. Returns NULL, or why the kernel can't be traced. */
const char *trace_image(const struct cubin *c, const struct cubin_kernel *k, struct trace_point *points,
			const struct trace_wish *wish, const struct trace_variables *variables, struct traced_image *out);
void traced_image_free(struct traced_image *image);

/* Calls visit with the name of each constant that the program may set and the kernel may read: a copy needs their values. */
void trace_constants(const struct cubin *c, const struct cubin_kernel *k, void (*visit)(void *user, const char *name),
		     void *user);

#endif
