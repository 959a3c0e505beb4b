/* Memory is freed while another context is current or none is, and while the driver refuses that. */
#include "program.h"

#define SIZE 100000

static CUmemAllocationProp props = {
	.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
};

static CUdeviceptr map(size_t size, CUmemGenericAllocationHandle memory)
{
	CUmemAccessDesc access = {.location = props.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUdeviceptr p;

	OK(cuMemAddressReserve(&p, size, 0, 0, 0));
	OK(cuMemMap(p, size, 0, memory, 0));
	OK(cuMemSetAccess(p, size, &access, 1));
	return p;
}

int main(void)
{
	CUmemGenericAllocationHandle memory;
	CUdeviceptr freed, refused, hidden, unmapped;
	CUmemAccessDesc none = {.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE};
	CUcontext owner, other;
	CUdevice device;
	CUstream stream;
	CUgraph graph;
	size_t size;
	void *host;

	OK(cuInit(0));
	OK(cuDeviceGet(&device, 0));
	props.location.id = device;
	none.location = props.location;
	OK(cuCtxCreate(&other, NULL, 0, device));
	OK(cuCtxPopCurrent(NULL));
	OK(cuCtxCreate(&owner, NULL, 0, device));
	OK(cuMemGetAllocationGranularity(&size, &props, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	OK(cuMemCreate(&memory, size, &props, 0));
	freed = allocate(SIZE);
	refused = allocate(SIZE);
	hidden = map(size, memory);
	unmapped = map(size, memory);
	OK(cuMemAllocHost(&host, SIZE));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemsetD8(freed, 1, SIZE));
	OK(cuMemsetD8(refused, 2, SIZE));
	OK(cuMemsetD8(hidden, 3, size));
	SHOW(cuCtxSynchronize());

	OK(cuCtxSetCurrent(other));
	SHOW(cuMemFree(freed));
	SHOW(cuMemFreeHost(host));
	OK(cuCtxSetCurrent(NULL));
	SHOW(cuMemUnmap(unmapped, size));
	SHOW(cuMemSetAccess(hidden, size, &none, 1));
	OK(cuCtxSetCurrent(owner));
	OK(cuMemsetD8(refused, 4, 1));
	SHOW(cuCtxSynchronize());

	SHOW(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	SHOW(cuMemFree(refused));
	cuStreamEndCapture(stream, &graph);
	OK(cuMemsetD8(refused, 5, 2));
	print_device("refused", refused, SIZE);
	SHOW(cuCtxSynchronize());
	SHOW(cuMemUnmap(hidden, size));
	SHOW(cuMemFree(refused));
	return 0;
}
