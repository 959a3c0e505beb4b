/*
 * Regions: the interval map from device address to allocation.
 *
 * Invariant: live regions in the map do not overlap. An id is never reused. A region stays in
 * memory while anyone holds a reference (the map, or an epoch that is not drained), so a free never
 * invalidates what a capture still reads about it.
 */
#ifndef TT_TRACK_REGIONS_H
#define TT_TRACK_REGIONS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "format.h"
#include "track/labels.h"
#include "track/streams.h"

struct region {
	/* Marks of the launch path, which may come when the region is another by now. */
	_Atomic bool touched;
	_Atomic uint32_t captured_by; /* the last capture that reads it, as context.captures counts them */
	uint32_t id;
	uint32_t kind; /* enum tt_region_kind */
	uint64_t base, size;
	struct context *context;
	bool captured;     /* contents are part of epochs */
	bool readable;     /* false: mapped, but without access for its device as yet */
	bool fresh;        /* no digests on the device so far: the next epoch takes all of it */
	_Atomic bool alive;
	_Atomic uint32_t references;
	uint64_t slot;     /* first of its block digests in the context's digest store, if placed */
	bool placed;
	uint64_t *mirror;  /* its block digests as of the last drained epoch: the drain's alone */
	struct labels *labels; /* names of parts of it: guarded by the map's lock */
	struct region *next; /* of those that one call ended, or that are spare */
	uint32_t module;
	uint64_t gathered; /* the last gathering that found it */
	uint32_t label;    /* string: its last name, else TT_NO_ID */
	uint32_t judged;   /* by region_is_called, for this choice, 0: not so far; guarded by the map's lock */
	bool called;       /* what was found */
};

static inline uint64_t region_blocks(const struct region *r)
{
	return (r->size + TT_BLOCK_SIZE - 1) / TT_BLOCK_SIZE;
}

/* What a birth or death record needs besides the region itself. */
struct region_origin {
	uint64_t stream, seq, time_ns;
	uint32_t call, label, flags;
};

/*
 * Adds a region and writes its birth. Regions that the map still has there died without our
 * seeing it, and are ended first. Its id; TT_NO_ID where memory or the store fails.
 */
uint32_t region_born(struct context *c, uint32_t kind, uint64_t base, uint64_t size, uint32_t module,
		     const struct region_origin *origin);
/* Ends the region that starts at base; false where there is none. */
bool region_died(uint64_t base, const struct region_origin *origin);
/* Ends the region that region_find gave. False: it has ended, and its place may be another's by now. */
bool region_ended(struct region *r, const struct region_origin *origin);
void regions_died_of_context(struct context *c, const struct region_origin *origin);
/* Returns their contexts, as context_bit has them. */
uint64_t regions_died_of_module(uint32_t module, const struct region_origin *origin);

/* Names the region that holds address, by origin->label; false where there is none. */
bool region_label(uint64_t address, const struct region_origin *origin);
/*
 * Names `size` bytes from an address on, of a type, both texts that may be NULL, in as many regions
 * as they lie in; false where that is none. From the next epoch on; what overlaps has no name there
 * any more.
 */
bool regions_label(uint64_t address, uint64_t size, const char *name, const char *type, uint64_t seq);
/*
 * Whether this is so of its name, or of that of a part of it. The answer is kept for a choice, a
 * number from 1, until a name is given.
 */
bool region_is_called(struct region *r, bool (*is)(const char *name, void *to), void *to, uint32_t choice);
/* The region that holds address, with a reference; NULL where there is none. */
struct region *region_find(uint64_t address);
struct context *region_context(uint64_t address);
/* Every live region that overlaps [base, base+size) gets readable = value. */
void regions_set_readable(uint64_t base, uint64_t size, bool value);
/* Marks what overlaps [base, base+size) as touched. Takes no lock. */
void regions_touch(uint64_t base, uint64_t size);
void regions_touch_all(struct context *c);
/* For each 8-byte word of a launch's parameters. Takes no lock. */
void regions_touch_pointers(const void *bytes, size_t size);
/* Whether any of these words points to a region that a capture after number `seen` reads: where it begins, or 0.
 * Takes no lock. */
uint64_t regions_point_to_captured(const void *bytes, size_t size, uint32_t seen);

/*
 * Regions that are named, each once: begin takes the map's lock, end gives it back. They may be gone
 * by the time they are used, which is harmless; version says whether anything came or went since.
 */
struct region_gathering {
	struct region **list;
	size_t count, room;
	uint64_t version, number;
	bool failed; /* no memory */
};
void regions_gather_begin(struct region_gathering *g);
void regions_gather(struct region_gathering *g, uint64_t base, uint64_t size);
void regions_gather_pointers(struct region_gathering *g, const void *bytes, size_t size);
/* And those that adjoin them. */
void regions_gather_neighbours(struct region_gathering *g);
void regions_gather_end(struct region_gathering *g);
/* Neither births nor deaths since. Takes no lock. */
bool regions_gathered_still(const struct region_gathering *g);
bool regions_unchanged_since(uint64_t version);

/* The context's digest store is gone: every region of it starts afresh. */
void regions_unplace(struct context *c);
void region_hold(struct region *r);
void region_release(struct region *r);

/*
 * Referenced pointers to the live captured, readable regions of a context, by id; free() the
 * array. With it the next epoch's number becomes `next`: what is born from now on is not in
 * this one. managed: whether any of them can be written by the host at any time; version: of
 * the map, for regions_unchanged.
 */
struct region **regions_live(struct context *c, uint32_t next, uint64_t *version, size_t *count, bool *managed);
void regions_sort(struct region **list, size_t count); /* by id */
/* True: nothing was born, died or changed its access since; the next epoch's number is `next` now. */
bool regions_unchanged(uint64_t version, uint32_t next);

/* Changes with every birth, death and access change. Takes no lock. */
uint64_t regions_version_now(void);

/* There is or was memory that the host can write at any time. */
extern _Atomic bool regions_managed;

void regions_forget_all(void); /* in a fork's child */

#endif
