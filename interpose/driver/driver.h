/*
 * The driver's functions by name, and its wrapped calls by address.
 *
 * Invariant: a wrapper is found only by the address that the driver returns for its call. The recorder's own export
 * is never taken for the driver's.
 */
#ifndef TT_DRIVER_DRIVER_H
#define TT_DRIVER_DRIVER_H

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL /* declares every version of a call, without macros that rename them */
#endif
#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/compiler.h"
#include "driver/call_table.h"

enum call {
#define X(symbol) CALL_##symbol,
	HOOK_TABLE(X)
#undef X
		CALL_COUNT
};

/* The driver's own functions; NULL: this driver lacks the call. */
struct driver {
#define X(symbol) __typeof__(&symbol) symbol;
	HOOK_TABLE(X) CALL_TABLE(X)
#undef X
};
extern struct driver real;

extern const char *const call_names[CALL_COUNT];
static inline const char *call_name(uint32_t call)
{
	return call < CALL_COUNT ? call_names[call] : "a call";
}

/*
 * Fills `real`, once. False: no driver can be loaded. A wrapper may run as soon as its own call is available; other
 * members of `real` are valid only after this.
 */
bool driver_resolve(void);
/* The same with an open driver library; NULL: returns only whether it is done. */
bool driver_resolve_from(void *library);

/* The first required call that this driver lacks, or NULL. */
const char *driver_lacks(void);

/* Whether a context never recovers from this result. */
bool driver_context_lost(CUresult r);

/* How a wrapper gets its real call: resolves first if the program linked libcuda directly. */
#define REAL(symbol) \
	(likely(__atomic_load_n(&real.symbol, __ATOMIC_ACQUIRE) != NULL) || driver_resolve_for((void **)&real.symbol) \
		 ? real.symbol \
		 : NULL)
bool driver_resolve_for(void **member);

/* ---- for entry/ ---- */

/* A wrapped call: its symbol, the wrapper, where the driver's address is stored. */
struct hook {
	const char *symbol;
	void *wrapper;
	void **member;
};

typedef void *driver_dlsym_fn(void *, const char *);
extern driver_dlsym_fn *driver_dlsym; /* the C library's */

void driver_begin(void); /* also called by other libraries' constructors, if they run first */
void driver_find_dlsym(void);
const struct hook *driver_hook_of(const char *name); /* NULL: no wrapper */
void *driver_wrapper_of(void *address);
const struct hook *driver_hook(unsigned call);
/* The driver's export for a call (NULL: none), and its replacement by the wrapper. */
const void *driver_address(unsigned call);
void driver_exchange(unsigned call, void **pointer, bool install);

static inline unsigned name_hash(const char *s, size_t n)
{
	unsigned h = 2166136261u;

	while (n--)
		h = (h ^ (unsigned char)*s++) * 16777619u;
	return h ^ h >> 15;
}

#endif
