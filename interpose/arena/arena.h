/*
 * Deterministic runs: device memory of the program at addresses that are the same in every run, with defined
 * contents.
 *
 * Invariant: an address depends only on the order and the sizes of the program's calls. New memory is zero, or
 * filled as --fill asks, when the program gets it. The driver serves what the arena cannot. The arena keeps what it
 * served until the program frees it, even if recording ends earlier.
 */
#ifndef TT_ARENA_ARENA_H
#define TT_ARENA_ARENA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "track/streams.h"

#define ARENA_BASE 0x200000000000ull /* of device 0; the ranges of other devices follow */
#define ARENA_STRIDE (1ull << 40)
#define ARENA_DEVICES 64
#define ARENA_GRANULE ((uint64_t)2 << 20) /* unit of the free memory that the program is told */

/* No allocation has this address: the driver returns its own error for it. */
#define ARENA_NOWHERE ((CUdeviceptr)1)

/* Read without a lock. */
extern struct arena_state {
	_Atomic bool used;
	_Atomic uint64_t serial;                  /* number of the newest free that waits for work */
	_Atomic uint64_t reserved[ARENA_DEVICES]; /* reserved bytes of each device's range */
} arena_state;

/* Whether an address lies in a range of the arena, allocated or not. */
static inline bool arena_holds(uint64_t address)
{
	uint64_t at = address - ARENA_BASE;

	return unlikely(atomic_load_explicit(&arena_state.used, memory_order_acquire)) && at < ARENA_DEVICES * ARENA_STRIDE &&
	       at % ARENA_STRIDE < atomic_load(&arena_state.reserved[at / ARENA_STRIDE]);
}

enum arena_result {
	ARENA_SERVED,
	ARENA_RENEWED, /* the same, in place of a freed block: its zones go on */
	ARENA_NOT,   /* the driver must serve it */
	ARENA_SHORT, /* the same, because device memory is short */
	ARENA_REFUSED,
};

struct arena_place {
	CUdeviceptr base;
	uint32_t region; /* that goes on there; else TT_NO_ID */
};

/* In the current context, which is c; the memory is filled on return. *refused: the reason. */
enum arena_result arena_allocate(struct context *c, uint64_t size, struct arena_place *out, CUresult *refused);
/* The driver's pitch for rows of that width; 0: ask the driver. */
uint64_t arena_pitch(struct context *c, uint64_t width, unsigned element);
/* Ordered by a stream that is not being captured. pool NULL: the device's current pool. */
enum arena_result arena_allocate_async(struct stream *s, CUmemoryPool pool, uint64_t size, struct arena_place *out);

struct thread;
/*
 * The device is full: releases memory that the program freed. c: current. True: some was released. epochs_end waits for
 * running epochs of a context, which may read it, where a stream capture forbids to wait for all work.
 */
bool arena_give_back(struct context *c, bool (*epochs_end)(struct thread *t, struct context *c));

/*
 * A free has two halves. After the first, the program no longer owns the memory. The second waits for submitted
 * work; until then no allocation gets the memory. Both may return the driver's error; the first then has no effect.
 * c: current.
 */
struct block;
CUresult arena_free_begin(CUdeviceptr p, struct block **b);
CUresult arena_free_end(struct context *c, struct block *b);
/* The free that free_real asks of the driver; not while the stream is captured. */
CUresult arena_free_async_begin(struct stream *s, CUdeviceptr p, CUresult (*free_real)(CUdeviceptr, CUstream), CUstream handle,
				struct block **b);
void arena_free_async_end(struct stream *s, struct block *b);

/* Call around a wait of the host for a whole context or a stream; NULL: the program has none. */
static inline uint64_t arena_mark(void)
{
	return atomic_load_explicit(&arena_state.serial, memory_order_relaxed);
}
void arena_context_waited_for(struct context *c, uint64_t mark);
void arena_stream_waited_for(struct stream *s, uint64_t mark);

/* The allocation that holds an address. */
struct arena_allocation {
	uint64_t base, size, id;
	uint64_t mapping, mapped; /* the mapping that holds it */
	CUcontext context;        /* NULL for stream-ordered memory */
	CUmemoryPool pool;        /* NULL unless stream-ordered */
	unsigned sync_memops;
};
bool arena_find(uint64_t address, struct arena_allocation *found);
/*
 * The new zones of an allocation, which is this region: from start to base, and from its end to end. False: none, or
 * they go on.
 */
bool arena_zones(CUdeviceptr base, uint32_t region, uint64_t *start, uint64_t *end);
/* Whether the region of a block that is being freed goes on. */
bool arena_region_goes_on(const struct block *b);
/* Whether unmapped addresses follow an allocation. */
bool arena_has_guard(CUdeviceptr base);
/* Whether other processes can share the memory at that address. */
bool arena_exportable(uint64_t address);
bool arena_set_sync_memops(CUdeviceptr base, unsigned value);
/* Free memory as the program would see it without the recorder; bytes: the driver's figure. */
uint64_t arena_available(CUdevice device, uint64_t bytes);

/* The context that owns the memory. NULL: the memory was freed, or the context was destroyed. */
CUcontext arena_owner(CUdeviceptr p);
/* Whether two addresses belong to different devices: copies between them must name both contexts. */
bool arena_apart(CUdeviceptr a, CUdeviceptr b);
static inline bool arena_far(CUdeviceptr a, CUdeviceptr b, CUcontext *of_a, CUcontext *of_b)
{
	return arena_holds(a) && arena_holds(b) && arena_apart(a, b) && (*of_a = arena_owner(a)) && (*of_b = arena_owner(b));
}
/* Gives c access to p for copies, as to the driver's memory. False: copies must name the context. */
bool arena_bring_near(const struct context *c, CUdeviceptr p);
static inline bool arena_reach(const struct context *c, CUdeviceptr p)
{
	return !arena_holds(p) || !c || arena_bring_near(c, p);
}
/* Memory of another device that the program has not opened to `user`: the driver refuses sets and queries. */
bool arena_is_closed(CUdevice user, CUdeviceptr p);
/* Gives kernels on `user` access to the memory of `device`, or takes it away. */
void arena_open(CUdevice device, CUdevice user, bool open);
void arena_open_pools(CUdevice device, CUdevice user, bool open);
void arena_context_gone(struct context *c, bool primary);
void arena_forget(void); /* in a forked child */

/* pool.c: the program's pools, and how much of the arena's memory counts as theirs. */
struct pool {
	CUmemoryPool handle; /* NULL: destroyed */
	CUdevice device;
	uint64_t used, used_high, reserved, reserved_high;
	uint64_t users; /* devices with access, a bit each */
	struct pool *next;
};
/* The pool; handle NULL: the device's current pool. NULL: the driver must serve allocations from it. */
struct pool *arena_pool(CUdevice device, CUmemoryPool handle);
void arena_pool_made(CUmemoryPool handle, const CUmemPoolProps *properties);
void arena_pool_gone(CUmemoryPool handle);
/* The program has chosen a device's current pool, or has reset the device. */
void arena_pool_chosen(void);
void arena_pool_reset(CUdevice device);
void arena_pool_open(CUmemoryPool handle, CUdevice user, bool open);
bool arena_pool_is_closed(CUmemoryPool handle, CUdevice user);
void arena_pool_took(struct pool *p, uint64_t size, uint64_t room);
void arena_pool_gave(struct pool *p, uint64_t size, uint64_t room);
/* The arena's share of a pool's attribute. */
uint64_t arena_pool_usage(CUmemoryPool handle, CUmemPool_attribute attribute);
/* Resets a high mark to the current use. */
void arena_pool_lower(CUmemoryPool handle, CUmemPool_attribute attribute);
void arena_pool_forget(void); /* in a forked child */

#endif
