/*
 * What the files of the arena share: its ranges of addresses, and what it holds in a context.
 *
 * Invariant: the arena's lock guards the rest of it. It is held while a place is chosen
 * or given up, not while the driver maps, zeroes or waits: what is on its way in (BLOCK_NEW, a
 * mapping that is not ready) is in nobody else's way.
 */
#ifndef TT_ARENA_PARTS_H
#define TT_ARENA_PARTS_H

#include <pthread.h>

#include "inspect/contexts.h"
#include "options/options.h"
#include "session/session.h"
#include "arena/arena.h"
#include "arena/free_list.h"

/* Who lets a device reach the memory of another: the program, for contexts or pools, or a copy. */
enum opener { BY_CONTEXT, BY_POOL, BY_COPY, OPENERS };

struct range {
	enum { UNTRIED, RESERVED, REFUSED } state;
	struct free_list free_list;
	CUmemAllocationProp properties;
	uint64_t base, margin; /* where it begins, and bytes of memory mapped there before the blocks */
	uint64_t users; /* devices whose kernels may reach it, a bit each */
	unsigned opened[ARENA_DEVICES][OPENERS]; /* so often each opened it to a device */
};

extern struct arena {
	pthread_mutex_t lock;
	struct range ranges[ARENA_DEVICES];
	struct holding *holdings;
	uint64_t ids; /* given so far */
} arena;

static inline struct range *arena_range_of(uint64_t address)
{
	return &arena.ranges[(address - ARENA_BASE) / ARENA_STRIDE];
}

/* Whether a stream capture may forbid this thread to allocate and to free: the driver has to be asked. */
bool arena_capture_matters(void);
/* The work of the context is complete; its error otherwise. */
CUresult arena_wait_for(const struct context *c);

/* ---- map.c ---- */

/* The device's range, which is reserved at the first question. Caller holds the lock. NULL: the
 * device's memory is the driver's affair. */
struct range *arena_range_for(CUdevice device);
CUresult arena_map(const struct range *range, const struct mapping *m, uint64_t users);
/* Unmaps what lies idle; true: there was something. Waiting may be part of it: not where work waits for the host. */
bool arena_retire(const struct context *c);
/* The same of the margins, where memory is short. */
bool arena_give_margins(const struct context *c);
/* A reset of the device may end the reservation as well: without mappings it is made anew. */
void arena_reserve_anew(CUdevice device);

/* From now on work that was submitted may still use it. Caller holds the lock. s NULL: all work of the context. */
uint64_t arena_block_freed(struct block *b, struct context *c, struct stream *s);

/* ---- zones.c ---- */

/* Fills the zones of a block, if it has some, in a stream of the context. */
CUresult zones_prepare(struct context *c, const struct block *b, CUstream stream);
/* Bytes from a block's base on that are no zone. */
static inline uint64_t block_filled(const struct block *b)
{
	return b->zone ? b->size : b->room;
}
/* Whether a block has zones that epochs may capture: it is not free before they have ended. */
bool zones_concern(const struct block *b);
/* Takes such blocks, whose work is done and which are in no list: holds them back, or ends their zones. */
void zones_take(struct context *c, struct blocks *freed);
/* Lets go of what is held back, all of it or what is too much: it is free after a wait. True: there was something. */
bool zones_let_go(bool all);

/* ---- holding.c ---- */

/* What we need in a context: filling must not wait for, or hold up, a stream of the program. */
struct holding {
	struct context *context;
	CUstream stream;
	CUfunction fill; /* for patterns, where the driver has it; its module goes with the context */
	_Atomic bool held_up; /* filling did not come to its end in time */
	uint64_t pitch;  /* the driver's of a row of one byte */
	CUdeviceptr row; /* that row, until a wait makes its free one without a wait */
	struct holding *next;
};

/* In the current context, which is c. NULL: the driver has no stream for us. */
struct holding *arena_holding(struct context *c);
/* After a wait for the context. */
void arena_drop_row(const struct context *c);
/* With the context itself. Caller holds the lock. */
void arena_holding_gone(const struct context *c);

/* ---- fill.c ---- */

/* With a holding, whose context is current. */
void arena_load_fill(struct holding *h);
/*
 * Zeros, or what --fill says. CUDA_ERROR_NOT_READY: it did not come to its end within the time the recorder
 * waits for anything.
 */
CUresult arena_fill(struct holding *h, CUdeviceptr p, uint64_t size);
/* The same for all that was submitted to its stream. */
CUresult arena_await(struct holding *h);
/* Submits a pattern. */
CUresult arena_pattern(const struct holding *h, CUstream stream, CUdeviceptr p, uint64_t size, uint64_t seed);

#endif
