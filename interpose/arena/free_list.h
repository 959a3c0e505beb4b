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

#define FREE_LIST_UNIT 512            /* alignment of every allocation, as the driver's are */
#define FREE_LIST_LARGE (1024 * 1024) /* a larger one has a mapping of its own */

struct context;
struct stream;
struct pool;

struct mapping {
	uint64_t base, size;
	bool ready;          /* mapped, and not on its way out */
	bool slab;           /* else it has room for one block */
	uint32_t blocks;     /* that lie in it, in whatever state */
	uint32_t held;       /* of these, those that zones keep from being free */
	uint32_t free_units; /* of a slab */
	uint32_t full_units; /* from its begin on, at least */
	struct block *at[];  /* that which holds each unit of a slab, or the one */
};

enum block_state {
	BLOCK_NEW,   /* not the program's so far, or no longer */
	BLOCK_LIVE,
	BLOCK_FREED, /* by the program; work that was submitted before may still use it */
	BLOCK_HELD,  /* a zone in place of memory that was freed */
};

struct block {
	uint64_t base, size;
	uint64_t room; /* all bytes that it takes, with the zones before and after it */
	uint64_t zone; /* of these, before base */
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
	bool was_held;             /* once is enough */
	TAILQ_ENTRY(block) freed;  /* in one of the lists of those that were */
};
TAILQ_HEAD(blocks, block);

/* All that a block takes: [start, end). */
static inline uint64_t block_start(const struct block *b)
{
	return b->base - b->zone;
}

static inline uint64_t block_end(const struct block *b)
{
	return block_start(b) + b->room;
}

struct free_list {
	uint64_t base, size, granule;
	uint64_t zone; /* bytes before and after each block */
	struct mapping **mappings; /* by address */
	size_t mapping_count, mapping_capacity;
	struct blocks freed, held; /* in these states, as they came to them */
	uint64_t held_bytes;
	size_t held_count;
};

void free_list_begin(struct free_list *p, uint64_t base, uint64_t size, uint64_t granule, uint64_t zone);

/*
 * A new block of size bytes. *fresh is the mapping that must be mapped for it and then be set
 * ready, or NULL. NULL: the range has no such gap, or the host no memory.
 */
struct block *free_list_take(struct free_list *p, uint64_t size, struct mapping **fresh);
/* The same in the place of a block that was freed in this very stream. */
struct block *free_list_take_freed(struct free_list *p, uint64_t size, const struct stream *s, uint64_t stream_id);
/* The block that holds address, whatever its state. */
struct block *free_list_find(const struct free_list *p, uint64_t address);
/* The first block that holds address or lies behind it. */
struct block *free_list_next(const struct free_list *p, uint64_t address);
void free_list_set_state(struct free_list *p, struct block *b, enum block_state state);
void free_list_give(struct free_list *p, struct block *b);

/* An idle mapping, no longer ready: it is to be unmapped and dropped. NULL: none. */
struct mapping *free_list_retire(struct free_list *p);
void free_list_drop(struct free_list *p, struct mapping *m);
uint64_t free_list_idle(const struct free_list *p); /* bytes of all of those, and what zones take */
/* One without mappings is as new, and has no range. */
void free_list_end(struct free_list *p);

#endif
