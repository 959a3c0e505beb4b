/*
 * Asks the driver for functions and variables of the program's modules.
 */
#ifndef TT_INSPECT_FUNCTIONS_H
#define TT_INSPECT_FUNCTIONS_H

#include "track/functions.h"

/* The function of a launch; NULL: no memory. Before the launch only id, name and chosen are valid. */
struct function *function_ask(CUfunction handle);
static inline struct function *function_of(CUfunction handle)
{
	struct function *f = function_find(handle);

	return likely(f != NULL) ? f : function_ask(handle);
}

/* Once for each function and context, after a successful launch: attributes, its record, its module's variables. */
void function_describe(struct context *c, struct function *f, CUfunction handle);

struct variable variable_at(CUdeviceptr address, size_t size);

#endif
