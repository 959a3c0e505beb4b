/*
 * Memory fills: rectangles of 1, 2 or 4 byte elements.
 */
#include <string.h>

#include "sim/driver/driver.h"

static bool fill_span(size_t pitch, unsigned element, size_t width, size_t height, size_t *span)
{
	size_t row, rows;

	return !__builtin_mul_overflow(width, element, &row) && (height == 1 || pitch >= row) &&
	       !__builtin_mul_overflow(height - 1, pitch, &rows) && !__builtin_add_overflow(rows, row, span);
}

CUresult fill_check(CUcontext ctx, CUdeviceptr dst, size_t pitch, unsigned element, size_t width, size_t height)
{
	struct region *r;
	size_t span;

	if (dst % element || (height > 1 && pitch % element) || !fill_span(pitch, element, width, height, &span) ||
	    !region_span(dst, span, &r) || !region_usable(r) ||
	    (r->kind != REGION_POOL && access_flags(r, ctx) != CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUresult fill_run(CUcontext ctx, CUdeviceptr dst, size_t pitch, unsigned element, unsigned value, size_t width, size_t height)
{
	struct region_access access = {ctx->device, UINT64_MAX, true, false, false};
	size_t span;

	if (!fill_span(pitch, element, width, height, &span))
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	unsigned char *memory = region_resolve(dst, span, &access);
	if (!memory)
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	for (size_t y = 0; y < height; y++, memory += pitch) {
		if (element == 1) {
			memset(memory, (int)value, width);
			continue;
		}
		for (size_t x = 0; x < width; x++)
			memcpy(memory + x * element, &value, element);
	}
	return CUDA_SUCCESS;
}

static CUresult submit(CUdeviceptr dst, size_t pitch, unsigned element, unsigned value, size_t width, size_t height,
		       CUstream handle)
{
	CUcontext ctx;
	CUstream stream;
	CUresult result = sim_enter(&ctx);

	if (result)
		return result;
	result = stream_get(ctx, handle, &stream);
	if (result)
		return sim_leave(result);
	if (!width || !height)
		return sim_leave(CUDA_SUCCESS);
	result = fill_check(ctx, dst, pitch, element, width, height);
	if (result)
		return sim_leave(result);
	struct sim_work *work = work_new(WORK_FILL, stream->ctx);
	work->fill.dst = dst;
	work->fill.pitch = pitch;
	work->fill.element = element;
	work->fill.value = value;
	work->fill.width = width;
	work->fill.height = height;
	return sim_leave(stream_submit(stream, work, NULL));
}

/* Each element size has a linear and a rectangular form, synchronous and in a stream. */
#define FILLS(bits, bytes, type) \
	CUresult cuMemsetD##bits##_v2(CUdeviceptr dst, type value, size_t n) \
	{ \
		return submit(dst, 0, bytes, value, n, 1, CU_STREAM_LEGACY); \
	} \
	CUresult cuMemsetD##bits##_v2_ptds(CUdeviceptr dst, type value, size_t n) \
	{ \
		return submit(dst, 0, bytes, value, n, 1, CU_STREAM_PER_THREAD); \
	} \
	CUresult cuMemsetD##bits##Async(CUdeviceptr dst, type value, size_t n, CUstream stream) \
	{ \
		return submit(dst, 0, bytes, value, n, 1, stream); \
	} \
	CUresult cuMemsetD##bits##Async_ptsz(CUdeviceptr dst, type value, size_t n, CUstream stream) \
	{ \
		return submit(dst, 0, bytes, value, n, 1, own_stream(stream)); \
	} \
	CUresult cuMemsetD2D##bits##_v2(CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height) \
	{ \
		return submit(dst, pitch, bytes, value, width, height, CU_STREAM_LEGACY); \
	} \
	CUresult cuMemsetD2D##bits##_v2_ptds(CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height) \
	{ \
		return submit(dst, pitch, bytes, value, width, height, CU_STREAM_PER_THREAD); \
	} \
	CUresult cuMemsetD2D##bits##Async(CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height, \
					  CUstream stream) \
	{ \
		return submit(dst, pitch, bytes, value, width, height, stream); \
	} \
	CUresult cuMemsetD2D##bits##Async_ptsz(CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height, \
					       CUstream stream) \
	{ \
		return submit(dst, pitch, bytes, value, width, height, own_stream(stream)); \
	}

FILLS(8, 1, unsigned char)
FILLS(16, 2, unsigned short)
FILLS(32, 4, unsigned int)
