/*
 * Accesses to unmapped memory, one kind after another; each kernel fault costs a context. The argument
 * names the kind.
 */
#include "program.h"

static CUdevice device;
static CUfunction poke;
static unsigned value = 1;

static void touch(const char *what, CUdeviceptr p)
{
	OK(launch(poke, 1, NULL, PARAMS(&p, &value)));
	printf("%s: %s\n", what, result_name(cuCtxSynchronize()));
	OK(cuDevicePrimaryCtxReset(device));
	device = start();
	poke = get_kernel(load_kernels(), "poke");
}

static void check_calls(void)
{
	char host[200];
	CUdeviceptr p = allocate(1000);

	SHOW(cuMemcpyHtoD(p + 900, host, 101));
	SHOW(cuMemcpyDtoH(host, p + 1000, 1));
	SHOW(cuMemsetD8(p, 1, 1001));
	SHOW(cuMemsetD32(p + 2, 1, 10));
	SHOW(cuMemsetD32(p, 1, 251));
	SHOW(cuMemcpyDtoD(p + 500, p, 501));
	SHOW(cuMemFree(p + 8));
	SHOW(cuMemFree(p));
	SHOW(cuMemFree(p));
	SHOW(cuMemsetD8(p, 1, 1));
}

int main(void)
{
	CUdeviceptr p, range;
	CUmemGenericAllocationHandle memory;
	CUmemAllocationProp props = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
	};
	CUmemAccessDesc access = {.location = props.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READ};
	size_t size = 2 << 20;

	device = start();
	poke = get_kernel(load_kernels(), "poke");
	check_calls();
	p = allocate(1001);
	touch("inside", p + 996);
	p = allocate(1001);
	touch("across the end", p + 1000);
	p = allocate(1001);
	touch("behind the end", p + 1004);
	p = allocate(1001);
	OK(cuMemFree(p));
	touch("freed", p);
	OK(cuMemAllocAsync(&p, 1000, NULL));
	OK(cuMemFreeAsync(p, NULL));
	touch("freed in the stream", p);
	p = allocate(1001);
	touch("misaligned", p + 2);
	touch("no address", 0);
	touch("the host's", (CUdeviceptr)(uintptr_t)&value);

	OK(cuMemAddressReserve(&range, size, 0, 0, 0));
	touch("reserved", range);
	OK(cuMemCreate(&memory, size, &props, 0));
	OK(cuMemMap(range, size, 0, memory, 0));
	touch("mapped without access", range);
	OK(cuMemSetAccess(range, size, &access, 1));
	touch("mapped to be read", range);
	access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	OK(cuMemSetAccess(range, size, &access, 1));
	touch("mapped to be written", range);
	OK(cuMemUnmap(range, size));
	touch("unmapped", range);
	return 0;
}
