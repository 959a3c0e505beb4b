/*
 * Two devices without peer access: the driver copies the other device's memory, refuses to set it, and
 * finds its address range only after the program has opened it.
 */
#include "program.h"

static void ask(const char *name, CUdeviceptr start)
{
	CUdeviceptr base = 0;
	size_t size = 0;

	SHOW(cuMemGetAddressRange(&base, &size, start + 100));
	printf("range of %s %d\n", name, base == start && size == 4096);
}

int main(void)
{
	CUcontext contexts[2];
	CUdeviceptr p[2], pooled;
	CUmemoryPool pool;
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUstream stream;
	CUcontext owner;
	unsigned words[4] = {1, 2, 3, 4}, back[4] = {0};
	int ordinal = -1;

	OK(cuInit(0));
	for (int i = 0; i < 2; i++) {
		OK(cuDevicePrimaryCtxRetain(&contexts[i], i));
		OK(cuCtxSetCurrent(contexts[i]));
		if (!i)
			OK(cuMemAllocAsync(&pooled, 4096, NULL));
		p[i] = allocate(4096);
		OK(cuMemsetD32(p[i], 100 + i, 1024));
		OK(cuCtxSynchronize());
	}
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	SHOW(cuMemcpyHtoD(p[0], words, sizeof(words)));
	SHOW(cuMemcpyDtoH(back, p[0], sizeof(back)));
	printf("came back %u %u\n", back[0], back[3]);
	SHOW(cuMemsetD32(p[0] + 16, 9, 2));
	SHOW(cuMemsetD8(p[0] + 24, 1, 4));
	SHOW(cuMemcpyDtoD(p[1], p[0], 32));
	SHOW(cuCtxSynchronize());
	SHOW(cuMemcpyHtoDAsync(p[0] + 64, words, sizeof(words), stream));
	SHOW(cuMemsetD32Async(p[0] + 80, 8, 2, stream));
	SHOW(cuMemcpyAsync(p[1] + 64, p[0] + 64, 32, stream));
	SHOW(cuStreamSynchronize(stream));
	SHOW(cuMemcpyPeer(p[1] + 128, contexts[1], p[0], contexts[0], 32));
	SHOW(cuMemcpy(p[0] + 128, p[1] + 128, 32));
	SHOW(cuCtxSynchronize());
	SHOW(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p[0]));
	printf("of device %d\n", ordinal);
	SHOW(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, p[0]));
	printf("of its context %d\n", owner == contexts[0]);
	ask("closed memory", p[0]);
	ask("a closed pool", pooled);
	SHOW(cuCtxEnablePeerAccess(contexts[0], 0));
	ask("open memory", p[0]);
	ask("a closed pool", pooled);
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	SHOW(cuMemPoolSetAccess(pool, &access, 1));
	ask("an open pool", pooled);
	SHOW(cuCtxDisablePeerAccess(contexts[0]));
	ask("closed memory", p[0]);
	print_words("here", p[1], 8);
	print_words("here, later", p[1] + 64, 8);
	print_words("here, by a peer's copy", p[1] + 128, 8);
	OK(cuCtxSetCurrent(contexts[0]));
	SHOW(cuCtxSynchronize());
	print_words("there", p[0], 8);
	print_words("there, later", p[0] + 64, 8);
	print_words("there, copied", p[0] + 128, 8);
	SHOW(cuMemFree(p[1]));
	SHOW(cuMemFree(p[0]));
	return 0;
}
