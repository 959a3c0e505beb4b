/*
 * Where allocations lie in one range of addresses: large ones in a mapping of their own, small ones side by side in
 * slabs.
 *
 * Invariant: a placement depends only on the calls made here and their order. This file calls no driver: the owner
 * of the range maps and unmaps what these functions return, and holds a lock around each call.
 */
#ifndef TT_ARENA_FREE_LIST_H
#define TT_ARENA_FREE_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "util/cache_line.h"

#define FREE_LIST_UNIT 512            /* alignment of each allocation, as in the driver */
#define FREE_LIST_LARGE (1024 * 1024) /* a larger allocation has its own mapping */

/*
 * With zones, freed memory is held back until so much newer memory was freed. HELD_BYTES and HELD_COUNT are the
 * limits of each range.
 */
#define HELD_BYTES ((uint64_t)256 << 20)
#define HELD_COUNT 1024
/* What that costs has units: one for a block, and one for each MiB of it that is filled. */
#define HELD_UNIT ((uint64_t)1 << 20)
#define HELD_ALWAYS 16384 /* units that a process may take in any case, */
#define HELD_CALLS 128    /* and one more for so many calls; */
#define HELD_BATCH 64     /* one wait takes at least so many then, because the host waits for the device once more */

struct context;
struct stream;
struct pool;

#define FREE_LIST_SIZES 64       /* lists of idle large mappings, by their size */
#define FREE_LIST_ALIKE_BITS 10  /* of the number of lists of freed blocks: a search passes all others in its list */

struct mapping {
	uint64_t base, size;
	bool ready;          /* mapped, and not about to be unmapped */
	bool slab;           /* else it has room for one block */
	uint32_t blocks;     /* blocks in it, in any state */
	uint32_t held;       /* of these, those that zones hold back */
	uint32_t free_units; /* free units of a slab */
	uint32_t full_units; /* lower bound of the full units at its start */
	TAILQ_ENTRY(mapping) peers; /* in the slabs, or in the list of its size while it is idle */
	struct block *at[];  /* the block at each unit of a slab, or the only block */
};

TAILQ_HEAD(mappings, mapping);

/* The end is here too: a search of it alone reads no mapping. */
struct mapping_place {
	uint64_t end;
	struct mapping *mapping;
};

enum block_state {
	BLOCK_NEW,   /* not yet the program's, or no longer */
	BLOCK_LIVE,
	BLOCK_FREED, /* freed by the program; submitted work may still use it */
	BLOCK_HELD,  /* freed memory that is held back as a zone */
	BLOCK_ENDED, /* its zones have ended, but captures that began before may read them */
	BLOCK_SPARE, /* freed memory whose zones go on: for an allocation of its size, which may use it at once */
};

/* One cache line for what a search reads, and two for what an allocation, a free and a wait need besides. */
struct block {
	AT_CACHE_LINE TAILQ_ENTRY(block) alike; /* in the freed and the spare ones of about its size */
	TAILQ_ENTRY(block) freed;  /* in the list of its state */
	uint64_t size;
	struct context *context;   /* that allocated it */
	enum block_state state;
	uint32_t region;           /* its id, if it goes on */
	bool has_region;           /* it goes on with the zones, from allocation to allocation */
	bool has_zones;            /* their pattern is in memory, and they are regions */
	bool hold;                 /* of a block that is being freed: it will be held back */
	bool stream_ordered;
	bool sync_memops;          /* the pointer attribute that the program set */
	uint64_t base;
	uint64_t room;   /* all bytes of the block, with its zones */
	uint64_t before; /* of these, the bytes before base */
	struct mapping *mapping;
	struct pool *pool;
	uint64_t id;
	uint64_t freed_bytes, freed_count; /* with it, in this range so far */
	struct context *freed_in;  /* whose work must be complete first */
	struct stream *freed_on;   /* or only this stream's work, and its id: the struct may be reused */
	uint64_t freed_stream;
	uint64_t freed_serial;
};
TAILQ_HEAD(blocks, block);

/* Whether the block is neither the program's nor free, and submitted work does not use it. */
static inline bool block_is_kept(enum block_state state)
{
	return state == BLOCK_HELD || state == BLOCK_ENDED || state == BLOCK_SPARE;
}

/* The addresses of a block with its zones: [start, end). */
static inline uint64_t block_start(const struct block *b)
{
	return b->base - b->before;
}

static inline uint64_t block_end(const struct block *b)
{
	return block_start(b) + b->room;
}

struct amount {
	uint64_t bytes, count;
};

struct free_list {
	uint64_t base, size, granule;
	uint64_t zone; /* bytes of a zone before and after each block */
	uint64_t guard; /* alignment of the end of a block with a guard; 0: no guards */
	uint64_t guard_left; /* bytes of mappings that small blocks with guards may still take */
	uint64_t next; /* with guards: no address from here on was ever used */
	struct mapping_place *mappings; /* sorted by address */
	size_t mapping_count, mapping_capacity;
	struct block *recent; /* the last one that was taken, or NULL */
	struct mappings slabs, idle[FREE_LIST_SIZES]; /* oldest first */
	uint64_t idle_bytes; /* of ready mappings without blocks */
	struct blocks freed, held, ended, spare; /* blocks in these states, oldest first */
	struct blocks alike[1 << FREE_LIST_ALIKE_BITS]; /* the spare ones, then the freed ones, oldest first */
	uint64_t freed_bytes, freed_count; /* in all */
	struct amount held_now, spare_now, live, live_most; /* of blocks in these states */
};

void free_list_begin(struct free_list *p, uint64_t base, uint64_t size, uint64_t granule, uint64_t zone);
/*
 * Turns guards on: a block ends where its mapping ends, and the granule after that stays free. Freed addresses are
 * used again only if no others are left. most: bytes of mappings that small blocks may take.
 */
void free_list_guard(struct free_list *p, uint64_t align, uint64_t most);
bool free_list_has_guard(const struct free_list *p, const struct block *b);

/*
 * A new block of size bytes. guarded: with a guard, if the list has guards. *fresh: the mapping that the caller must
 * map and then set ready, or NULL. Returns NULL if the range has no such gap or the host no memory.
 */
struct block *free_list_take(struct free_list *p, uint64_t size, bool guarded, struct mapping **fresh);
/*
 * The same, in place of a block that was freed in this stream. With zones, of one of this size and context that is
 * spare, or old enough. s NULL: only of a spare one.
 */
struct block *free_list_take_freed(struct free_list *p, uint64_t size, const struct context *c, const struct stream *s,
				   uint64_t stream_id);
/*
 * The oldest held-back block over the limits, or the oldest spare one if these are over the limits and what the
 * program ever had at once; all: any. The caller owns it then, and was_spare says which it was. NULL: there is none.
 */
struct block *free_list_take_kept(struct free_list *p, bool all, bool *was_spare);
/* The block that holds address, in any state. */
struct block *free_list_find(const struct free_list *p, uint64_t address);
/* The first block that holds address or lies after it. */
struct block *free_list_next(const struct free_list *p, uint64_t address);
void free_list_set_state(struct free_list *p, struct block *b, enum block_state state);
void free_list_give(struct free_list *p, struct block *b);

/* An idle mapping, set not ready, which the caller must unmap and drop. NULL: no more than `keep` bytes are idle. */
struct mapping *free_list_retire(struct free_list *p, uint64_t keep);
void free_list_drop(struct free_list *p, struct mapping *m);
uint64_t free_list_idle(const struct free_list *p); /* bytes of all idle mappings, and of zones */
/* The caller has dropped all mappings; the list has no range afterwards. */
void free_list_end(struct free_list *p);

#endif
