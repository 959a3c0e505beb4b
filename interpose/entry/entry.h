/*
 * How we get between the program and the driver: dlsym, cuGetProcAddress, direct symbols.
 *
 * Invariant: a program is given our wrapper exactly where the driver would have given it the
 * call that the wrapper wraps; in every other case it gets what the driver or the C library
 * answers. Nothing here records anything.
 */
#ifndef TT_ENTRY_ENTRY_H
#define TT_ENTRY_ENTRY_H

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL /* declare every version of a call, and no macros that rename them */
#endif
#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "util/hot.h"
#include "driver/hook_table.h"

/* In what a sanitizer's runtime calls of the C library by way of us, before it is ready for code that it watches. */
#define UNWATCHED __attribute__((no_sanitize("address", "undefined", "thread")))
#define EXPORT __attribute__((visibility("default")))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

enum call {
#define X(symbol) CALL_##symbol,
	HOOK_TABLE(X)
#undef X
	CALL_COUNT
};

/* The driver's own functions; a member is NULL where this driver lacks the call. */
struct driver {
#define X(symbol) __typeof__(&symbol) symbol;
	HOOK_TABLE(X) CALL_TABLE(X)
#undef X
};
extern struct driver real;

extern const char *const call_names[CALL_COUNT];

/*
 * Fills `real`, once. False where no driver can be loaded. A wrapper may run as soon as its own call is
 * there: what else is used of `real` is there after this.
 */
bool entry_resolve(void);

/* Called before a program is given one of CUPTI's calls that take it over; NULL: nobody minds. */
extern void (*_Atomic entry_cupti_taken)(void);

/* The first call that the recorder can't do without and this driver has not, or NULL. */
const char *entry_lacks(void);

/* A wrapper's way to its real call: resolves first where the program linked libcuda directly. */
#define REAL(symbol) \
	(likely(__atomic_load_n(&real.symbol, __ATOMIC_ACQUIRE) != NULL) || entry_resolve_for((void **)&real.symbol) \
		 ? real.symbol : NULL)
bool entry_resolve_for(void **member);

/* Loaded before the program, as its first library: no need for the second door. */
bool entry_preloaded(void);
/* The second door; NULL, or why it is closed. */
const char *entry_inject(void);
/* For inject.c: what the driver exports for a call (NULL: lacks it), and its exchange for our wrapper. */
const void *entry_driver_address(unsigned call);
void entry_exchange(unsigned call, void **pointer, bool install);

/* What the driver returned for them is neither one of ours nor passed through knowingly, as NAME:VERSION:FLAGS. */
#define ENTRY_UNKNOWN_MAX 64
unsigned entry_unknown_calls(const char *const **list);

#endif
