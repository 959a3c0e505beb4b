/* Work waits until a call asks for it; a program that only polls memory gets its result, too. */
#include "program.h"

#include <unistd.h>

static int wait_for(volatile unsigned *word, unsigned value)
{
	for (int i = 0; i < 5000 && *word != value; i++)
		usleep(1000);
	return *word == value;
}

int main(void)
{
	unsigned n = 1, value = 8;
	volatile unsigned *result;
	CUdeviceptr p, result_address;
	CUstream stream;

	start();
	CUfunction fill = get_kernel(load_kernels(), "fill");
	OK(cuMemAllocHost((void **)&result, sizeof(*result)));
	OK(cuMemHostGetDevicePointer(&result_address, (void *)result, 0));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	p = allocate(4);
	*result = 0;
	OK(cuMemsetD32Async(p, 5, 1, stream));
	OK(cuMemcpyDtoHAsync((void *)result, p, 4, stream));
	printf("at once %u\n", *result);
	printf("asked %s\n", result_name(cuStreamQuery(stream)));
	for (int i = 0; i < 5000 && cuStreamQuery(stream) == CUDA_ERROR_NOT_READY; i++)
		usleep(1000); /* it may have been begun just before */
	printf("asked %s\n", result_name(cuStreamQuery(stream)));
	printf("then %u\n", *result);
	OK(launch(fill, 1, stream, PARAMS(&result_address, &n, &value)));
	printf("watched %d\n", wait_for(result, 8));
	return 0;
}
