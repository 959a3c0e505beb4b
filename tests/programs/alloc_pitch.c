/* A pitched allocation takes rows of odd width. */
#include "program.h"

int main(void)
{
	enum { WIDTH = 101, HEIGHT = 13 };
	CUdeviceptr p;
	size_t pitch;
	unsigned char *rows = pattern(WIDTH * HEIGHT, 1), back[WIDTH * HEIGHT];

	start();
	SHOW(cuMemAllocPitch(&p, &pitch, WIDTH, HEIGHT, 4));
	printf("pitch holds a row %d, is a multiple of 32 %d\n", pitch >= WIDTH, pitch % 32 == 0);
	CUDA_MEMCPY2D up = {
		.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = rows, .srcPitch = WIDTH,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = p, .dstPitch = pitch,
		.WidthInBytes = WIDTH, .Height = HEIGHT,
	};
	SHOW(cuMemcpy2D(&up));
	for (unsigned y = 0; y < HEIGHT; y++)
		OK(cuMemcpyDtoH(back + y * WIDTH, p + y * pitch, WIDTH));
	printf("rows came back %s\n", memcmp(rows, back, sizeof(back)) ? "changed" : "unchanged");
	SHOW(cuMemAllocPitch(&p, &pitch, WIDTH, HEIGHT, 3));
	SHOW(cuMemAllocPitch(&p, &pitch, 0, HEIGHT, 4));
	SHOW(cuMemFree(p));
	free(rows);
	return 0;
}
