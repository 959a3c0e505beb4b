/* The program's own memory, registered and unregistered. */
#include "program.h"

int main(void)
{
	unsigned n = 2048, value = 9, flags;
	unsigned *own = aligned_alloc(4096, 8192);
	CUdeviceptr device;
	CUstream stream;

	start();
	memset(own, 0, 8192);
	CUfunction fill = get_kernel(load_kernels(), "fill");
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	SHOW(cuMemHostRegister(own, 8192, CU_MEMHOSTREGISTER_DEVICEMAP));
	SHOW(cuMemHostRegister(own, 8192, 0));
	SHOW(cuMemHostGetFlags(&flags, own));
	SHOW(cuMemHostGetDevicePointer(&device, own, 0));
	SHOW(launch(fill, n, stream, PARAMS(&device, &n, &value)));
	SHOW(cuStreamSynchronize(stream));
	print_host("written by a kernel", own, 8192);
	CUdeviceptr p = allocate(8192);
	SHOW(cuMemcpyHtoDAsync(p, own, 8192, stream));
	SHOW(cuStreamSynchronize(stream));
	print_device("uploaded", p, 8192);
	SHOW(cuMemHostUnregister(own));
	SHOW(cuMemHostUnregister(own));
	SHOW(cuMemHostRegister(own, 0, 0));
	OK(cuStreamDestroy(stream));
	OK(cuMemFree(p));
	free(own);
	return 0;
}
