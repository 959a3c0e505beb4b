/*
 * Wrappers of queries about pointers and of access rights. For memory in the arena they answer as if the driver had
 * allocated it by itself.
 */
#include "arena/arena.h"
#include "hooks/op.h"

EXPORT CUresult CUDAAPI cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr p)
{
	struct arena_allocation a;
	CUdeviceptr nothing;
	CUdevice user;
	size_t none;

	HOOK(op, cuMemGetAddressRange_v2);
	if (!arena_holds(p))
		return real.cuMemGetAddressRange_v2(base, size, p);
	CUresult r = real.cuMemGetAddressRange_v2(&nothing, &none, ARENA_NOWHERE); /* its error, or the context's */
	if ((r != CUDA_ERROR_NOT_FOUND && r != CUDA_ERROR_INVALID_VALUE) || !arena_find(p, &a))
		return r;
	if (real.cuCtxGetDevice(&user) != CUDA_SUCCESS || arena_is_closed(user, p))
		return r;
	if (base)
		*base = a.base;
	if (size)
		*size = a.size;
	return CUDA_SUCCESS;
}

#define ANSWER(type, value) (*(type *)out = (type)(value))

/* False: the driver's answer about the mapping is right for the allocation. */
static bool answer(void *out, CUpointer_attribute attribute, const struct arena_allocation *a)
{
	switch ((int)attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		ANSWER(CUcontext, a->context);
		return true;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		ANSWER(unsigned, a->sync_memops);
		return true;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		ANSWER(unsigned long long, a->id);
		return true;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		ANSWER(unsigned, !a->pool && arena_exportable(a->base));
		return true;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		ANSWER(unsigned long long, CU_MEM_HANDLE_TYPE_NONE);
		return true;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		ANSWER(CUmemoryPool, a->pool);
		return true;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		ANSWER(CUdeviceptr, a->base);
		return true;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		ANSWER(size_t, a->size);
		return true;
	default:
		return false;
	}
}

/* Whether the driver accepted the call, except for attributes that a mapping lacks. */
static bool accepted(CUresult r)
{
	return r == CUDA_SUCCESS || r == CUDA_ERROR_INVALID_VALUE || r == CUDA_ERROR_NOT_SUPPORTED;
}

EXPORT CUresult CUDAAPI cuPointerGetAttribute(void *out, CUpointer_attribute attribute, CUdeviceptr p)
{
	struct arena_allocation a;

	HOOK(op, cuPointerGetAttribute);
	if (!arena_holds(p))
		return real.cuPointerGetAttribute(out, attribute, p);
	if (!arena_find(p, &a))
		return real.cuPointerGetAttribute(out, attribute, ARENA_NOWHERE);
	CUresult r = real.cuPointerGetAttribute(out, attribute, p);
	return out && accepted(r) && answer(out, attribute, &a) ? CUDA_SUCCESS : r;
}

EXPORT CUresult CUDAAPI cuPointerGetAttributes(unsigned n, CUpointer_attribute *attributes, void **out, CUdeviceptr p)
{
	struct arena_allocation a;

	HOOK(op, cuPointerGetAttributes);
	if (!arena_holds(p))
		return real.cuPointerGetAttributes(n, attributes, out, p);
	if (!arena_find(p, &a))
		return real.cuPointerGetAttributes(n, attributes, out, ARENA_NOWHERE);
	CUresult r = real.cuPointerGetAttributes(n, attributes, out, p);
	for (unsigned i = 0; r == CUDA_SUCCESS && i < n; i++)
		answer(out[i], attributes[i], &a);
	return r;
}

EXPORT CUresult CUDAAPI cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr p)
{
	HOOK(op, cuPointerSetAttribute);
	if (!arena_holds(p))
		return real.cuPointerSetAttribute(value, attribute, p);
	CUresult r = real.cuPointerSetAttribute(value, attribute, ARENA_NOWHERE);
	if (!accepted(r) || !value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
		return r;
	return arena_set_sync_memops(p, *(const unsigned *)value) ? CUDA_SUCCESS : r;
}

/* ---- peers ---- */

static CUdevice device_of(CUcontext handle)
{
	CUdevice device = -1;

	if (!context_push(handle))
		return -1;
	if (real.cuCtxGetDevice(&device) != CUDA_SUCCESS)
		device = -1;
	context_pop();
	return device;
}

static void open_peer(CUcontext peer, bool open)
{
	CUdevice user;

	if (options.deterministic && atomic_load(&session_state) != SESSION_OFF && real.cuCtxGetDevice(&user) == CUDA_SUCCESS)
		arena_open(device_of(peer), user, open);
}

AFTER(cuCtxEnablePeerAccess, (CUcontext peer, unsigned flags), (peer, flags), open_peer(peer, true))
AFTER(cuCtxDisablePeerAccess, (CUcontext peer), (peer), open_peer(peer, false))

/* ---- pools ---- */

static bool is_size(CUmemPool_attribute a)
{
	return a == CU_MEMPOOL_ATTR_USED_MEM_CURRENT || a == CU_MEMPOOL_ATTR_USED_MEM_HIGH ||
	       a == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT || a == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH;
}

static void open_pool(CUmemoryPool pool, const CUmemAccessDesc *access, size_t n)
{
	for (size_t i = 0; options.deterministic && i < n; i++)
		if (access[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE)
			arena_pool_open(pool, access[i].location.id, access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

AFTER(cuMemPoolCreate, (CUmemoryPool *pool, const CUmemPoolProps *p), (pool, p), if (options.deterministic) arena_pool_made(*pool, p))
AFTER(cuMemPoolDestroy, (CUmemoryPool pool), (pool), if (options.deterministic) arena_pool_gone(pool))
AFTER(cuDeviceSetMemPool, (CUdevice device, CUmemoryPool pool), (device, pool), arena_pool_chosen())
AFTER(cuMemSetMemPool, (CUmemLocation *l, CUmemAllocationType type, CUmemoryPool pool), (l, type, pool), arena_pool_chosen())
AFTER(cuMemPoolGetAttribute, (CUmemoryPool pool, CUmemPool_attribute a, void *value), (pool, a, value), if (options.deterministic && is_size(a)) *(cuuint64_t *)value += arena_pool_usage(pool, a))
AFTER(cuMemPoolSetAttribute, (CUmemoryPool pool, CUmemPool_attribute a, void *value), (pool, a, value), if (options.deterministic && is_size(a)) arena_pool_lower(pool, a))
AFTER(cuMemPoolSetAccess, (CUmemoryPool pool, const CUmemAccessDesc *access, size_t n), (pool, access, n), open_pool(pool, access, n))
