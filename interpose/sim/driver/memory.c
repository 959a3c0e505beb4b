/*
 * Linear device memory, host memory and managed memory: allocation and release.
 *
 * Invariant: a release waits for the work submitted before it, so queued work never accesses freed memory.
 */
#include <stdlib.h>
#include <string.h>

#include "sim/driver/driver.h"

/* ---- device memory ---- */

static CUresult enter_allocation(CUcontext *ctx)
{
	CUresult result = sim_enter(ctx);

	if (result)
		return result;
	result = capture_forbids();
	if (!result && sim_allocation_fails())
		result = CUDA_ERROR_OUT_OF_MEMORY;
	return result ? sim_leave(result) : CUDA_SUCCESS;
}

static CUresult allocate(CUdeviceptr *address, size_t size)
{
	CUcontext ctx;
	struct region *r;
	CUresult result = enter_allocation(&ctx);

	if (result)
		return result;
	INVALID_IF(!address || !size);
	result = region_new(ctx->device, ctx, size, 0, REGION_DEVICE, &r);
	if (!result)
		*address = r->base;
	return sim_leave(result);
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size)
{
	return allocate(address, size);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned int element)
{
	size_t size;

	if (!pitch || (element != 4 && element != 8 && element != 16) || width > SIZE_MAX - SIM_ALIGNMENT)
		return sim_life() ? sim_life() : CUDA_ERROR_INVALID_VALUE;
	size_t row = ROUND_UP(width, (size_t)SIM_ALIGNMENT);
	if (__builtin_mul_overflow(row, height, &size))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = allocate(address, size);
	if (!result)
		*pitch = row;
	return result;
}

CUresult cuMemFree_v2(CUdeviceptr address)
{
	CUcontext ctx;
	CUresult result = address ? sim_enter(&ctx) : sim_enter_driver();

	if (result)
		return result;
	result = capture_forbids();
	if (result || !address)
		return sim_leave(result);
	struct region *r = region_find(address);
	INVALID_IF(!r || r->base != address || r->dying);
	if (r->kind == REGION_POOL)
		return sim_leave(pool_free(r));
	INVALID_IF(r->kind != REGION_DEVICE && r->kind != REGION_MANAGED);
	unsigned long long id = r->id;
	ctx = r->ctx;
	context_wait(ctx);
	engine_quiesce();
	r = region_find(address);
	INVALID_IF(!r || r->id != id);
	if (r->kind == REGION_MANAGED) {
		storage_delete(r->memory, r->size);
		region_remove(r);
	} else {
		region_delete(r);
	}
	return sim_leave(ctx->fault);
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	CUcontext ctx;

	ENTER(sim_enter(&ctx));
	if (free_bytes)
		*free_bytes = sim_settings.memory - sim_devices[ctx->device].used;
	if (total)
		*total = sim_settings.memory;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
	CUcontext ctx;

	ENTER(sim_enter(&ctx));
	struct region *r = region_find(address);
	if (!r || r->dying || !access_flags(r, ctx))
		return sim_leave(CUDA_ERROR_NOT_FOUND);
	if (base)
		*base = r->base;
	if (size)
		*size = r->size;
	return sim_leave(CUDA_SUCCESS);
}

/* ---- host and managed memory ---- */

static CUresult allocate_host(void **out, size_t size, enum region_kind kind, unsigned flags)
{
	CUcontext ctx;

	ENTER(enter_allocation(&ctx));
	INVALID_IF(!out || (!size && kind == REGION_MANAGED));
	if (!size) {
		*out = NULL;
		return sim_leave(CUDA_SUCCESS);
	}
	bool refused = kind == REGION_HOST && sim_settings.pinned && size > sim_settings.pinned;
	unsigned char *memory = refused ? NULL : storage_new(size);
	if (!memory)
		return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
	struct region *r = region_at((uint64_t)(uintptr_t)memory, size, kind, kind == REGION_MANAGED ? ctx->device : -1, memory,
				     ctx);
	r->flags = flags;
	*out = memory;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t size, unsigned int flags)
{
	void *memory;

	if (!address || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
		return sim_life() ? sim_life() : CUDA_ERROR_INVALID_VALUE;
	CUresult result = allocate_host(&memory, size, REGION_MANAGED, flags);
	if (!result)
		*address = (CUdeviceptr)(uintptr_t)memory;
	return result;
}

CUresult cuMemHostAlloc(void **out, size_t size, unsigned int flags)
{
	if (flags & ~(unsigned)(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED))
		return sim_life() ? sim_life() : CUDA_ERROR_INVALID_VALUE;
	return allocate_host(out, size, REGION_HOST, flags);
}

CUresult cuMemAllocHost_v2(void **out, size_t size)
{
	return cuMemHostAlloc(out, size, 0);
}

/* Removes the host region at p once no submitted work uses it. The caller owns its bytes. */
static CUresult withdraw(void *p, enum region_kind kind, CUresult unknown, bool delete)
{
	CUcontext ctx;
	uint64_t address = (uint64_t)(uintptr_t)p;
	CUresult result = sim_enter(&ctx);

	if (result)
		return result;
	result = capture_forbids();
	if (result)
		return sim_leave(result);
	struct region *r = region_of(address, kind, NULL);
	if (!r)
		return sim_leave(unknown);
	ctx = r->ctx;
	context_wait(ctx);
	engine_quiesce();
	r = region_of(address, kind, NULL);
	if (!r)
		return sim_leave(unknown);
	if (delete)
		storage_delete(r->memory, r->size);
	region_remove(r);
	return sim_leave(ctx->fault);
}

CUresult cuMemFreeHost(void *p)
{
	return p ? withdraw(p, REGION_HOST, CUDA_ERROR_INVALID_VALUE, true) : sim_life();
}

CUresult cuMemHostRegister_v2(void *p, size_t size, unsigned int flags)
{
	CUcontext ctx;
	uint64_t address = (uint64_t)(uintptr_t)p;
	unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_IOMEMORY |
			 CU_MEMHOSTREGISTER_READ_ONLY;
	CUresult result = sim_enter(&ctx);

	if (result)
		return result;
	result = capture_forbids();
	if (result)
		return sim_leave(result);
	INVALID_IF(!p || !size || size > UINT64_MAX - address || flags & ~known);
	if (flags & CU_MEMHOSTREGISTER_IOMEMORY)
		return sim_leave(sim_unsupported("cuMemHostRegister of I/O memory"));
	if (region_overlaps(address, size))
		return sim_leave(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	if (sim_settings.pinned && size > sim_settings.pinned)
		return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
	region_at(address, size, REGION_REGISTERED, -1, p, ctx)->flags = flags;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuMemHostUnregister(void *p)
{
	return withdraw(p, REGION_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, false);
}

static struct region *host_region(const void *p)
{
	struct region *r = region_find((uint64_t)(uintptr_t)p);

	return r && (r->kind == REGION_HOST || r->kind == REGION_REGISTERED) ? r : NULL;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *p, unsigned int flags)
{
	CUcontext ctx;

	ENTER(sim_enter(&ctx));
	INVALID_IF(!address || flags || !host_region(p));
	*address = (CUdeviceptr)(uintptr_t)p;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuMemHostGetFlags(unsigned int *flags, void *p)
{
	CUcontext ctx;

	ENTER(sim_enter(&ctx));
	struct region *r = host_region(p);
	INVALID_IF(!flags || !r);
	/* All such memory is portable: no query tells whether that was requested. */
	*flags = r->flags & ~(unsigned)CU_MEMHOSTALLOC_PORTABLE;
	return sim_leave(CUDA_SUCCESS);
}

/* ---- hints about managed memory: checked, and without effect ---- */

static bool managed_span(CUdeviceptr address, size_t size)
{
	struct region *r;

	return size && region_span(address, size, &r) && r->kind == REGION_MANAGED;
}

CUresult cuMemAdvise(CUdeviceptr address, size_t size, CUmem_advise advice, CUdevice device)
{
	CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, device};

	if (device == CU_DEVICE_CPU)
		location.type = CU_MEM_LOCATION_TYPE_HOST;
	return cuMemAdvise_v2(address, size, advice, location);
}

CUresult cuMemAdvise_v2(CUdeviceptr address, size_t size, CUmem_advise advice, CUmemLocation location)
{
	CUcontext ctx;
	bool needs_location = advice >= CU_MEM_ADVISE_SET_PREFERRED_LOCATION &&
			      advice != CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION;

	ENTER(sim_enter(&ctx));
	INVALID_IF(advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY ||
		   !managed_span(address, size));
	if (needs_location && location.type == CU_MEM_LOCATION_TYPE_DEVICE && !device_valid(location.id))
		return sim_leave(CUDA_ERROR_INVALID_DEVICE);
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t size, CUmemLocation location, unsigned int flags, CUstream handle)
{
	CUcontext ctx;
	CUstream stream;
	CUresult result = sim_enter(&ctx);

	if (result)
		return result;
	result = stream_get(ctx, handle, &stream);
	if (result)
		return sim_leave(result);
	INVALID_IF(flags || !managed_span(address, size));
	if (location.type == CU_MEM_LOCATION_TYPE_DEVICE && !device_valid(location.id))
		return sim_leave(CUDA_ERROR_INVALID_DEVICE);
	return sim_leave(stream_submit(stream, work_new(WORK_NOTHING, stream->ctx), NULL));
}

CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t size, CUdevice device, CUstream stream)
{
	CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, device};

	if (device == CU_DEVICE_CPU)
		location.type = CU_MEM_LOCATION_TYPE_HOST;
	return cuMemPrefetchAsync_v2(address, size, location, 0, stream);
}
