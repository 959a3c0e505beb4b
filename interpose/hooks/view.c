/*
 * Wrappers of texture and surface objects.
 */
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
