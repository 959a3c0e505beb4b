/* The primary context: retained twice, released, reset, and retained again. */
#include "program.h"

static void state(CUdevice device)
{
	unsigned flags = 0;
	int active = -1;

	SHOW(cuDevicePrimaryCtxGetState(device, &flags, &active));
	printf("flags %u, active %d\n", flags, active);
}

int main(void)
{
	CUcontext one, two;
	CUdevice device, of;
	CUdeviceptr p;

	OK(cuInit(0));
	OK(cuDeviceGet(&device, 0));
	state(device);
	SHOW(cuDevicePrimaryCtxRelease(device));
	SHOW(cuDevicePrimaryCtxSetFlags(device, CU_CTX_SCHED_BLOCKING_SYNC));
	SHOW(cuDevicePrimaryCtxRetain(&one, device));
	state(device);
	SHOW(cuDevicePrimaryCtxRetain(&two, device));
	printf("the same %d\n", one == two);
	SHOW(cuCtxSetCurrent(one));
	SHOW(cuCtxGetDevice(&of));
	printf("its device %d\n", of == device);
	SHOW(cuMemAlloc(&p, 1000));
	OK(cuMemsetD8(p, 1, 1000));
	SHOW(cuDevicePrimaryCtxRelease(device));
	state(device);
	print_device("still there", p, 1000);
	SHOW(cuDevicePrimaryCtxReset(device));
	state(device);
	SHOW(cuDevicePrimaryCtxRetain(&one, device));
	SHOW(cuCtxSetCurrent(one));
	SHOW(cuMemAlloc(&p, 2000));
	OK(cuMemsetD8(p, 2, 2000));
	print_device("new", p, 2000);
	SHOW(cuDevicePrimaryCtxRelease(device));
	state(device);
	return 0;
}
