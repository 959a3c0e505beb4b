/* A mipmapped array, and a copy through one of its levels. */
#include "program.h"

int main(void)
{
	enum { WIDTH = 64, HEIGHT = 32 };
	unsigned char *in = pattern(WIDTH * HEIGHT, 1), out[WIDTH * HEIGHT / 4] = {0};
	CUmipmappedArray pyramid;
	CUarray level;
	CUDA_ARRAY3D_DESCRIPTOR what = {
		.Width = WIDTH, .Height = HEIGHT, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1,
	}, read;

	start();
	SHOW(cuMipmappedArrayCreate(&pyramid, &what, 3));
	SHOW(cuMipmappedArrayGetLevel(&level, pyramid, 1));
	SHOW(cuArray3DGetDescriptor(&read, level));
	printf("%zu x %zu x %zu\n", read.Width, read.Height, read.Depth);
	CUDA_MEMCPY2D copy = {
		.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = in, .srcPitch = WIDTH,
		.dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = level, .WidthInBytes = WIDTH / 2, .Height = HEIGHT / 2,
	};
	SHOW(cuMemcpy2D(&copy));
	copy = (CUDA_MEMCPY2D){
		.srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = level,
		.dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = out, .dstPitch = WIDTH / 2,
		.WidthInBytes = WIDTH / 2, .Height = HEIGHT / 2,
	};
	SHOW(cuMemcpy2D(&copy));
	print_host("level 1", out, sizeof(out));
	SHOW(cuMipmappedArrayDestroy(pyramid));
	free(in);
	return 0;
}
