/*
 * Regions: the interval map from device address to allocation.
 *
 * Invariant: live regions in the map do not overlap. An id is never reused. A region stays in memory while there is
 * a reference (of the map, or of an epoch that is not drained), so a free never invalidates what a capture still
 * reads about it.
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
	/* Marks of the launch path; they may arrive after the memory of the struct was reused. */
	_Atomic bool touched;
	_Atomic uint32_t captured_by; /* the last capture that reads it, as in context.captures */
	uint32_t id;
	uint32_t kind; /* enum tt_region_kind */
	uint64_t base, size;
	struct context *context;
	bool captured;     /* its contents are part of epochs */
	bool readable;     /* false: mapped, but its device has no access yet */
	bool fresh;        /* no digests on the device yet: the next epoch reads all of it */
	_Atomic bool alive;
	_Atomic uint32_t references;
	uint64_t slot;     /* its first block digest in the context's digest store, if placed */
	bool placed;
	uint64_t *mirror;  /* its block digests as of the last drained epoch; used only by the drain */
	struct labels *labels; /* names of its parts; guarded by the map's lock */
	struct region *next; /* in a list of regions that one call ended, or that are spare */
	uint32_t module;
	uint64_t gathered; /* the last gathering that found it */
	uint32_t label;    /* string: its last name, else TT_NO_ID */
	uint32_t judged;   /* choice for which region_is_called has the result; 0: none; guarded by the map's lock */
	bool called;       /* that result */
};

static inline uint64_t region_blocks(const struct region *r)
{
	return (r->size + TT_BLOCK_SIZE - 1) / TT_BLOCK_SIZE;
}

/* Whether the host can write it at any time. */
static inline bool region_host_writes(const struct region *r)
{
	return r->kind == TT_REGION_MANAGED || r->kind == TT_REGION_HOST || r->kind == TT_REGION_HOST_REGISTERED;
}

/* Members of a birth or death record that do not come from the region. */
struct region_origin {
	uint64_t stream, seq, time_ns;
	uint32_t call, label, flags;
};

/*
 * Adds a region and writes its birth. If the map still has regions there, their death was not seen: ends them
 * first. Returns its id; TT_NO_ID: no memory, or the store fails.
 */
uint32_t region_born(struct context *c, uint32_t kind, uint64_t base, uint64_t size, uint32_t module,
		     const struct region_origin *origin);
/* Ends the region that starts at base; false: there is none. */
bool region_died(uint64_t base, const struct region_origin *origin);
/* Ends a region from region_find. False: it has already ended, and its struct may be reused. */
bool region_ended(struct region *r, const struct region_origin *origin);
void regions_died_of_context(struct context *c, const struct region_origin *origin);
/* Returns context_bit of their contexts. */
uint64_t regions_died_of_module(uint32_t module, const struct region_origin *origin);

/* Sets the name of the region that holds address to origin->label; false: no such region. */
bool region_label(uint64_t address, const struct region_origin *origin);
/*
 * Sets name and type (texts, or NULL) of `size` bytes from an address on, in all regions that have some of them,
 * from the next epoch on. Replaces names that overlap. False: no such region.
 */
bool regions_label(uint64_t address, uint64_t size, const char *name, const char *type, uint64_t seq);
/*
 * Whether `is` holds for its name, or for that of one of its parts. The result is kept for a choice, a number from
 * 1, until a name changes.
 */
bool region_is_called(struct region *r, bool (*is)(const char *name, void *to), void *to, uint32_t choice);
/* The region that holds address, with a reference; NULL: none. */
struct region *region_find(uint64_t address);
struct context *region_context(uint64_t address);
/* Sets readable of every live region that overlaps [base, base+size). */
void regions_set_readable(uint64_t base, uint64_t size, bool value);
/* Marks regions that overlap [base, base+size) as touched. Takes no lock. */
void regions_touch(uint64_t base, uint64_t size);
void regions_touch_all(struct context *c);
/* The same for each 8-byte word of a launch's parameters. Takes no lock. */
void regions_touch_pointers(const void *bytes, size_t size);
/*
 * Start of a region that one of these words points to and that a capture after number `awaited` reads; 0: none. Takes
 * no lock.
 */
uint64_t regions_point_to_captured(const void *bytes, size_t size, uint32_t awaited);

/*
 * Collects named regions, each once: begin takes the map's lock, end releases it. They may have ended when they are
 * used, which is harmless; version tells whether any region was born or died since.
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
/* Adds the regions that adjoin those. */
void regions_gather_neighbours(struct region_gathering *g);
void regions_gather_end(struct region_gathering *g);
/* Whether no region was born or died since. Takes no lock. */
bool regions_gathered_still(const struct region_gathering *g);
bool regions_unchanged_since(uint64_t version);

/* The context's digest store was destroyed: its regions have no digests. */
void regions_unplace(struct context *c);
void region_hold(struct region *r);
void region_release(struct region *r);

/*
 * The live captured, readable regions of a context, by id, with references; the caller frees the array. Sets the
 * number of the next epoch to `next`, because regions that are born from now on are not in this one. managed:
 * whether the host can write any of them at any time; version: of the map, for regions_unchanged.
 */
struct region **regions_live(struct context *c, uint32_t next, uint64_t *version, size_t *count, bool *managed);
void regions_sort(struct region **list, size_t count); /* by id */
/* True: no region was born, died or changed its access since; the next epoch's number is now `next`. */
bool regions_unchanged(uint64_t version, uint32_t next);

/* Changes at every birth, death and access change. Takes no lock. */
uint64_t regions_version_now(void);

/* Whether there is or was memory that the host can write at any time. */
extern _Atomic bool regions_managed;

void regions_forget_all(void); /* in a forked child */

#endif
