/* A context ends while an epoch that has just been captured is not stored yet. */
#include "program.h"

#define SIZE ((size_t)1 << 20)

int main(void)
{
	CUdevice device;
	CUcontext context;
	uint64_t *words = malloc(SIZE);

	OK(cuInit(0));
	OK(cuDeviceGet(&device, 0));
	OK(cuCtxCreate(&context, NULL, 0, device));
	CUdeviceptr p = allocate(SIZE);
	for (size_t i = 0; i < SIZE / 8; i++)
		words[i] = (i + 1) * 0x9e3779b97f4a7c15u;
	OK(cuMemcpyHtoD(p, words, SIZE));
	OK(cuCtxSynchronize());
	SHOW(cuCtxDestroy(context));
	return 0;
}
