/*
 * Texture and surface objects: handles for views of memory. Programs may create and pass them, but kernels
 * here cannot read through them.
 *
 * Invariant: a handle is not 0, and belongs to one object at a time.
 */
#include "sim/driver/driver.h"

#define MOST 4096

static struct view {
	CUcontext ctx; /* NULL: free */
	bool surface;
} views[MOST];

static CUresult create(unsigned long long *out, const CUDA_RESOURCE_DESC *d, bool surface)
{
	CUcontext ctx;

	ENTER(sim_enter(&ctx));
	if (!out || !d || d->flags || d->resType > CU_RESOURCE_TYPE_PITCH2D ||
	    (surface && d->resType != CU_RESOURCE_TYPE_ARRAY))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	for (unsigned i = 1; i < MOST; i++)
		if (!views[i].ctx) {
			views[i] = (struct view){ctx, surface};
			*out = i;
			return sim_leave(CUDA_SUCCESS);
		}
	return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
}

static CUresult destroy(unsigned long long object, bool surface)
{
	CUcontext ctx;

	ENTER(sim_enter(&ctx));
	INVALID_IF(object >= MOST || views[object].ctx != ctx || views[object].surface != surface);
	views[object].ctx = NULL;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuTexObjectCreate(CUtexObject *out, const CUDA_RESOURCE_DESC *d, const CUDA_TEXTURE_DESC *texture,
			   const CUDA_RESOURCE_VIEW_DESC *view)
{
	(void)texture;
	(void)view;
	return create(out, d, false);
}

CUresult cuTexObjectDestroy(CUtexObject object)
{
	return destroy(object, false);
}

CUresult cuSurfObjectCreate(CUsurfObject *out, const CUDA_RESOURCE_DESC *d)
{
	return create(out, d, true);
}

CUresult cuSurfObjectDestroy(CUsurfObject object)
{
	return destroy(object, true);
}
