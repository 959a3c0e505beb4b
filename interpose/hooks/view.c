/*
 * Texture and surface objects.
 */
#include "track/views.h"
#include "hooks/op.h"

EXPORT CUresult CUDAAPI cuTexObjectCreate(CUtexObject *object, const CUDA_RESOURCE_DESC *d, const CUDA_TEXTURE_DESC *t,
					  const CUDA_RESOURCE_VIEW_DESC *v)
{
	OP(op);

	if (!REAL(cuTexObjectCreate))
		return CUDA_ERROR_NOT_SUPPORTED;
	CUresult r = real.cuTexObjectCreate(object, d, t, v);
	if (r == CUDA_SUCCESS && op_begin(&op, CALL_cuTexObjectCreate))
		view_made(op.context, TT_VIEW_TEXTURE, *object, d);
	return r;
}

EXPORT CUresult CUDAAPI cuSurfObjectCreate(CUsurfObject *object, const CUDA_RESOURCE_DESC *d)
{
	OP(op);

	if (!REAL(cuSurfObjectCreate))
		return CUDA_ERROR_NOT_SUPPORTED;
	CUresult r = real.cuSurfObjectCreate(object, d);
	if (r == CUDA_SUCCESS && op_begin(&op, CALL_cuSurfObjectCreate))
		view_made(op.context, TT_VIEW_SURFACE, *object, d);
	return r;
}

#define ENDS(symbol, type, kind) \
	EXPORT CUresult CUDAAPI symbol(type object) \
	{ \
		OP(op); \
		if (!REAL(symbol)) \
			return CUDA_ERROR_NOT_SUPPORTED; \
		if (op_begin(&op, CALL_##symbol)) /* before: another may get its number */ \
			view_gone(op.context, kind, object); \
		return real.symbol(object); \
	}
ENDS(cuTexObjectDestroy, CUtexObject, TT_VIEW_TEXTURE)
ENDS(cuSurfObjectDestroy, CUsurfObject, TT_VIEW_SURFACE)
