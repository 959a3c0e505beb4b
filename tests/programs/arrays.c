/* CUDA arrays: described, filled and read through every kind of copy. */
#include "program.h"

int main(void)
{
	enum { WIDTH = 100, HEIGHT = 20, ROW = WIDTH * 4, SIZE = ROW * HEIGHT };
	unsigned char *in = pattern(SIZE, 1), *out = calloc(1, SIZE);
	CUarray line, plane, other;
	CUDA_ARRAY_DESCRIPTOR read;
	CUDA_ARRAY_DESCRIPTOR one = {.Width = WIDTH, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
	CUDA_ARRAY_DESCRIPTOR two = {
		.Width = WIDTH, .Height = HEIGHT, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 4,
	};

	start();
	CUdeviceptr p = allocate(SIZE);
	OK(cuMemsetD8(p, 0, SIZE));
	SHOW(cuArrayCreate(&line, &one));
	SHOW(cuArrayCreate(&plane, &two));
	SHOW(cuArrayCreate(&other, &two));
	SHOW(cuArrayGetDescriptor(&read, plane));
	printf("%zu x %zu, format %d, %u channels\n", read.Width, read.Height, (int)read.Format, read.NumChannels);

	SHOW(cuMemcpyHtoA(line, 0, in, ROW));
	SHOW(cuMemcpyAtoH(out, line, 40, 100));
	print_host("part of a line", out, 100);
	SHOW(cuMemcpyAtoD(p, line, 0, ROW));
	print_device("line", p, ROW);
	SHOW(cuMemcpyDtoA(line, 200, p, 100));
	SHOW(cuMemcpyAtoH(out, line, 0, ROW));
	print_host("line", out, ROW);

	CUDA_MEMCPY2D copy = {
		.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = in, .srcPitch = ROW,
		.dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = plane,
		.WidthInBytes = ROW, .Height = HEIGHT,
	};
	SHOW(cuMemcpy2D(&copy));
	copy = (CUDA_MEMCPY2D){
		.srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = plane, .srcXInBytes = 8, .srcY = 3,
		.dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = other, .WidthInBytes = 100, .Height = 10,
	};
	SHOW(cuMemcpy2D(&copy));
	copy = (CUDA_MEMCPY2D){
		.srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = other,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = p, .dstPitch = ROW, .WidthInBytes = 100, .Height = 10,
	};
	SHOW(cuMemcpy2D(&copy));
	print_device("plane", p, SIZE);
	SHOW(cuArrayDestroy(line));
	SHOW(cuArrayDestroy(plane));
	SHOW(cuArrayDestroy(other));
	one.Width = 0;
	SHOW(cuArrayCreate(&line, &one));
	OK(cuMemFree(p));
	free(in);
	free(out);
	return 0;
}
