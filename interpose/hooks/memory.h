/*
 * What the wrappers of calls that allocate and free have in common.
 */
#ifndef TT_HOOKS_MEMORY_H
#define TT_HOOKS_MEMORY_H

#include "hooks/op.h"

/* After an allocation: its region, if it succeeded and was not captured, and its event; the end of the op. */
void memory_born(struct op *op, CUresult r, uint32_t kind, uint64_t base, uint64_t size);
/*
 * Before a free, whichever context is current, as the address may be another thread's after it: the
 * region that starts at base ends. What it returns is for memory_died.
 */
struct region *memory_dies(struct op *op, uint64_t base);
/* After it: its event. What the driver refused to free lives on. */
void memory_died(struct op *op, CUresult r, uint64_t base, struct region *ended);
/* fill.c: after an allocation that succeeded, with --fill. True: the program is to get other memory. */
bool memory_fill(const struct op *op, CUresult r, uint64_t base, uint64_t size);
/* The same in the order of the op's stream. */
void memory_fill_async(const struct op *op, CUresult r, uint64_t base, uint64_t size);
bool memory_fill_created(const struct op *op, CUresult r, CUmemGenericAllocationHandle h, uint64_t size,
			 const CUmemAllocationProp *prop);
/* Whether the device may write to managed memory that was allocated with these flags. */
bool memory_managed_fills(const struct op *op, unsigned flags);
/* Bytes from p to the end of its allocation. */
uint64_t memory_range_size(CUdeviceptr p);
/* The program is out of device memory. Returns whether the recorder freed some of its own, so that the program tries again. */
bool memory_given_back(struct op *op, CUresult r);

#endif
