/*
 * --fill for memory of the driver; the arena fills its own.
 */
#include "arena/fill.h"
#include "hooks/memory.h"

static bool fills(const struct op *op, CUresult r, uint64_t size)
{
	return fill_asked() && op->on && r == CUDA_SUCCESS && size;
}

static void not_filled(enum fill_result result)
{
	if (result == FILL_NONE)
		session_warn("an allocation could not be filled: it holds what the driver left there");
}

/* FILL_LATE: the memory is never freed, because the fill will still write it. */
bool memory_fill(const struct op *op, CUresult r, uint64_t base, uint64_t size)
{
	if (!fills(op, r, size) || !base)
		return false;
	enum fill_result result = fill_now(op->context, base, size);
	not_filled(result);
	return result == FILL_LATE;
}

void memory_fill_async(const struct op *op, CUresult r, uint64_t base, uint64_t size)
{
	if (fills(op, r, size) && base && !op->capturing &&
	    fill_in_stream(op->context, op->stream->handle, base, size) != CUDA_SUCCESS)
		not_filled(FILL_NONE);
}

/* A context of the device; the current one if possible. */
static struct context *context_on(const struct op *op, CUdevice device)
{
	struct context *c = op->context;

	if (c->device == device)
		return c;
	for (c = context_first(); c; c = atomic_load(&c->next))
		if (c->device == device && atomic_load(&c->alive))
			return c;
	return NULL;
}

/* Fills before any mapping: a second mapping must have what the program wrote through the first. */
bool memory_fill_created(const struct op *op, CUresult r, CUmemGenericAllocationHandle h, uint64_t size,
			 const CUmemAllocationProp *prop)
{
	if (!fills(op, r, size) || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return false;
	struct context *c = context_on(op, prop->location.id);
	enum fill_result result = c ? fill_unmapped(c, h, size) : FILL_NONE;
	not_filled(result);
	return result == FILL_LATE;
}

bool memory_managed_fills(const struct op *op, unsigned flags)
{
	int concurrent = 0;

	return fill_asked() && op->on &&
	       (flags == CU_MEM_ATTACH_GLOBAL ||
		(real.cuDeviceGetAttribute(&concurrent, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, op->context->device) ==
			 CUDA_SUCCESS &&
		 concurrent));
}
