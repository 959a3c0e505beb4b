/*
 * Wrappers of cuMemAlloc, cuMemAllocPitch and cuMemFree. Deterministic runs use the arena.
 */
#include "arena/arena.h"
#include "hooks/memory.h"

/* *r is the result for the program. Without a kind, the driver must allocate. */
static struct served from_arena(struct op *op, size_t n, CUdeviceptr *p, CUresult *r)
{
	enum arena_result result;
	struct arena_place at;

	*r = CUDA_SUCCESS;
	if (!op->on || !options.deterministic || !p || !n)
		return NOT_SERVED;
	do {
		result = arena_allocate(op->context, n, &at, r);
	} while (result == ARENA_SHORT && memory_given_back(op, CUDA_ERROR_OUT_OF_MEMORY));
	if (result == ARENA_REFUSED)
		return (struct served){.kind = TT_REGION_ARENA, .region = TT_NO_ID};
	return arena_served(result, at, p);
}

EXPORT CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr *p, size_t n)
{
	CUresult r;

	HOOK(op, cuMemAlloc_v2, op_begin(&op));
	struct served settled = from_arena(&op, n, p, &r);
	if (!settled.kind)
		do {
			r = real.cuMemAlloc_v2(p, n);
		} while (memory_given_back(&op, r) || memory_fill(&op, r, r == CUDA_SUCCESS ? *p : 0, n));
	memory_served(&op, r, settled, TT_REGION_DEVICE, r == CUDA_SUCCESS ? *p : 0, n);
	return r;
}

static struct served pitched_from_arena(struct op *op, CUdeviceptr *p, size_t *pitch, size_t w, size_t h, unsigned e,
					CUresult *r)
{
	struct served served = NOT_SERVED;
	size_t n;

	if (!op->on || !options.deterministic || !pitch)
		return served;
	uint64_t row = arena_pitch(op->context, w, e);
	if (!row || __builtin_mul_overflow(row, h, &n))
		return served;
	served = from_arena(op, n, p, r);
	if (served.kind && *r == CUDA_SUCCESS)
		*pitch = row;
	return served;
}

EXPORT CUresult CUDAAPI cuMemAllocPitch_v2(CUdeviceptr *p, size_t *pitch, size_t w, size_t h, unsigned e)
{
	CUresult r;

	HOOK(op, cuMemAllocPitch_v2, op_begin(&op));
	struct served settled = pitched_from_arena(&op, p, pitch, w, h, e, &r);
	if (!settled.kind)
		do {
			r = real.cuMemAllocPitch_v2(p, pitch, w, h, e);
		} while (memory_given_back(&op, r) ||
			 memory_fill(&op, r, r == CUDA_SUCCESS ? *p : 0, r == CUDA_SUCCESS ? *pitch * h : 0));
	memory_served(&op, r, settled, TT_REGION_DEVICE, r == CUDA_SUCCESS ? *p : 0, r == CUDA_SUCCESS ? *pitch * h : 0);
	return r;
}

static CUresult free_in_arena(struct op *op, struct context *c, CUdeviceptr p, struct region **ended)
{
	struct block *b;
	CUresult r = arena_free_begin(p, &b);

	if (r != CUDA_SUCCESS)
		return r;
	*ended = arena_region_goes_on(b) ? NULL : memory_dies(op, p);
	return arena_free_end(c, b);
}

EXPORT CUresult CUDAAPI cuMemFree_v2(CUdeviceptr p)
{
	struct region *ended = NULL;
	struct context *c;
	CUresult r;

	HOOK(op, cuMemFree_v2, op_begin_at(&op, p));
	if (arena_holds(p) && (c = context_current(thread_current()))) {
		r = free_in_arena(&op, c, p, &ended);
	} else {
		ended = memory_dies(&op, p);
		r = real.cuMemFree_v2(p);
	}
	memory_died(&op, r, p, ended);
	return r;
}
