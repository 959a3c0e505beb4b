/*
 * Where allocations lie in one range of addresses: large ones in a mapping of their own, small
 * ones side by side in slabs.
 *
 * Invariant: where something is placed depends on the calls made here and their order alone.
 * No driver is called: the owner of the range maps and unmaps what it is told to, and holds a
 * lock around each of these.
 */
#ifndef TT_ARENA_FREE_LIST_H
#define TT_ARENA_FREE_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#define PLACES_UNIT 512            /* alignment of every allocation, as the driver's are */
#define PLACES_LARGE (1024 * 1024) /* a larger one has a mapping of its own */

struct context;
struct stream;
struct pool;

struct mapping {
	uint64_t base, size;
	bool ready;          /* mapped, and not on its way out */
	bool slab;           /* else it has room for one block */
	uint32_t blocks;     /* that lie in it, in whatever state */
	uint32_t free_units; /* of a slab */
	uint32_t full_units; /* from its begin on, at least */
	struct block *at[];  /* that which holds each unit of a slab, or the one */
};

enum block_state {
	BLOCK_NEW,   /* not the program's so far, or no longer */
	BLOCK_LIVE,
	BLOCK_FREED, /* by the program; work that was submitted before may still use it */
};

struct block {
	uint64_t base, size;
	uint64_t room; /* bytes up to the next block's, at least size */
	struct mapping *mapping;
	enum block_state state;
	bool stream_ordered;
	unsigned sync_memops;      /* the pointer attribute, as the program set it */
	uint64_t id;
	struct context *context;   /* that allocated it */
	struct pool *pool;
	struct context *freed_in;  /* whose work is to be waited for */
	struct stream *freed_on;   /* or only this stream's, and its id: its struct may be another's by now */
	uint64_t freed_stream;
	uint64_t freed_serial;
	TAILQ_ENTRY(block) freed;
};

struct places {
	uint64_t base, size, granule;
	struct mapping **mappings; /* by address */
	size_t mapping_count, mapping_capacity;
	TAILQ_HEAD(, block) freed; /* blocks in that state, as they came to it */
};

void places_begin(struct places *p, uint64_t base, uint64_t size, uint64_t granule);

/*
 * A new block of size bytes. *fresh is the mapping that must be mapped for it and then be set
 * ready, or NULL. NULL: the range has no such gap, or the host no memory.
 */
struct block *places_take(struct places *p, uint64_t size, struct mapping **fresh);
/* The same in the place of a block that was freed in this very stream. */
struct block *places_take_freed(struct places *p, uint64_t size, const struct stream *s, uint64_t stream_id);
/* The block that holds address, whatever its state. */
struct block *places_find(const struct places *p, uint64_t address);
/* The first block that holds address or lies behind it. */
struct block *places_next(const struct places *p, uint64_t address);
void places_set_state(struct places *p, struct block *b, enum block_state state);
void places_give(struct places *p, struct block *b);

/* An idle mapping, no longer ready: it is to be unmapped and dropped. NULL: none. */
struct mapping *places_retire(struct places *p);
void places_drop(struct places *p, struct mapping *m);
uint64_t places_idle(const struct places *p); /* bytes of all of those */
/* One without mappings is as new, and has no range. */
void places_end(struct places *p);

#endif
