/*
 * Maps device memory at chosen addresses. See mapping.h for the invariant.
 */
#include "arena/mapping.h"

CUmemAllocationProp mapping_properties(CUdevice device)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
	};
}

bool mapping_supported(const CUmemAllocationProp *properties, size_t *granule)
{
	int supported = 0;

	return real.cuMemAddressReserve && real.cuMemAddressFree && real.cuMemCreate && real.cuMemRelease && real.cuMemMap &&
	       real.cuMemUnmap && real.cuMemSetAccess && real.cuMemGetAllocationGranularity &&
	       real.cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
					 properties->location.id) == CUDA_SUCCESS &&
	       supported &&
	       real.cuMemGetAllocationGranularity(granule, properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) == CUDA_SUCCESS &&
	       *granule;
}

CUresult mapping_set_access(uint64_t base, uint64_t size, CUdevice device, uint64_t users)
{
	CUmemAccessDesc access[65];
	size_t n = 0;

	access[n++] = (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	for (int i = 0; i < 64; i++)
		if (users >> i & 1 && i != device)
			access[n++] = (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_DEVICE, i}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	return real.cuMemSetAccess(base, size, access, n);
}

CUresult mapping_make_of(uint64_t base, uint64_t size, CUmemGenericAllocationHandle memory, CUdevice device, uint64_t users)
{
	CUresult r = real.cuMemMap(base, size, 0, memory, 0);

	real.cuMemRelease(memory); /* the mapping keeps the memory */
	if (r == CUDA_SUCCESS && (r = mapping_set_access(base, size, device, users)) != CUDA_SUCCESS)
		real.cuMemUnmap(base, size);
	return r;
}

CUresult mapping_make(uint64_t base, uint64_t size, const CUmemAllocationProp *properties, uint64_t users)
{
	CUmemGenericAllocationHandle memory;
	CUresult r = real.cuMemCreate(&memory, size, properties, 0);

	return r == CUDA_SUCCESS ? mapping_make_of(base, size, memory, properties->location.id, users) : r;
}

CUresult mapping_make_twice(uint64_t base, uint64_t size, const CUmemAllocationProp *properties)
{
	CUmemGenericAllocationHandle memory;
	CUresult r = real.cuMemCreate(&memory, size, properties, 0), second;

	if (r != CUDA_SUCCESS)
		return r;
	r = real.cuMemMap(base, size, 0, memory, 0);
	second = r == CUDA_SUCCESS ? mapping_make_of(base + size, size, memory, properties->location.id, 0) : r;
	if (r != CUDA_SUCCESS)
		real.cuMemRelease(memory);
	else if (second == CUDA_SUCCESS &&
		 (second = mapping_set_access(base, size, properties->location.id, 0)) != CUDA_SUCCESS)
		real.cuMemUnmap(base + size, size);
	if (r == CUDA_SUCCESS && second != CUDA_SUCCESS)
		real.cuMemUnmap(base, size);
	return second;
}
