/*
 * Stream-ordered memory: pools, and allocations ordered by a stream.
 *
 * Invariant: an allocation is usable from the call that made it until its free has executed. A stream that
 * freed a block may reuse it at once, because its later work follows the free.
 */
#include <stdlib.h>
#include <string.h>

#include "sim/driver/driver.h"

static CUmemoryPool pool_make(int device, const CUmemPoolProps *properties)
{
	CUmemoryPool pool = sim_alloc(sizeof *pool);

	pool->device = device;
	pool->properties = *properties;
	pool->reuse_event = pool->reuse_opportunistic = pool->reuse_internal = 1;
	pool->readers = 1ull << device;
	handle_add(pool, HANDLE_POOL);
	return pool;
}

CUmemoryPool pool_default(int device)
{
	struct sim_device *d = &sim_devices[device];

	if (!d->default_pool) {
		CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
					     .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
		d->default_pool = pool_make(device, &properties);
		d->default_pool->is_default = true;
		d->pool = d->default_pool;
	}
	return d->default_pool;
}

static CUmemoryPool pool_current(int device)
{
	pool_default(device);
	return sim_devices[device].pool;
}

static void raise(uint64_t *high, uint64_t value)
{
	if (*high < value)
		*high = value;
}

static void count_use(CUmemoryPool pool, uint64_t bytes)
{
	pool->used += bytes;
	raise(&pool->used_high, pool->used);
}

static void region_drop(struct region *r)
{
	CUmemoryPool pool = r->pool;

	if (!r->dying)
		pool->used -= r->size;
	pool->reserved -= r->charged;
	region_delete(r);
	if (--pool->live == 0 && pool->destroyed)
		free(pool);
}

/* A block of the same size whose free was submitted to the same stream: pending work may use all of it. */
static struct region *find_reusable(CUmemoryPool pool, CUstream stream, size_t size)
{
	struct region *r;

	for (r = region_from(0); r; r = region_from(r->base + r->size)) {
		if (r->kind == REGION_POOL && r->dying && !r->of_graph && r->pool == pool && r->freed_on == stream &&
		    r->size == size)
			break;
	}
	return r;
}

CUresult pool_take(CUmemoryPool pool, CUstream stream, size_t size, struct region **out)
{
	if (pool->properties.maxSize && pool->reserved + size > pool->properties.maxSize)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct region *r = stream ? find_reusable(pool, stream, size) : NULL;
	if (r) {
		r->dying = false;
		region_renew(r);
	} else {
		CUresult result = region_new(pool->device, NULL, size, 0, REGION_POOL, &r);
		if (result)
			return result;
		r->pool = pool;
		pool->live++;
		pool->reserved += r->charged;
		raise(&pool->reserved_high, pool->reserved);
		region_allow(r, pool->readers, pool->readers);
	}
	count_use(pool, size);
	*out = r;
	return CUDA_SUCCESS;
}

static void mark_dying(struct region *r, CUstream stream)
{
	r->dying = true;
	r->freed_on = stream;
	if (r->pool)
		r->pool->used -= r->size;
}

void pool_free_run(const struct sim_work *work)
{
	struct region *r = region_find(work->pool.address);

	if (!r || r->id != work->pool.region || !r->dying)
		return;
	if (r->kind == REGION_DEVICE)
		region_delete(r);
	else if (r->of_graph)
		region_allow(r, 0, 0);
	else
		region_drop(r);
}

static bool burials;

void pool_forget_node(const struct sim_work *work)
{
	struct region *r = region_of(work->pool.address, REGION_POOL, NULL);

	if (!r || r->id != work->pool.region)
		return;
	/* Allocated memory becomes ordinary memory, because no graph can free it any more. */
	r->of_graph = false;
	r->dead = r->dying && !r->readers;
	burials |= r->dead;
}

void pool_bury(void)
{
	struct region *r;
	uint64_t end;

	if (!burials)
		return;
	burials = false;
	for (r = region_from(0); r; r = region_from(end)) {
		end = r->base + r->size;
		if (r->dead)
			region_drop(r);
	}
}

CUresult pool_free(struct region *r)
{
	unsigned long long id = r->id;
	uint64_t base = r->base;

	mark_dying(r, NULL);
	contexts_wait();
	struct sim_work free_work = {.type = WORK_POOL_FREE, .pool = {.address = base, .region = id}};
	pool_free_run(&free_work);
	return CUDA_SUCCESS;
}

void pool_keep_for_graph(struct region *r, struct sim_work *work)
{
	mark_dying(r, NULL);
	r->of_graph = true;
	region_allow(r, 0, 0);
	work->pool.region = r->id;
}

/* ---- stream-ordered calls ---- */

static CUresult allocate_async(CUdeviceptr *address, size_t size, CUmemoryPool pool, CUstream handle)
{
	CUcontext ctx;
	CUstream stream;
	struct region *r;
	CUresult result = sim_enter(&ctx);

	if (result)
		return result;
	result = stream_get(ctx, handle, &stream);
	if (!result && !stream->capture)
		result = capture_forbids();
	if (result)
		return sim_leave(result);
	INVALID_IF(!address);
	if (!size) {
		*address = 0;
		return sim_leave(CUDA_SUCCESS);
	}
	ctx = stream->ctx;
	if (!pool)
		pool = pool_current(ctx->device);
	INVALID_IF(!handle_is(pool, HANDLE_POOL));
	if (sim_allocation_fails())
		return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
	result = pool_take(pool, stream->capture ? NULL : stream, size, &r);
	if (result)
		return sim_leave(result);
	struct sim_work *work = work_new(WORK_POOL_ALLOC, ctx);
	work->pool.address = r->base;
	work->pool.size = size;
	work->pool.properties = pool->properties;
	if (stream->capture)
		pool_keep_for_graph(r, work);
	*address = r->base;
	return sim_leave(stream_submit(stream, work, NULL));
}

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t size, CUstream stream)
{
	return allocate_async(address, size, NULL, stream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t size, CUmemoryPool pool, CUstream stream)
{
	CUresult life = sim_life();

	return pool || life ? allocate_async(address, size, pool, stream) : CUDA_ERROR_INVALID_VALUE;
}

/* Ordinary memory can also be freed in stream order, but not by a graph. */
static bool can_free(const struct region *r, CUstream stream)
{
	if (r->kind == REGION_DEVICE)
		return !r->dying && !stream->capture;
	return r->kind == REGION_POOL && (!r->dying || (r->of_graph && stream->capture));
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle)
{
	CUcontext ctx;
	CUstream stream;
	CUresult result = sim_enter(&ctx);

	if (result)
		return result;
	result = stream_get(ctx, handle, &stream);
	if (!result && !stream->capture)
		result = capture_forbids();
	if (result || !address)
		return sim_leave(result);
	struct region *r = region_find(address);
	INVALID_IF(!r || r->base != address || !can_free(r, stream));
	struct sim_work *work = work_new(WORK_POOL_FREE, stream->ctx);
	work->pool.address = r->base;
	work->pool.region = r->id;
	if (!stream->capture)
		mark_dying(r, stream);
	return sim_leave(stream_submit(stream, work, NULL));
}

void pool_graph_launched(const struct sim_work *work)
{
	struct region *r = region_of(work->pool.address, REGION_POOL, NULL);

	if (!r || r->id != work->pool.region)
		return;
	if (work->type == WORK_POOL_FREE && !r->dying) {
		mark_dying(r, NULL);
	} else if (work->type == WORK_POOL_ALLOC && r->dying) {
		r->dying = false;
		count_use(r->pool, r->size);
	}
}

bool pool_graph_memory_live(const struct sim_work *work)
{
	const struct region *r = region_of(work->pool.address, REGION_POOL, NULL);

	return r && r->id == work->pool.region && !r->dying;
}

void pool_alloc_run(const struct sim_work *work)
{
	struct region *r = region_of(work->pool.address, REGION_POOL, NULL);

	if (r && work->pool.region && r->id == work->pool.region)
		region_allow(r, r->pool->readers, r->pool->readers);
}

/* ---- pools ---- */

static CUresult enter_pool(CUmemoryPool pool)
{
	CUresult result = sim_enter_driver();

	INVALID_IF(!result && !handle_is(pool, HANDLE_POOL));
	return result;
}

CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *properties)
{
	CUresult result = sim_enter_driver();

	if (result)
		return result;
	INVALID_IF(!out || !properties || properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED);
	if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return sim_leave(sim_unsupported("cuMemPoolCreate of host memory"));
	if (properties->handleTypes)
		return sim_leave(sim_unsupported("cuMemPoolCreate of exportable memory"));
	if (!device_valid(properties->location.id))
		return sim_leave(CUDA_ERROR_INVALID_DEVICE);
	result = capture_forbids();
	if (!result)
		*out = pool_make(properties->location.id, properties);
	return sim_leave(result);
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	CUresult result = enter_pool(pool);

	if (result)
		return result;
	INVALID_IF(pool->is_default);
	result = capture_forbids();
	if (result)
		return sim_leave(result);
	handle_remove(pool);
	if (sim_devices[pool->device].pool == pool)
		sim_devices[pool->device].pool = pool_default(pool->device);
	pool->destroyed = true;
	if (!pool->live)
		free(pool);
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
	(void)keep;
	CUresult result = enter_pool(pool);
	/* Free memory is never kept reserved. */
	return result ? result : sim_leave(capture_forbids());
}

static void *pool_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, size_t *size)
{
	*size = sizeof(cuuint64_t);
	switch (attribute) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
		*size = sizeof(int);
		return &pool->reuse_event;
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
		*size = sizeof(int);
		return &pool->reuse_opportunistic;
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		*size = sizeof(int);
		return &pool->reuse_internal;
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		return &pool->threshold;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
		return &pool->reserved;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		return &pool->reserved_high;
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		return &pool->used;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		return &pool->used_high;
	default:
		return NULL;
	}
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
	size_t size;
	CUresult result = enter_pool(pool);

	if (result)
		return result;
	result = capture_forbids();
	if (result)
		return sim_leave(result);
	void *member = pool_attribute(pool, attribute, &size);
	INVALID_IF(!value || !member);
	memcpy(value, member, size);
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
	size_t size;
	CUresult result = enter_pool(pool);

	if (result)
		return result;
	result = capture_forbids();
	if (result)
		return sim_leave(result);
	void *member = pool_attribute(pool, attribute, &size);
	if (!value || !member || attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ||
	    attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (member == &pool->reserved_high || member == &pool->used_high) {
		/* The high marks can only be reset to the present use. */
		if (*(cuuint64_t *)value)
			return sim_leave(CUDA_ERROR_INVALID_VALUE);
		pool->reserved_high = member == &pool->reserved_high ? pool->reserved : pool->reserved_high;
		pool->used_high = member == &pool->used_high ? pool->used : pool->used_high;
	} else {
		memcpy(member, value, size);
	}
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count)
{
	ENTER(enter_pool(pool));
	INVALID_IF(!access || !count);
	for (size_t i = 0; i < count; i++) {
		if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
		    (access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
			return sim_leave(CUDA_ERROR_INVALID_VALUE);
		if (!device_valid(access[i].location.id) || (access[i].location.id == pool->device && !access[i].flags))
			return sim_leave(CUDA_ERROR_INVALID_DEVICE);
	}
	for (size_t i = 0; i < count; i++) {
		uint64_t bit = 1ull << access[i].location.id;
		pool->readers = access[i].flags ? pool->readers | bit : pool->readers & ~bit;
	}
	engine_quiesce();
	for (struct region *r = region_from(0); r; r = region_from(r->base + r->size)) {
		if (r->kind == REGION_POOL && r->pool == pool)
			region_allow(r, pool->readers, pool->readers);
	}
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location)
{
	ENTER(enter_pool(pool));
	INVALID_IF(!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE || !device_valid(location->id));
	*flags = pool->readers >> location->id & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return sim_leave(CUDA_SUCCESS);
}

static CUresult device_pool(CUmemoryPool *out, CUdevice device, CUmemoryPool (*which)(int))
{
	ENTER(sim_enter_driver());
	INVALID_IF(!out);
	if (!device_valid(device))
		return sim_leave(CUDA_ERROR_INVALID_DEVICE);
	*out = which(device);
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice device)
{
	return device_pool(out, device, pool_default);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *out, CUdevice device)
{
	return device_pool(out, device, pool_current);
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
	ENTER(enter_pool(pool));
	if (!device_valid(device))
		return sim_leave(CUDA_ERROR_INVALID_DEVICE);
	INVALID_IF(pool->device != device);
	pool_default(device);
	sim_devices[device].pool = pool;
	return sim_leave(CUDA_SUCCESS);
}

static bool device_location(const CUmemLocation *location, CUmemAllocationType type)
{
	return location && location->type == CU_MEM_LOCATION_TYPE_DEVICE && type == CU_MEM_ALLOCATION_TYPE_PINNED;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *out, CUmemLocation *location, CUmemAllocationType type)
{
	return device_location(location, type) ? cuDeviceGetDefaultMemPool(out, location->id)
					       : sim_unsupported("cuMemGetDefaultMemPool of other than device memory");
}

CUresult cuMemGetMemPool(CUmemoryPool *out, CUmemLocation *location, CUmemAllocationType type)
{
	return device_location(location, type) ? cuDeviceGetMemPool(out, location->id)
					       : sim_unsupported("cuMemGetMemPool of other than device memory");
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
	return device_location(location, type) ? cuDeviceSetMemPool(location->id, pool)
					       : sim_unsupported("cuMemSetMemPool of other than device memory");
}
