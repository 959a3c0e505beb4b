/*
 * Arrays, stored as plain rows: a program cannot see the layout of a real array.
 *
 * Invariant: an array has rows × layers × pitch bytes, even if the descriptor has zeros.
 */
#include <stdlib.h>
#include <string.h>

#include "sim/driver/driver.h"

#include "array_items.h"

struct CUmipmappedArray_st {
	CUcontext ctx;
	unsigned count;
	CUarray *levels;
	LIST_ENTRY(CUmipmappedArray_st) all;
};

static size_t at_least_one(size_t value)
{
	return value ? value : 1;
}

static CUresult check_descriptor(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	unsigned supported = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP |
			     CUDA_ARRAY3D_TEXTURE_GATHER;

	if (!d || !d->Width || (d->NumChannels != 1 && d->NumChannels != 2 && d->NumChannels != 4))
		return CUDA_ERROR_INVALID_VALUE;
	if (d->Flags & ~supported || !array_channel_bytes(d->Format))
		return sim_unsupported("cuArray3DCreate of this kind or format");
	if (d->Width > 131072 || d->Height > 65536 || d->Depth > 16384 ||
	    (!d->Height && d->Depth && !(d->Flags & CUDA_ARRAY3D_LAYERED)))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult array_make(CUcontext ctx, const CUDA_ARRAY3D_DESCRIPTOR *d, bool of_mipmap, CUarray *out)
{
	size_t element = (size_t)array_channel_bytes(d->Format) * d->NumChannels;
	size_t pitch = d->Width * element;
	size_t size = pitch * at_least_one(d->Height) * at_least_one(d->Depth);

	if (!device_charge(ctx->device, ROUND_UP(size, SIM_ALIGNMENT)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	unsigned char *memory = storage_new(size);
	if (!memory) {
		device_refund(ctx->device, ROUND_UP(size, SIM_ALIGNMENT));
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	CUarray array = sim_alloc(sizeof *array);
	*array = (struct CUarray_st){.refs = 1,
				     .ctx = ctx,
				     .descriptor = *d,
				     .element = element,
				     .pitch = pitch,
				     .rows = at_least_one(d->Height),
				     .layers = at_least_one(d->Depth),
				     .size = size,
				     .memory = memory,
				     .of_mipmap = of_mipmap};
	LIST_INSERT_HEAD(&ctx->arrays, array, all);
	handle_add(array, HANDLE_ARRAY);
	*out = array;
	return CUDA_SUCCESS;
}

void array_delete(CUarray array)
{
	device_refund(array->ctx->device, ROUND_UP(array->size, SIM_ALIGNMENT));
	LIST_REMOVE(array, all);
	handle_remove(array);
	array_unref(array);
}

void array_unref(CUarray array)
{
	if (!array || --array->refs)
		return;
	storage_delete(array->memory, array->size);
	free(array);
}

static CUresult enter_creation(CUcontext *ctx, const CUDA_ARRAY3D_DESCRIPTOR *d, const void *out)
{
	CUresult result = sim_enter(ctx);

	if (result)
		return result;
	result = capture_forbids();
	if (!result)
		result = out ? check_descriptor(d) : CUDA_ERROR_INVALID_VALUE;
	if (!result && sim_allocation_fails())
		result = CUDA_ERROR_OUT_OF_MEMORY;
	return result ? sim_leave(result) : CUDA_SUCCESS;
}

CUresult cuArray3DCreate_v2(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
	CUcontext ctx;
	CUresult result = enter_creation(&ctx, descriptor, out);

	return result ? result : sim_leave(array_make(ctx, descriptor, false, out));
}

CUresult cuArrayCreate_v2(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *descriptor)
{
	CUDA_ARRAY3D_DESCRIPTOR d = {0};

	if (descriptor) {
		d.Width = descriptor->Width;
		d.Height = descriptor->Height;
		d.Format = descriptor->Format;
		d.NumChannels = descriptor->NumChannels;
	}
	return cuArray3DCreate_v2(out, &d);
}

static CUresult enter_array(CUarray array)
{
	CUcontext ctx;
	CUresult result = sim_enter(&ctx);

	if (!result && !handle_is(array, HANDLE_ARRAY))
		return sim_leave(CUDA_ERROR_INVALID_HANDLE);
	return result;
}

CUresult cuArrayDestroy(CUarray array)
{
	ENTER(enter_array(array));
	if (array->of_mipmap)
		return sim_leave(CUDA_ERROR_INVALID_HANDLE);
	CUcontext ctx = array->ctx;
	context_wait(ctx);
	engine_quiesce();
	if (!handle_is(array, HANDLE_ARRAY))
		return sim_leave(CUDA_ERROR_INVALID_HANDLE);
	array_delete(array);
	return sim_leave(ctx->fault);
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *descriptor, CUarray array)
{
	ENTER(enter_array(array));
	INVALID_IF(!descriptor);
	*descriptor = array->descriptor;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *descriptor, CUarray array)
{
	CUDA_ARRAY3D_DESCRIPTOR d;

	ENTER(cuArray3DGetDescriptor_v2(&d, array));
	if (!descriptor)
		return CUDA_ERROR_INVALID_VALUE;
	*descriptor = (CUDA_ARRAY_DESCRIPTOR){d.Width, d.Height, d.Format, d.NumChannels};
	return CUDA_SUCCESS;
}

/* ---- mipmapped arrays ---- */

static size_t halved(size_t value, unsigned level)
{
	return value ? at_least_one(value >> level) : 0;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned int levels)
{
	CUcontext ctx;
	CUresult result = enter_creation(&ctx, descriptor, out);

	if (result)
		return result;
	unsigned most = 1;
	for (size_t width = descriptor->Width | descriptor->Height; width > 1; width >>= 1)
		most++;
	INVALID_IF(!levels);
	CUmipmappedArray mipmap = sim_alloc(sizeof *mipmap);
	mipmap->ctx = ctx;
	mipmap->levels = sim_alloc(most * sizeof *mipmap->levels);
	LIST_INSERT_HEAD(&ctx->mipmaps, mipmap, all);
	handle_add(mipmap, HANDLE_MIPMAP);
	for (unsigned i = 0; i < levels && i < most && !result; i++) {
		CUDA_ARRAY3D_DESCRIPTOR d = *descriptor;
		d.Width = halved(d.Width, i);
		d.Height = halved(d.Height, i);
		if (!(d.Flags & CUDA_ARRAY3D_LAYERED))
			d.Depth = halved(d.Depth, i);
		result = array_make(ctx, &d, true, &mipmap->levels[i]);
		mipmap->count += !result;
	}
	if (result)
		mipmap_delete(mipmap);
	else
		*out = mipmap;
	return sim_leave(result);
}

void mipmap_delete(CUmipmappedArray mipmap)
{
	for (unsigned i = 0; i < mipmap->count; i++)
		array_delete(mipmap->levels[i]);
	LIST_REMOVE(mipmap, all);
	handle_remove(mipmap);
	free(mipmap->levels);
	free(mipmap);
}

CUresult cuMipmappedArrayGetLevel(CUarray *out, CUmipmappedArray mipmap, unsigned int level)
{
	CUcontext ctx;

	ENTER(sim_enter(&ctx));
	if (!handle_is(mipmap, HANDLE_MIPMAP))
		return sim_leave(CUDA_ERROR_INVALID_HANDLE);
	INVALID_IF(!out || level >= mipmap->count);
	*out = mipmap->levels[level];
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray mipmap)
{
	CUcontext ctx;

	ENTER(sim_enter(&ctx));
	if (!handle_is(mipmap, HANDLE_MIPMAP))
		return sim_leave(CUDA_ERROR_INVALID_HANDLE);
	ctx = mipmap->ctx;
	context_wait(ctx);
	engine_quiesce();
	if (!handle_is(mipmap, HANDLE_MIPMAP))
		return sim_leave(CUDA_ERROR_INVALID_HANDLE);
	mipmap_delete(mipmap);
	return sim_leave(ctx->fault);
}
