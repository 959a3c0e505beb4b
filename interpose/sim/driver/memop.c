/*
 * Stream memory operations: a stream writes a value, or waits until memory has one.
 *
 * Invariant: the word is read and written whole, with the barriers that a polling host needs.
 */
#include <stdlib.h>

#include "sim/driver/driver.h"

static bool is_wait(const CUstreamBatchMemOpParams *op)
{
	return op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}

static bool is_wide(const CUstreamBatchMemOpParams *op)
{
	return op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 || op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

static CUresult check(const CUstreamBatchMemOpParams *op)
{
	struct region *r;
	size_t size = is_wide(op) ? 8 : 4;

	switch (op->operation) {
	case CU_STREAM_MEM_OP_WAIT_VALUE_32:
	case CU_STREAM_MEM_OP_WAIT_VALUE_64:
		if (op->waitValue.flags & ~(unsigned)(CU_STREAM_WAIT_VALUE_FLUSH | 3))
			return CUDA_ERROR_INVALID_VALUE;
		if (op->waitValue.flags & CU_STREAM_WAIT_VALUE_FLUSH)
			return CUDA_ERROR_NOT_SUPPORTED;
		break;
	case CU_STREAM_MEM_OP_WRITE_VALUE_32:
	case CU_STREAM_MEM_OP_WRITE_VALUE_64:
		if (op->writeValue.flags & ~(unsigned)CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER)
			return CUDA_ERROR_INVALID_VALUE;
		break;
	case CU_STREAM_MEM_OP_BARRIER:
		return CUDA_SUCCESS;
	case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
		return CUDA_ERROR_NOT_SUPPORTED;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	/* Both forms have the address at the same offset. */
	CUdeviceptr address = op->waitValue.address;
	if (address % size || !region_span(address, size, &r) || !region_usable(r))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUresult memops_check(CUcontext ctx, unsigned count, const CUstreamBatchMemOpParams *ops)
{
	CUresult result = CUDA_SUCCESS;

	(void)ctx;
	if (!count || count > 256 || !ops)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < count && !result; i++)
		result = check(&ops[i]);
	return result;
}

static void *word(const struct sim_work *work, const CUstreamBatchMemOpParams *op)
{
	struct region_access access = {work->ctx->device, UINT64_MAX, !is_wait(op), false, false};

	return region_resolve(op->waitValue.address, is_wide(op) ? 8 : 4, &access);
}

static bool arrived(const CUstreamBatchMemOpParams *op, const void *at)
{
	uint64_t wanted = op->waitValue.value64, found;
	int64_t ahead;

	if (is_wide(op)) {
		found = __atomic_load_n((const uint64_t *)at, __ATOMIC_ACQUIRE);
		ahead = (int64_t)(found - wanted);
	} else {
		wanted = op->waitValue.value;
		found = __atomic_load_n((const uint32_t *)at, __ATOMIC_ACQUIRE);
		ahead = (int32_t)((uint32_t)found - (uint32_t)wanted);
	}
	switch (op->waitValue.flags & 3) {
	case CU_STREAM_WAIT_VALUE_GEQ:
		return ahead >= 0;
	case CU_STREAM_WAIT_VALUE_EQ:
		return ahead == 0;
	case CU_STREAM_WAIT_VALUE_AND:
		return found & wanted;
	default:
		return ~(found | wanted) & (is_wide(op) ? UINT64_MAX : UINT32_MAX);
	}
}

bool memops_blocked(const struct sim_work *work, unsigned step)
{
	const CUstreamBatchMemOpParams *op = &work->memops.ops[step];
	const void *at = is_wait(op) ? word(work, op) : NULL;

	return at && !arrived(op, at);
}

bool memops_advance(struct sim_work *work, unsigned *step, CUresult *result)
{
	for (; *step < work->memops.count; ++*step) {
		const CUstreamBatchMemOpParams *op = &work->memops.ops[*step];
		if (op->operation == CU_STREAM_MEM_OP_BARRIER)
			continue;
		void *at = word(work, op);
		if (!at) {
			*result = CUDA_ERROR_ILLEGAL_ADDRESS;
			return false;
		}
		if (is_wait(op) && !arrived(op, at))
			return false;
		if (op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64)
			__atomic_store_n((uint64_t *)at, op->writeValue.value64, __ATOMIC_RELEASE);
		else if (op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32)
			__atomic_store_n((uint32_t *)at, op->writeValue.value, __ATOMIC_RELEASE);
	}
	return true;
}

/* ---- calls ---- */

CUresult cuStreamBatchMemOp_v2(CUstream handle, unsigned int count, CUstreamBatchMemOpParams *ops, unsigned int flags)
{
	CUcontext ctx;
	CUstream stream;
	CUresult result = sim_enter(&ctx);

	if (result)
		return result;
	result = stream_get(ctx, handle, &stream);
	if (!result)
		result = flags ? CUDA_ERROR_INVALID_VALUE : memops_check(ctx, count, ops);
	if (result)
		return sim_leave(result);
	struct sim_work *work = work_new(WORK_MEMOPS, stream->ctx);
	work->memops.count = count;
	work->memops.ops = sim_copy(ops, count * sizeof *ops);
	return sim_leave(stream_submit(stream, work, NULL));
}

static CUresult one(CUstream stream, CUstreamBatchMemOpType operation, CUdeviceptr address, uint64_t value, unsigned flags)
{
	CUstreamBatchMemOpParams op = {
		.writeValue = {.operation = operation, .address = address, .value64 = value, .flags = flags}};

	return cuStreamBatchMemOp_v2(stream, 1, &op, 0);
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags)
{
	return one(stream, CU_STREAM_MEM_OP_WAIT_VALUE_32, address, value, flags);
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags)
{
	return one(stream, CU_STREAM_MEM_OP_WAIT_VALUE_64, address, value, flags);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags)
{
	return one(stream, CU_STREAM_MEM_OP_WRITE_VALUE_32, address, value, flags);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags)
{
	return one(stream, CU_STREAM_MEM_OP_WRITE_VALUE_64, address, value, flags);
}
