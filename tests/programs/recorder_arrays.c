/*
 * Arrays of one, two and three dimensions, which copies change. Each step has a wait. One is destroyed, and another
 * of its size created.
 */
#include "program.h"

enum { WIDTH = 100, HEIGHT = 20, DEPTH = 3, ITEM = 4, STEPS = 3 };

static void set(CUarray array, unsigned height, unsigned depth, unsigned char value)
{
	unsigned char *bytes = malloc(WIDTH * ITEM * height * depth);
	CUDA_MEMCPY3D copy = {
		.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = bytes, .srcPitch = WIDTH * ITEM, .srcHeight = height,
		.dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = array,
		.WidthInBytes = WIDTH * ITEM, .Height = height, .Depth = depth,
	};

	memset(bytes, value, WIDTH * ITEM * height * depth);
	OK(cuMemcpy3D(&copy));
	free(bytes);
}

int main(void)
{
	CUDA_ARRAY_DESCRIPTOR one = {.Width = WIDTH, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
	CUDA_ARRAY_DESCRIPTOR two = {.Width = WIDTH, .Height = HEIGHT, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 4};
	CUDA_ARRAY3D_DESCRIPTOR three = {
		.Width = WIDTH, .Height = HEIGHT, .Depth = DEPTH, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1,
	};
	CUarray line, plane, space;

	start();
	OK(cuArrayCreate(&line, &one));
	OK(cuArrayCreate(&plane, &two));
	OK(cuArray3DCreate(&space, &three));
	for (unsigned char i = 1; i <= STEPS; i++) {
		set(line, 1, 1, i);
		set(plane, HEIGHT, 1, 10 * i);
		set(space, HEIGHT, DEPTH, 20 * i);
		OK(cuCtxSynchronize());
	}
	OK(cuArrayDestroy(plane));
	OK(cuArrayCreate(&plane, &two));
	set(plane, HEIGHT, 1, 99);
	OK(cuCtxSynchronize());
	OK(cuArrayDestroy(line));
	OK(cuArrayDestroy(plane));
	OK(cuArrayDestroy(space));
	puts("done");
	return 0;
}
