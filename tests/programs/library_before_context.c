/* A library is loaded before there is a context, and used in one made later. */
#include "program.h"

int main(void)
{
	unsigned n = 100, value = 21;
	CUlibrary library;
	CUkernel fill;
	CUdevice device;
	CUcontext context;

	OK(cuInit(0));
	SHOW(cuLibraryLoadData(&library, KERNELS, NULL, NULL, 0, NULL, NULL, 0));
	SHOW(cuLibraryGetKernel(&fill, library, "fill"));
	OK(cuDeviceGet(&device, 0));
	OK(cuDevicePrimaryCtxRetain(&context, device));
	OK(cuCtxSetCurrent(context));
	CUdeviceptr p = allocate(n * 4);
	SHOW(launch((CUfunction)fill, n, NULL, PARAMS(&p, &n, &value)));
	print_device("filled", p, n * 4);
	SHOW(cuLibraryUnload(library));
	OK(cuMemFree(p));
	return 0;
}
