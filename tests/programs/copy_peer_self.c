/* Copies between peers, where both are the same context. */
#include "program.h"

int main(void)
{
	enum { SIZE = 90000 };
	unsigned char *in = pattern(SIZE, 1);
	CUcontext context;
	CUstream stream;

	start();
	OK(cuCtxGetCurrent(&context));
	CUdeviceptr a = allocate(SIZE), b = allocate(SIZE);
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemcpyHtoD(a, in, SIZE));
	OK(cuMemsetD8(b, 0, SIZE));
	SHOW(cuMemcpyPeer(b + 1, context, a, context, SIZE - 1));
	OK(cuCtxSynchronize());
	print_device("peer", b, SIZE);
	SHOW(cuMemcpyPeerAsync(b, context, a + 70000, context, 2000, stream));
	SHOW(cuStreamSynchronize(stream));
	print_device("peer in a stream", b, SIZE);
	CUDA_MEMCPY3D_PEER block = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = a, .srcContext = context, .srcPitch = 100, .srcHeight = 30,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = b, .dstContext = context, .dstPitch = 200, .dstHeight = 20,
		.WidthInBytes = 77, .Height = 19, .Depth = 9,
	};
	SHOW(cuMemcpy3DPeer(&block));
	OK(cuCtxSynchronize());
	print_device("peer block", b, SIZE);
	SHOW(cuMemcpy3DPeerAsync(&block, stream));
	SHOW(cuStreamSynchronize(stream));
	print_device("peer block in a stream", b, SIZE);
	SHOW(cuCtxEnablePeerAccess(context, 0));
	OK(cuStreamDestroy(stream));
	OK(cuMemFree(a));
	OK(cuMemFree(b));
	free(in);
	return 0;
}
