/*
 * cuMemAlloc, cuMemAllocPitch and cuMemFree: from the arena in deterministic runs.
 */
#include "../state/arena.h"
#include "memory.h"

static bool from_arena(struct op *op, size_t n, CUdeviceptr *p)
{
	if (!op->on || !options.deterministic || !p || !n)
		return false;
	enum arena_result result = arena_allocate(op->context, n, p);
	if (result == ARENA_SHORT && memory_given_back(op, op->call, CUDA_ERROR_OUT_OF_MEMORY))
		result = arena_allocate(op->context, n, p);
	return result == ARENA_SERVED;
}

static CUresult from_driver(struct op *op, uint32_t call, CUdeviceptr *p, size_t n)
{
	CUresult r = real.cuMemAlloc_v2(p, n);

	return memory_given_back(op, call, r) ? real.cuMemAlloc_v2(p, n) : r;
}

EXPORT CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr *p, size_t n)
{
	OP(op);

	if (!REAL(cuMemAlloc_v2))
		return CUDA_ERROR_NOT_SUPPORTED;
	op_begin(&op, CALL_cuMemAlloc_v2);
	bool ours = from_arena(&op, n, p);
	CUresult r = ours ? CUDA_SUCCESS : from_driver(&op, CALL_cuMemAlloc_v2, p, n);
	memory_born(&op, r, ours ? TT_REGION_ARENA : TT_REGION_DEVICE, r == CUDA_SUCCESS ? *p : 0, n);
	return r;
}

static bool pitched_from_arena(struct op *op, CUdeviceptr *p, size_t *pitch, size_t w, size_t h, unsigned e)
{
	size_t n;

	if (!op->on || !options.deterministic || !pitch)
		return false;
	uint64_t row = arena_pitch(op->context, w, e);
	if (!row || __builtin_mul_overflow(row, h, &n) || !from_arena(op, n, p))
		return false;
	*pitch = row;
	return true;
}

EXPORT CUresult CUDAAPI cuMemAllocPitch_v2(CUdeviceptr *p, size_t *pitch, size_t w, size_t h, unsigned e)
{
	OP(op);

	if (!REAL(cuMemAllocPitch_v2))
		return CUDA_ERROR_NOT_SUPPORTED;
	op_begin(&op, CALL_cuMemAllocPitch_v2);
	bool ours = pitched_from_arena(&op, p, pitch, w, h, e);
	CUresult r = ours ? CUDA_SUCCESS : real.cuMemAllocPitch_v2(p, pitch, w, h, e);
	if (memory_given_back(&op, CALL_cuMemAllocPitch_v2, r))
		r = real.cuMemAllocPitch_v2(p, pitch, w, h, e);
	memory_born(&op, r, ours ? TT_REGION_ARENA : TT_REGION_DEVICE, r == CUDA_SUCCESS ? *p : 0,
		    r == CUDA_SUCCESS ? *pitch * h : 0);
	return r;
}

static CUresult free_in_arena(struct op *op, struct context *c, CUdeviceptr p)
{
	struct arena_free freed;
	CUresult r = arena_free_begin(c, p, &freed);

	if (r != CUDA_SUCCESS)
		return r;
	memory_dies(op, p);
	return arena_free_end(&freed);
}

EXPORT CUresult CUDAAPI cuMemFree_v2(CUdeviceptr p)
{
	struct context *c;
	OP(op);
	CUresult r;

	if (!REAL(cuMemFree_v2))
		return CUDA_ERROR_NOT_SUPPORTED;
	op_begin_always(&op, CALL_cuMemFree_v2);
	if (arena_holds(p) && (c = context_current(thread_current()))) {
		r = free_in_arena(&op, c, p);
	} else {
		memory_dies(&op, p);
		r = real.cuMemFree_v2(p);
	}
	memory_died(&op, r, p);
	return r;
}
