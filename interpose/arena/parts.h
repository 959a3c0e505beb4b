/*
 * Shared by the files of the arena: its ranges of addresses, and its resources in a context.
 *
 * Invariant: the arena's lock guards everything else here. It is held while a block is placed or released, but not
 * while the driver maps, fills or waits. Other threads do not use unfinished blocks (BLOCK_NEW) and mappings that
 * are not ready.
 */
#ifndef TT_ARENA_PARTS_H
#define TT_ARENA_PARTS_H

#include <pthread.h>

#include "inspect/contexts.h"
#include "options/options.h"
#include "session/session.h"
#include "arena/arena.h"
#include "arena/free_list.h"
#include "fill_pattern.h"

/* Why a device has access to the memory of another: peer access of contexts, of pools, or a copy. */
enum opener { BY_CONTEXT, BY_POOL, BY_COPY, OPENERS };

struct range {
	enum { UNTRIED, RESERVED, REFUSED } state;
	struct free_list free_list;
	CUmemAllocationProp properties;
	uint64_t base, margin; /* start of the range, and bytes mapped there before the blocks */
	/*
	 * Idle memory that stays mapped after a wait. Zones hold freed memory back until then, so that a program takes
	 * other memory in each step, which would be mapped and unmapped each time.
	 */
	uint64_t kept;
	uint64_t users; /* devices whose kernels have access, a bit each */
	unsigned opened[ARENA_DEVICES][OPENERS]; /* how often each reason opened it to a device */
};

extern struct arena {
	pthread_mutex_t lock;
	struct range ranges[ARENA_DEVICES];
	struct arena_resources *resources;
	uint64_t ids; /* given so far */
	_Atomic uint64_t held; /* how many blocks count as held back so far */
} arena;

static inline struct range *arena_range_of(uint64_t address)
{
	return &arena.ranges[(address - ARENA_BASE) / ARENA_STRIDE];
}

/* Whether a stream capture may forbid this thread to allocate and to free: ask the driver. */
bool arena_capture_matters(void);
/* Waits for the work of the context; returns its error. */
CUresult arena_wait_for(const struct context *c);

/* ---- map.c ---- */

/* The device's range, reserved at the first call. Caller holds the lock. NULL: the driver serves this device. */
struct range *arena_range_for(CUdevice device);
CUresult arena_map(const struct range *range, const struct mapping *m, uint64_t users);
/*
 * Unmaps idle mappings: all, or those over what each range keeps. True: there was one. May wait for work: not while
 * other contexts wait for the host.
 */
bool arena_retire(const struct context *c, bool all);
/* Unmaps the margins, if memory is short. */
bool arena_give_margins(const struct context *c);
/* A reset of the device may end the reservation too: without mappings, it is reserved again at its next use. */
void arena_reserve_anew(CUdevice device);

/*
 * Marks a block freed; submitted work may still use it. Caller holds the lock. s NULL: work of the whole context.
 */
uint64_t arena_block_freed(struct block *b, struct context *c, struct stream *s);

/* ---- zones.c ---- */

/* What a new block must be filled with: its memory, and its zones unless it has them. Returns how many ranges. */
unsigned zones_ranges(const struct block *b, struct tt_fill_range ranges[3]);
/* Whether epochs may capture zones: these must end before their block is free. */
bool zones_concern(void);
/* Takes such blocks. Their work is complete, and they are in no list. Holds them back, or ends their zones. */
void zones_take(struct context *c, struct blocks *freed);
/* Releases all held-back blocks, or those over the limit. True: some have to wait until running captures have ended. */
bool zones_let_go(bool all);

/* ---- resources.c ---- */

/* The recorder's resources in a context: a fill must not wait for a stream of the program, nor delay one. */
struct arena_resources {
	struct context *context;
	CUstream stream;
	CUfunction fill; /* for patterns; NULL if the driver refuses it; its module lives as long as the context */
	_Atomic bool timed_out; /* the last fill did not end in time */
	uint64_t pitch;  /* the driver's pitch for a row of one byte */
	CUdeviceptr row; /* that row; freed after the next wait, when a free does not wait */
	struct arena_resources *next;
};

/* In the current context, which is c. NULL: the driver gives no stream. */
struct arena_resources *arena_resources_of(struct context *c);
/* Call after a wait for the context. */
void arena_drop_row(const struct context *c);
/* The context was destroyed. Caller holds the lock. */
void arena_resources_gone(const struct context *c);

/* ---- fill.c ---- */

/* h: of the current context. */
void arena_load_fill(struct arena_resources *h);
/* Zeros, or what --fill asks for. */
struct tt_fill_range fill_range(CUdeviceptr p, uint64_t size);
/* Submits at most TT_FILL_RANGES. h may be NULL for one that is constant. */
CUresult arena_submit(const struct arena_resources *h, CUstream stream, const struct tt_fill_range *ranges, unsigned count);
/* The same, in a context that need not be current. */
CUresult arena_fill_in_stream(struct context *c, CUstream stream, const struct tt_fill_range *ranges, unsigned count);
/* Submits and waits. CUDA_ERROR_NOT_READY: not complete within the recorder's time limit. */
CUresult arena_fill(struct arena_resources *h, const struct tt_fill_range *ranges, unsigned count);
/* Waits for all work in the stream of h, within the same limit. */
CUresult arena_await(struct arena_resources *h);

#endif
