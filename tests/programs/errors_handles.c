/* Calls without a handle, or without a pointer for the result. */
#include "program.h"

int main(void)
{
	CUstreamCaptureStatus status;
	CUdeviceptr p;
	CUfunction f;
	CUkernel k;
	CUgraphExec executable;
	CUcontext context;
	const char *text = NULL;
	size_t size;
	int value;

	start();
	SHOW(cuModuleGetFunction(&f, NULL, "fill"));
	SHOW(cuModuleGetGlobal(&p, &size, NULL, "words"));
	SHOW(cuModuleUnload(NULL));
	SHOW(cuLibraryGetKernel(&k, NULL, "fill"));
	SHOW(cuLibraryUnload(NULL));
	SHOW(cuCtxDestroy(NULL));
	SHOW(cuCtxPushCurrent(NULL));
	SHOW(cuGraphLaunch(NULL, NULL));
	SHOW(cuGraphInstantiate(&executable, NULL, 0));
	SHOW(cuGraphDestroy(NULL));
	SHOW(cuGraphExecDestroy(NULL));
	SHOW(cuArrayDestroy(NULL));
	SHOW(cuMemPoolDestroy(NULL));
	SHOW(cuMemAllocFromPoolAsync(&p, 100, NULL, NULL));
	SHOW(cuEventSynchronize(NULL));
	SHOW(cuEventQuery(NULL));
	SHOW(cuStreamWaitEvent(NULL, NULL, 0));
	SHOW(cuStreamIsCapturing(NULL, &status));
	SHOW(cuStreamCreate(NULL, CU_STREAM_DEFAULT));
	SHOW(cuEventCreate(NULL, CU_EVENT_DEFAULT));
	SHOW(cuDevicePrimaryCtxRetain(&context, 1000));
	SHOW(cuDeviceGetAttribute(&value, 100000, 0));
	SHOW(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, NULL));
	SHOW(cuGetErrorName(12345, &text));
	SHOW(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
	printf("%s\n", text);
	SHOW(cuCtxSynchronize());
	return 0;
}
