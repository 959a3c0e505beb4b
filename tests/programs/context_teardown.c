/* A context goes away while it still holds memory, streams, events and modules. */
#include "program.h"

int main(void)
{
	CUdevice device;
	CUcontext context;
	CUstream stream;
	CUevent event;
	unsigned n = 5000, rounds = 200;

	OK(cuInit(0));
	OK(cuDeviceGet(&device, 0));
	for (unsigned i = 0; i < 3; i++) {
		SHOW(cuCtxCreate(&context, NULL, 0, device));
		CUfunction mix = get_kernel(load_kernels(), "mix");
		CUdeviceptr p = allocate(n * 4);
		OK(cuMemsetD32(p, i, n));
		OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
		OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
		OK(cuCtxSynchronize());
		SHOW(launch(mix, n, stream, PARAMS(&p, &n, &rounds)));
		OK(cuEventRecord(event, stream));
		SHOW(cuStreamSynchronize(stream));
		print_device("result", p, n * 4);
		SHOW(launch(mix, n, stream, PARAMS(&p, &n, &rounds)));
		SHOW(cuCtxDestroy(context));
	}
	return 0;
}
