/*
 * Deterministic runs: device memory of the program at addresses that are the same in every run,
 * and without what was there before.
 *
 * Invariant: an address depends on the order and the sizes of the program's calls alone, and
 * memory is zero, or as --fill says, when the program is given it. What can't be served so is the
 * driver's; what was served stays ours until it is freed, whether or not recording goes on.
 */
#ifndef TT_ARENA_ARENA_H
#define TT_ARENA_ARENA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "track/streams.h"

#define ARENA_BASE 0x200000000000ull /* of device 0; the next devices' follow */
#define ARENA_STRIDE (1ull << 40)
#define ARENA_DEVICES 64
#define ARENA_GRANULE ((uint64_t)2 << 20) /* free memory is told in units of it */

/* An address that is nobody's: given to the driver, it brings its own error for such. */
#define ARENA_NOWHERE ((CUdeviceptr)1)

/* What is asked without a lock. */
extern struct arena_state {
	_Atomic bool used;
	_Atomic uint64_t serial;                  /* of the newest free that waits for work */
	_Atomic uint64_t reserved[ARENA_DEVICES]; /* bytes of each range that are ours */
} arena_state;

/* Whether an address lies in a range of ours, allocated or not. */
static inline bool arena_holds(uint64_t address)
{
	uint64_t at = address - ARENA_BASE;

	return unlikely(atomic_load_explicit(&arena_state.used, memory_order_acquire)) && at < ARENA_DEVICES * ARENA_STRIDE &&
	       at % ARENA_STRIDE < atomic_load(&arena_state.reserved[at / ARENA_STRIDE]);
}

enum arena_result {
	ARENA_SERVED,
	ARENA_NOT,   /* the driver is to be asked */
	ARENA_SHORT, /* the same, for want of device memory */
	ARENA_REFUSED,
};

/* In the current context, which is c; the memory is filled when it returns. *refused: why. */
enum arena_result arena_allocate(struct context *c, uint64_t size, CUdeviceptr *out, CUresult *refused);
/* The driver's pitch for rows of that width; 0: it is to be asked. */
uint64_t arena_pitch(struct context *c, uint64_t width, unsigned element);
/* In the order of a stream that is not being captured. pool NULL: the device's current one. */
enum arena_result arena_allocate_async(struct stream *s, CUmemoryPool pool, uint64_t size, CUdeviceptr *out);

/* The device is full: what the program freed can be had again. c: current. True: there was something. */
bool arena_give_back(struct context *c);

/*
 * A free in two halves: after the first the memory is no longer the program's, and no allocation
 * gets it before the second, which waits for work that was submitted before. Both may bring the
 * driver's error, the first without effect. c: current.
 */
struct block;
CUresult arena_free_begin(CUdeviceptr p, struct block **b);
CUresult arena_free_end(struct context *c, struct block *b);
/* The free that the program asked the driver for by free_real; not while its stream is captured. */
CUresult arena_free_async_begin(CUdeviceptr p, CUresult (*free_real)(CUdeviceptr, CUstream), CUstream handle, struct block **b);
void arena_free_async_end(struct stream *s, struct block *b);

/* Around a wait of the host for a whole context or for a stream; NULL: the program has none such. */
static inline uint64_t arena_mark(void)
{
	return atomic_load_explicit(&arena_state.serial, memory_order_relaxed);
}
void arena_context_waited_for(struct context *c, uint64_t mark);
void arena_stream_waited_for(struct stream *s, uint64_t mark);

/* What is known about the allocation that holds an address. */
struct arena_allocation {
	uint64_t base, size, id;
	uint64_t mapping, mapped; /* the memory that it lies in */
	CUcontext context;        /* NULL for stream-ordered memory */
	CUmemoryPool pool;        /* NULL for other than that */
	unsigned sync_memops;
};
bool arena_find(uint64_t address, struct arena_allocation *found);
/* The zones of an allocation: from start to base, and from its end to end. False: it has none. */
bool arena_zones(CUdeviceptr base, uint64_t *start, uint64_t *end);
/* Whether memory at that address can be shared with other processes. */
bool arena_exportable(uint64_t address);
bool arena_set_sync_memops(CUdeviceptr base, unsigned value);
/* Free memory as the program would see it without us, from what the driver says. */
uint64_t arena_available(CUdevice device, uint64_t bytes);

/* The context that memory is of, NULL: it was freed, or that is gone. */
CUcontext arena_owner(CUdeviceptr p);
/* Whether two addresses are of different devices: between them only copies that name the contexts go. */
bool arena_apart(CUdeviceptr a, CUdeviceptr b);
static inline bool arena_far(CUdeviceptr a, CUdeviceptr b, CUcontext *of_a, CUcontext *of_b)
{
	return arena_holds(a) && arena_holds(b) && arena_apart(a, b) && (*of_a = arena_owner(a)) && (*of_b = arena_owner(b));
}
/* Copies in c work on p, as they do on any memory of the driver's. False: they have to name the context. */
bool arena_bring_near(const struct context *c, CUdeviceptr p);
static inline bool arena_reach(const struct context *c, CUdeviceptr p)
{
	return !arena_holds(p) || !c || arena_bring_near(c, p);
}
/* Memory of another device, which the program has not opened to `user`: no driver sets it, or finds it there. */
bool arena_is_closed(CUdevice user, CUdeviceptr p);
/* The context of memory in the arena, NULL: it was freed. */
CUcontext arena_context(CUdeviceptr p);
/* Kernels on `user` may reach the memory of `device`, or no longer. */
void arena_open(CUdevice device, CUdevice user, bool open);
void arena_open_pools(CUdevice device, CUdevice user, bool open);
void arena_context_gone(struct context *c, bool primary);
void arena_forget(void); /* in a fork's child */

/* pool.c: pools that the program made, and how much of ours counts as theirs. */
struct pool {
	CUmemoryPool handle; /* NULL: destroyed */
	CUdevice device;
	uint64_t used, used_high, reserved, reserved_high;
	uint64_t users; /* devices it was opened to, a bit each */
	struct pool *next;
};
/* The pool, NULL: the device's current one. NULL where allocations from it are not ours to serve. */
struct pool *arena_pool(CUdevice device, CUmemoryPool handle);
void arena_pool_made(CUmemoryPool handle, const CUmemPoolProps *properties);
void arena_pool_gone(CUmemoryPool handle);
void arena_pool_open(CUmemoryPool handle, CUdevice user, bool open);
bool arena_pool_is_closed(CUmemoryPool handle, CUdevice user);
void arena_pool_took(struct pool *p, uint64_t size, uint64_t room);
void arena_pool_gave(struct pool *p, uint64_t size, uint64_t room);
/* What ours adds to an attribute. */
uint64_t arena_pool_usage(CUmemoryPool handle, CUmemPool_attribute attribute);
/* The high mark is what is in use now. */
void arena_pool_lower(CUmemoryPool handle, CUmemPool_attribute attribute);
void arena_pool_forget(void); /* in a fork's child */

#endif
