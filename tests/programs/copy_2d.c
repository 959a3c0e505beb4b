/* Two-dimensional copies with offsets and pitches, between host and device. */
#include "program.h"

enum { SIZE = 40000, PITCH = 256, HOST_PITCH = 300 };

int main(void)
{
	unsigned char *in = pattern(SIZE, 1), *out = calloc(1, SIZE);
	CUstream stream;

	start();
	CUdeviceptr a = allocate(SIZE), b = allocate(SIZE);
	OK(cuMemsetD8(a, 0, SIZE));
	OK(cuMemsetD8(b, 0, SIZE));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CUDA_MEMCPY2D up = {
		.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = in, .srcPitch = HOST_PITCH, .srcXInBytes = 7, .srcY = 3,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = a, .dstPitch = PITCH, .dstXInBytes = 5, .dstY = 2,
		.WidthInBytes = 201, .Height = 77,
	};
	CUDA_MEMCPY2D across = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = a, .srcPitch = PITCH,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = b, .dstPitch = 2 * PITCH, .dstXInBytes = 100,
		.WidthInBytes = 156, .Height = 60,
	};
	CUDA_MEMCPY2D down = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = b, .srcPitch = PITCH, .srcY = 1,
		.dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = out, .dstPitch = HOST_PITCH,
		.WidthInBytes = 255, .Height = 100,
	};
	SHOW(cuMemcpy2D(&up));
	print_device("up", a, SIZE);
	SHOW(cuMemcpy2DUnaligned(&across));
	print_device("across", b, SIZE);
	SHOW(cuMemcpy2DAsync(&down, stream));
	SHOW(cuStreamSynchronize(stream));
	print_host("down", out, SIZE);
	up.srcMemoryType = up.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
	up.srcDevice = (CUdeviceptr)(uintptr_t)in;
	up.dstY = 10;
	SHOW(cuMemcpy2D(&up));
	print_device("unified", a, SIZE);

	down.Height = 0;
	SHOW(cuMemcpy2D(&down));
	down.Height = 100;
	down.WidthInBytes = PITCH + 1;
	SHOW(cuMemcpy2D(&down));
	down.WidthInBytes = 10;
	down.srcMemoryType = 0;
	SHOW(cuMemcpy2D(&down));
	OK(cuStreamDestroy(stream));
	OK(cuMemFree(a));
	OK(cuMemFree(b));
	free(in);
	free(out);
	return 0;
}
