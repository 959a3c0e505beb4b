/* Two contexts of one device: each with memory, a module and a stream of its own. */
#include "program.h"

int main(void)
{
	enum { CONTEXTS = 2 };
	CUcontext contexts[CONTEXTS], current;
	CUdeviceptr p[CONTEXTS];
	CUstream streams[CONTEXTS];
	CUfunction fill[CONTEXTS];
	unsigned n = 1000, version;
	CUdevice device;

	OK(cuInit(0));
	OK(cuDeviceGet(&device, 0));
	for (unsigned i = 0; i < CONTEXTS; i++) {
		SHOW(cuCtxCreate(&contexts[i], NULL, 0, device));
		fill[i] = get_kernel(load_kernels(), "fill");
		p[i] = allocate(n * 4 + i);
		OK(cuStreamCreate(&streams[i], CU_STREAM_DEFAULT));
		SHOW(cuCtxPopCurrent(&current));
		printf("popped the new one %d\n", current == contexts[i]);
	}
	SHOW(cuCtxGetCurrent(&current));
	printf("none left %d\n", current == NULL);
	for (unsigned i = 0; i < 4; i++) {
		unsigned c = i % CONTEXTS, value = 100 * i;

		SHOW(cuCtxPushCurrent(contexts[c]));
		OK(launch(fill[c], n, streams[c], PARAMS(&p[c], &n, &value)));
		SHOW(cuCtxSynchronize());
		print_device("filled", p[c], n * 4);
		SHOW(cuCtxPopCurrent(NULL));
	}
	OK(cuCtxSetCurrent(contexts[0]));
	SHOW(cuCtxGetApiVersion(contexts[0], &version));
	SHOW(launch(fill[0], n, streams[1], PARAMS(&p[0], &n, &n)));
	SHOW(cuCtxDestroy(contexts[1]));
	print_device("the other's", p[0], n * 4);
	SHOW(cuMemFree(p[0]));
	SHOW(cuCtxDestroy(contexts[0]));
	SHOW(cuCtxGetCurrent(&current));
	printf("none left %d\n", current == NULL);
	SHOW(cuCtxSynchronize());
	return 0;
}
