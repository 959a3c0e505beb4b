/*
 * Queries about pointers.
 *
 * Invariant: every answer comes from the region table.
 */
#include <string.h>

#include "sim/driver/driver.h"

static bool is_host(const struct region *r)
{
	return r->kind == REGION_HOST || r->kind == REGION_REGISTERED;
}

static unsigned long long handle_types(const struct region *r)
{
	if (r->kind == REGION_VMM)
		return r->physical->properties.requestedHandleTypes;
	return r->kind == REGION_POOL ? r->pool->properties.handleTypes : CU_MEM_HANDLE_TYPE_NONE;
}

unsigned access_flags(const struct region *r, CUcontext ctx)
{
	uint64_t bit = 1ull << ctx->device;

	if (r->kind == REGION_VMM || r->kind == REGION_POOL)
		return (r->readers & bit ? 1u : 0) | (r->writers & bit ? 2u : 0);
	if (is_host(r) || r->kind == REGION_MANAGED || context_reach(ctx) >> r->device & 1)
		return CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
	return CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE;
}

#define ANSWER(type, value) (*(type *)out = (type)(value))

/* r is NULL for a pointer that is not the driver's: the result is zeros and INVALID_VALUE. */
static CUresult answer(void *out, CUpointer_attribute attribute, CUdeviceptr address, const struct region *r, CUcontext ctx)
{
	CUresult known = r ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		ANSWER(CUcontext, r ? r->ctx : NULL);
		return known;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		ANSWER(unsigned, !r ? 0 : is_host(r) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
		return known;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		ANSWER(CUdeviceptr, r ? address : 0);
		return known;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		if (r && !is_host(r) && r->kind != REGION_MANAGED)
			known = CUDA_ERROR_INVALID_VALUE;
		ANSWER(void *, known ? NULL : (void *)(uintptr_t)address);
		return known;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		ANSWER(unsigned, r && r->sync_memops);
		return known;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		ANSWER(unsigned long long, r ? r->id : 0);
		return known;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		ANSWER(unsigned, r && r->kind == REGION_MANAGED);
		return known;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		ANSWER(int, !r ? -2 : r->device >= 0 ? r->device : ctx->device);
		return known;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
	case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
		ANSWER(unsigned, 0);
		return known;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		ANSWER(CUdeviceptr, r ? r->base : 0);
		return known;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		if (r)
			ANSWER(size_t, r->size);
		return known;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		ANSWER(unsigned, r != NULL);
		return known;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		ANSWER(unsigned long long, r ? handle_types(r) : 0);
		return known;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		ANSWER(unsigned, r ? access_flags(r, ctx) : 0);
		return known;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		ANSWER(CUmemoryPool, r && r->kind == REGION_POOL ? r->pool : NULL);
		return known;
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		ANSWER(size_t, r ? r->size : 0);
		return known;
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		ANSWER(CUdeviceptr, r ? r->base : 0);
		return known;
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		ANSWER(unsigned long long, r ? r->id : 0);
		return known;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static const struct region *region_alive(CUdeviceptr address)
{
	const struct region *r = region_find(address);

	return r && !r->dying ? r : NULL;
}

CUresult cuPointerGetAttribute(void *out, CUpointer_attribute attribute, CUdeviceptr address)
{
	CUcontext ctx;
	CUresult result = sim_enter(&ctx);
	uint64_t scratch;

	if (result)
		return result;
	const struct region *r = region_alive(address);
	INVALID_IF(!out);
	/* An attribute without a value leaves the caller's variable unchanged. */
	result = answer(&scratch, attribute, address, r, ctx);
	if (!result)
		result = answer(out, attribute, address, r, ctx);
	return sim_leave(result);
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **out, CUdeviceptr address)
{
	CUcontext ctx;

	ENTER(sim_enter(&ctx));
	INVALID_IF(!count || !attributes || !out);
	const struct region *r = region_alive(address);
	for (unsigned i = 0; i < count; i++) {
		if (!out[i] || attributes[i] <= 0 || attributes[i] > CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE ||
		    attributes[i] == CU_POINTER_ATTRIBUTE_P2P_TOKENS)
			return sim_leave(CUDA_ERROR_INVALID_VALUE);
	}
	for (unsigned i = 0; i < count; i++)
		answer(out[i], attributes[i], address, r, ctx);
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
	CUcontext ctx;

	ENTER(sim_enter(&ctx));
	struct region *r = region_find(address);
	INVALID_IF(!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !r || r->base != address);
	r->sync_memops = *(const unsigned *)value != 0;
	return sim_leave(CUDA_SUCCESS);
}
