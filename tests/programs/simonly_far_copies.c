/* Two devices (TT_SIM_DEVICES=2) without peer access: copies and sets work on both from either. */
#include "program.h"

int main(void)
{
	CUcontext contexts[2];
	CUdeviceptr p[2], q;
	CUfunction poke;
	unsigned value = 7;
	char back[8];

	OK(cuInit(0));
	for (int i = 0; i < 2; i++) {
		OK(cuDevicePrimaryCtxRetain(&contexts[i], i));
		OK(cuCtxSetCurrent(contexts[i]));
		p[i] = allocate(400);
		OK(cuMemsetD32(p[i], 100 + i, 100));
		OK(cuCtxSynchronize());
	}
	for (int i = 0; i < 2; i++) {
		OK(cuCtxSetCurrent(contexts[i]));
		SHOW(cuMemcpyDtoD(p[0], p[1] + 4, 4));
		SHOW(cuMemcpy(p[1] + 8, p[0] + 4, 4));
		SHOW(cuMemcpyDtoDAsync(p[0] + 16, p[1] + 4, 4, NULL));
		SHOW(cuMemcpyAsync(p[1] + 20, p[0] + 4, 4, NULL));
		SHOW(cuMemcpyPeer(p[0] + 24, contexts[0], p[1], contexts[1], 4));
		SHOW(cuCtxSynchronize());
		print_words("first", p[0], 8);
		print_words("second", p[1], 8);
		SHOW(cuMemcpyHtoD(p[!i], "abcdefg", 8));
		SHOW(cuMemcpyDtoH(back, p[!i], 8));
		printf("%s\n", back);
		SHOW(cuMemsetD32(p[!i] + 12, 5, 1));
		SHOW(cuMemFree(p[!i]));
		SHOW(cuMemFree(p[!i]));
		OK(cuCtxSetCurrent(contexts[!i]));
		p[!i] = allocate(400);
		OK(cuMemsetD32(p[!i], 200 + i, 100));
		OK(cuCtxSynchronize());
	}
	OK(cuCtxSetCurrent(contexts[0]));
	OK(cuMemAllocAsync(&q, 100, NULL));
	SHOW(cuMemcpyDtoD(q, p[1], 100));
	print_words("stream-ordered", q, 3);
	OK(cuCtxSetCurrent(contexts[1]));
	poke = get_kernel(load_kernels(), "poke");
	SHOW(cuCtxEnablePeerAccess(contexts[0], 0));
	SHOW(launch(poke, 1, NULL, PARAMS(&p[0], &value)));
	SHOW(cuCtxSynchronize());
	print_words("written from the other", p[0], 2);
	return 0;
}
