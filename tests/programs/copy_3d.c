/* Three-dimensional copies with offsets, pitches and heights. */
#include "program.h"

enum { SIZE = 60000 };

int main(void)
{
	unsigned char *in = pattern(SIZE, 1), *out = calloc(1, SIZE);
	CUstream stream;

	start();
	CUdeviceptr a = allocate(SIZE);
	OK(cuMemsetD8(a, 0, SIZE));
	OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
	CUDA_MEMCPY3D up = {
		.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = in, .srcPitch = 50, .srcHeight = 20,
		.srcXInBytes = 3, .srcY = 2, .srcZ = 1,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = a, .dstPitch = 64, .dstHeight = 24,
		.dstXInBytes = 1, .dstY = 1, .dstZ = 2,
		.WidthInBytes = 41, .Height = 17, .Depth = 11,
	};
	CUDA_MEMCPY3D down = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = a, .srcPitch = 64, .srcHeight = 24,
		.dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = out, .dstPitch = 64, .dstHeight = 20,
		.WidthInBytes = 64, .Height = 20, .Depth = 13,
	};
	SHOW(cuMemcpy3D(&up));
	print_device("up", a, SIZE);
	SHOW(cuMemcpy3DAsync(&down, stream));
	SHOW(cuStreamSynchronize(stream));
	print_host("down", out, SIZE);
	down.Depth = 0;
	SHOW(cuMemcpy3D(&down));
	OK(cuStreamDestroy(stream));
	OK(cuMemFree(a));
	free(in);
	free(out);
	return 0;
}
