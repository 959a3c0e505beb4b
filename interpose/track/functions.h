/*
 * Functions of modules and libraries, by the program's handles.
 *
 * Invariant: a function that was looked up stays a valid pointer until well after its module is unloaded. A lookup
 * on the launch path takes no lock.
 */
#ifndef TT_TRACK_FUNCTIONS_H
#define TT_TRACK_FUNCTIONS_H

#include "track/modules.h"
#include "util/cache_line.h"
#include "util/handle_table.h"

#define TT_MARK "tt_epoch" /* the recorder's kernel in graphs of the program, as its records name it */

struct function {
	AT_CACHE_LINE _Atomic uint32_t id; /* tt_function.id; TT_NO_ID: not launched yet */
	uint32_t module;
	const char *name;
	uint32_t name_string;
	bool chosen; /* by --epoch kernel:REGEX */
	bool traced; /* by --instrument-kernel */
	_Atomic bool replayable; /* its next launch is recorded for replay */
	uint32_t replayables;    /* number of these launches; guarded by the capture lock */
	_Atomic uint32_t cache;  /* CUfunc_cache */
	bool inside; /* by --epoch graph-node:REGEX */
	bool stamped; /* by --graph-stamps */
	bool marks; /* the recorder's: places of tt_epoch in graphs */
	bool recorded; /* parameters and attributes below are filled in, and its record is written */
	/*
	 * context_bit of the contexts in which it was launched: there, its module's variables and the parameters
	 * below are known.
	 */
	_Atomic uint64_t known;
	uint32_t param_count, param_bytes;
	const struct function_param {
		uint32_t offset, size;
	} *params;
	struct lookup *lookups; /* its handles */
	struct function *next;
};

/* Parameters that the program laid out itself, from the `extra` of a launch; NULL: it did not. */
static inline const void *launch_buffer(void **extra, size_t *size)
{
	const void *buffer = NULL;

	*size = 0;
	for (void **x = extra; x && *x != CU_LAUNCH_PARAM_END; x += 2)
		if (*x == CU_LAUNCH_PARAM_BUFFER_POINTER)
			buffer = x[1];
		else if (*x == CU_LAUNCH_PARAM_BUFFER_SIZE)
			*size = *(size_t *)x[1];
	return buffer;
}

/* What the program's lookups say about a handle before its first launch. */
struct lookup {
	void *_Atomic handle;
	struct function *function;
	bool kernel;
	struct lookup *next; /* of the function, or of the free list */
};
extern struct handle_table *_Atomic function_lookups;

void function_number(struct function *f); /* gives it its id, unless it has one */
/* Takes no lock. NULL: no lookup of it was seen. Before its first launch only id, name and chosen are valid. */
static inline struct function *function_find(CUfunction handle)
{
	const struct lookup *l = handle_find(&function_lookups, handle);

	if (unlikely(!l))
		return NULL;
	if (unlikely(atomic_load_explicit(&l->function->id, memory_order_relaxed) == TT_NO_ID))
		function_number(l->function);
	return l->function;
}
/* A function whose lookup was not seen; module: NULL if unknown. Returns NULL without memory. */
struct function *function_seen(CUfunction handle, const char *name, CUmodule module);
/* The name of a launched function, by its id; NULL: unknown, or the lock is not available soon. */
const char *function_name(uint32_t id);
/* A function by its id, and one of its handles; NULL: unknown, or its module was unloaded. */
struct function *function_numbered(uint32_t id, CUfunction *handle);

/* How function_launched asks about loaded code. */
struct code_answers {
	/* Fills in the function's parameters and the record's attributes. kernel: the handle is a CUkernel. */
	void (*function)(struct function *f, CUfunction handle, bool kernel, CUdevice device, struct tt_function *record);
	struct variable (*variable)(void *module, bool library, const char *name);
};
/* The first launch of a function in a context succeeded: writes its record and finds its module's variables. */
void function_launched(struct context *c, struct function *f, CUfunction handle, const struct code_answers *ask);

/* The program got a function or kernel from a module or library. */
void module_function(void *module, void *function, const char *name, bool kernel);
/* Whether the handle is a CUkernel. */
bool function_is_kernel(CUfunction handle);
/* The program set the preferred split of shared memory and cache. */
void function_cache(CUfunction handle, CUfunc_cache config);

#endif
