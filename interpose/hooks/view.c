/*
 * Wrappers of texture and surface objects, and of tensor maps.
 */
#include "instrument/tensor_maps.h"
#include "track/views.h"
#include "hooks/op.h"

AFTER(cuTexObjectCreate, (CUtexObject *object, const CUDA_RESOURCE_DESC *d, const CUDA_TEXTURE_DESC *t, const CUDA_RESOURCE_VIEW_DESC *v), (object, d, t, v), if (op_begin(&op)) view_made(op.context, TT_VIEW_TEXTURE, *object, d))
AFTER(cuSurfObjectCreate, (CUsurfObject *object, const CUDA_RESOURCE_DESC *d), (object, d), if (op_begin(&op)) view_made(op.context, TT_VIEW_SURFACE, *object, d))

#define ENDS(symbol, type, kind) \
	EXPORT CUresult CUDAAPI symbol(type object) \
	{ \
		HOOK(op, symbol); \
		if (op_begin(&op)) /* before the call: the driver may reuse its handle at once */ \
			view_gone(op.context, kind, object); \
		return real.symbol(object); \
	}
ENDS(cuTexObjectDestroy, CUtexObject, TT_VIEW_TEXTURE)
ENDS(cuSurfObjectDestroy, CUsurfObject, TT_VIEW_SURFACE)

/* Notes a map that was encoded. m: all of it but what has a value for each dimension of the tensor. */
static void encoded(const CUtensorMap *map, struct tt_tensor_map *m, const cuuint64_t *sizes, const cuuint64_t *strides,
		    const cuuint32_t *steps)
{
	for (uint16_t i = 0; i < m->rank; i++) {
		m->sizes[i] = sizes[i];
		m->steps[i] = steps[i];
		if (i)
			m->strides[i - 1] = strides[i - 1];
	}
	tensor_map_encoded(map, m);
}

EXPORT CUresult CUDAAPI cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
					       const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
					       const cuuint32_t *steps, CUtensorMapInterleave interleave,
					       CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
					       CUtensorMapFloatOOBfill fill)
{
	HOOK(op, cuTensorMapEncodeTiled);
	CUresult r = real.cuTensorMapEncodeTiled(map, type, rank, address, sizes, strides, box, steps, interleave, swizzle,
						 promotion, fill);
	struct tt_tensor_map m = {.address = (uintptr_t)address,
				  .rank = (uint16_t)rank,
				  .data_type = type,
				  .interleave = interleave,
				  .swizzle = swizzle,
				  .l2_promotion = promotion,
				  .oob_fill = fill};
	for (cuuint32_t i = 0; r == CUDA_SUCCESS && i < rank; i++)
		m.box[i] = box[i];
	if (r == CUDA_SUCCESS)
		encoded(map, &m, sizes, strides, steps);
	return r;
}

EXPORT CUresult CUDAAPI cuTensorMapEncodeIm2col(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
						const cuuint64_t *sizes, const cuuint64_t *strides, const int *lower,
						const int *upper, cuuint32_t channels, cuuint32_t pixels,
						const cuuint32_t *steps, CUtensorMapInterleave interleave,
						CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
						CUtensorMapFloatOOBfill fill)
{
	HOOK(op, cuTensorMapEncodeIm2col);
	CUresult r = real.cuTensorMapEncodeIm2col(map, type, rank, address, sizes, strides, lower, upper, channels, pixels,
						  steps, interleave, swizzle, promotion, fill);
	struct tt_tensor_map m = {.address = (uintptr_t)address,
				  .box = {channels, pixels},
				  .rank = (uint16_t)rank,
				  .mode = TT_TENSOR_IM2COL,
				  .data_type = type,
				  .interleave = interleave,
				  .swizzle = swizzle,
				  .l2_promotion = promotion,
				  .oob_fill = fill};
	for (cuuint32_t i = 0; r == CUDA_SUCCESS && i + 2 < rank; i++)
		m.box[i + 2] = ((uint32_t)lower[i] & 0xffff) | (uint32_t)upper[i] << 16;
	if (r == CUDA_SUCCESS)
		encoded(map, &m, sizes, strides, steps);
	return r;
}

EXPORT CUresult CUDAAPI cuTensorMapReplaceAddress(CUtensorMap *map, void *address)
{
	CUtensorMap before;

	HOOK(op, cuTensorMapReplaceAddress);
	if (map)
		before = *map;
	CUresult r = real.cuTensorMapReplaceAddress(map, address);
	if (r == CUDA_SUCCESS)
		tensor_map_moved(&before, map, (uintptr_t)address);
	return r;
}
