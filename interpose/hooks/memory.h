/*
 * Shared by the wrappers of calls that allocate and free.
 */
#ifndef TT_HOOKS_MEMORY_H
#define TT_HOOKS_MEMORY_H

#include "arena/arena.h"
#include "hooks/op.h"

/* What the arena served. */
struct served {
	uint32_t kind;   /* of its region; 0: nothing */
	bool has_zones;  /* they are regions already */
	uint32_t region; /* that goes on there; else TT_NO_ID */
};

#define NOT_SERVED ((struct served){.region = TT_NO_ID})

/* *p: the address, if it did. */
static inline struct served arena_served(enum arena_result result, struct arena_place at, CUdeviceptr *p)
{
	if (result != ARENA_SERVED && result != ARENA_RENEWED)
		return NOT_SERVED;
	*p = at.base;
	return (struct served){TT_REGION_ARENA, result == ARENA_RENEWED, at.region};
}

/* After an allocation: its region, if it succeeded and was not captured, and its event; ends the op. */
void memory_born(struct op *op, CUresult r, uint32_t kind, uint64_t base, uint64_t size);
/* The same for what the arena served; else its kind is `kind`. */
void memory_served(struct op *op, CUresult r, struct served in_arena, uint32_t kind, uint64_t base, uint64_t size);
/*
 * Before a free, in any context: ends the region that starts at base, because another thread may get the address
 * afterwards. Pass the result to memory_died.
 */
struct region *memory_dies(struct op *op, uint64_t base);
/* After the free: its event. If the driver refused it, the memory becomes a region again. */
void memory_died(struct op *op, CUresult r, uint64_t base, struct region *ended);
/* fill.c: after a successful allocation, with --fill. True: the program must get other memory. */
bool memory_fill(const struct op *op, CUresult r, uint64_t base, uint64_t size);
/* The same in the op's stream. */
void memory_fill_async(const struct op *op, CUresult r, uint64_t base, uint64_t size);
bool memory_fill_created(const struct op *op, CUresult r, CUmemGenericAllocationHandle h, uint64_t size,
			 const CUmemAllocationProp *prop);
/* Whether the device may write managed memory that was allocated with these flags. */
bool memory_managed_fills(const struct op *op, unsigned flags);
/* Bytes from p to the end of its allocation. */
uint64_t memory_range_size(CUdeviceptr p);
/* The program is out of device memory. True: the recorder freed some of its own, so the call is tried again. */
bool memory_give_back(struct op *op);
bool memory_given_back(struct op *op, CUresult r);

#endif
