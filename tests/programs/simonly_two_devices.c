/* Two devices (TT_SIM_DEVICES=2): kernels reach the other's memory only with peer access. */
#include "program.h"

int main(void)
{
	int count, can;
	unsigned value = 7;
	CUcontext contexts[2];
	CUdevice device;
	CUfunction poke[2];
	CUdeviceptr p[2];

	OK(cuInit(0));
	SHOW(cuDeviceGetCount(&count));
	printf("devices %d\n", count);
	SHOW(cuDeviceGet(&device, 2));
	for (int i = 0; i < 2; i++) {
		OK(cuDevicePrimaryCtxRetain(&contexts[i], i));
		OK(cuCtxSetCurrent(contexts[i]));
		poke[i] = get_kernel(load_kernels(), "poke");
		p[i] = allocate(400);
		OK(cuMemsetD32(p[i], 100 + i, 100));
		OK(cuCtxSynchronize());
	}
	SHOW(cuDeviceCanAccessPeer(&can, 0, 1));
	printf("can %d\n", can);
	OK(cuCtxSetCurrent(contexts[0]));
	SHOW(cuCtxDisablePeerAccess(contexts[1]));
	SHOW(cuCtxEnablePeerAccess(contexts[1], 0));
	SHOW(cuCtxEnablePeerAccess(contexts[1], 0));
	SHOW(launch(poke[0], 1, NULL, PARAMS(&p[1], &value)));
	SHOW(launch(poke[1], 1, NULL, PARAMS(&p[1], &value)));
	SHOW(cuCtxSynchronize());
	SHOW(cuMemcpyPeer(p[0], contexts[0], p[1], contexts[1], 8));
	print_words("copied over", p[0], 3);
	SHOW(cuMemcpy(p[1] + 40, p[0], 8));
	print_words("and back", p[1] + 36, 4);
	OK(cuCtxSetCurrent(contexts[1]));
	SHOW(launch(poke[1], 1, NULL, PARAMS(&p[0], &value)));
	SHOW(cuCtxSynchronize());
	SHOW(cuMemFree(p[1]));
	OK(cuCtxSetCurrent(contexts[0]));
	SHOW(cuCtxSynchronize());
	print_words("the other goes on", p[0], 3);
	return 0;
}
