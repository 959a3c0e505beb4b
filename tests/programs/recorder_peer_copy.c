/* Two devices: a copy from the first to the second, then a new allocation on the first. */
#include "program.h"

int main(void)
{
	CUcontext contexts[2];

	OK(cuInit(0));
	for (int i = 0; i < 2; i++)
		OK(cuDevicePrimaryCtxRetain(&contexts[i], i));
	OK(cuCtxSetCurrent(contexts[0]));
	CUdeviceptr p = allocate(4096);
	OK(cuCtxSetCurrent(contexts[1]));
	CUdeviceptr q = allocate(4096);
	OK(cuMemsetD8(q, 1, 4096));
	OK(cuMemcpyPeer(p, contexts[0], q, contexts[1], 4096));
	OK(cuCtxSetCurrent(contexts[0]));
	for (int i = 0; i < 2; i++) {
		p = allocate(3 << 20);
		OK(cuMemsetD8(p, 1, 3 << 20));
	}
	OK(cuCtxSynchronize());
	return 0;
}
