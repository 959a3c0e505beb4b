/* The stack of contexts of a thread, destroyed contexts, limits and preferences. */
#include "program.h"

int main(void)
{
	CUcontext one, two, primary, now;
	CUdevice device;
	unsigned flags, version;
	unsigned long long first, second;
	int active, least, greatest;
	size_t value;
	CUdeviceptr p;
	CUevent event;

	OK(cuInit(0));
	OK(cuDeviceGet(&device, 0));
	SHOW(cuCtxGetCurrent(&now));
	printf("none %d\n", now == NULL);
	SHOW(cuCtxGetDevice(&device));
	SHOW(cuMemAlloc(&p, 100));
	SHOW(cuCtxPopCurrent(&now));
	SHOW(cuDevicePrimaryCtxGetState(device, &flags, &active));
	printf("active %d\n", active);
	SHOW(cuCtxCreate(&one, NULL, CU_CTX_SCHED_BLOCKING_SYNC, device));
	SHOW(cuCtxCreate(&two, NULL, 0, device));
	OK(cuCtxGetCurrent(&now));
	printf("the second %d\n", now == two);
	SHOW(cuCtxGetApiVersion(one, &version));
	OK(cuCtxGetId(one, &first));
	OK(cuCtxGetId(two, &second));
	printf("ids differ %d\n", first != second);
	SHOW(cuCtxPopCurrent(&now));
	OK(cuCtxGetCurrent(&now));
	printf("the first %d\n", now == one);
	SHOW(cuCtxGetFlags(&flags));
	printf("schedule %u\n", flags & CU_CTX_SCHED_MASK);
	SHOW(cuCtxPushCurrent(two));
	SHOW(cuMemAlloc(&p, 100));
	SHOW(cuEventCreate(&event, 0));
	SHOW(cuCtxDestroy(two));
	OK(cuCtxGetCurrent(&now));
	printf("the first %d\n", now == one);
	SHOW(cuMemFree(p));
	SHOW(cuCtxSetCurrent(NULL));
	OK(cuCtxGetCurrent(&now));
	printf("none %d\n", now == NULL);

	SHOW(cuDevicePrimaryCtxRelease(device));
	SHOW(cuDevicePrimaryCtxRetain(&primary, device));
	SHOW(cuCtxSetCurrent(primary));
	SHOW(cuDevicePrimaryCtxGetState(device, &flags, &active));
	printf("active %d\n", active);
	SHOW(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
	printf("a stack %d\n", value > 0);
	SHOW(cuCtxGetLimit(&value, CU_LIMIT_MAX));
	SHOW(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 16 << 20));
	SHOW(cuCtxGetLimit(&value, CU_LIMIT_MALLOC_HEAP_SIZE));
	printf("heap %zu\n", value);
	SHOW(cuCtxGetStreamPriorityRange(&least, &greatest));
	printf("least %d, greatest %d\n", least, greatest);
	SHOW(cuCtxDestroy(primary));
	SHOW(cuDevicePrimaryCtxRelease(device));
	SHOW(cuDevicePrimaryCtxGetState(device, &flags, &active));
	printf("active %d\n", active);
	SHOW(cuMemAlloc(&p, 100));
	SHOW(cuCtxSetCurrent(one));
	SHOW(cuCtxDestroy(one));
	return 0;
}
