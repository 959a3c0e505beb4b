/*
 * Resets the primary context many times while several streams have unfinished work, and with "capturing"
 * also while a stream is being captured. What the program creates afterwards works.
 */
#include "program.h"

#define STREAMS 4
#define N 20000u

static CUdeviceptr work(CUstream *streams, unsigned value)
{
	CUfunction fill, add;
	CUdeviceptr p = 0;
	unsigned n = N;

	CUmodule module = load_kernels();
	fill = get_kernel(module, "fill");
	add = get_kernel(module, "add");
	for (int i = 0; i < STREAMS; i++) {
		p = allocate(N * 4);
		OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
		OK(launch(fill, n, streams[i], PARAMS(&p, &n, &value)));
		for (int k = 0; k < 3; k++)
			OK(launch(add, n, streams[i], PARAMS(&p, &n, &value)));
	}
	return p;
}

int main(int argc, char **argv)
{
	CUstream streams[STREAMS];
	CUcontext context;
	CUdevice device;

	OK(cuInit(0));
	OK(cuDeviceGet(&device, 0));
	for (unsigned i = 0; i < 4; i++) {
		OK(cuDevicePrimaryCtxRetain(&context, device));
		OK(cuCtxSetCurrent(context));
		CUdeviceptr p = work(streams, i + 1);
		if (i == 3) {
			OK(cuCtxSynchronize());
			print_device("result", p, N * 4);
		} else if (argc > 1 && !strcmp(argv[1], "capturing")) {
			OK(cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_RELAXED));
		}
		SHOW(cuDevicePrimaryCtxReset(device));
		SHOW(cuCtxSynchronize());
	}
	return 0;
}
