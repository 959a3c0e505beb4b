/* The library calls: kernels launched as functions, and variables of a library. */
#include "program.h"

int main(void)
{
	unsigned n = 5000, value = 11, count = 0;
	CUlibrary library, of_kernel;
	CUkernel fill, none;
	CUfunction function;
	CUmodule module;
	CUdeviceptr counter;
	const char *name = "";
	size_t size;

	start();
	CUdeviceptr p = allocate(n * 4);
	SHOW(cuLibraryLoadData(&library, KERNELS, NULL, NULL, 0, NULL, NULL, 0));
	SHOW(cuLibraryGetKernelCount(&count, library));
	printf("%u kernels\n", count);
	SHOW(cuLibraryGetKernel(&fill, library, "fill"));
	SHOW(cuLibraryGetKernel(&none, library, "no_such_kernel"));
	SHOW(cuKernelGetName(&name, fill));
	printf("name %s\n", name);
	SHOW(cuKernelGetLibrary(&of_kernel, fill));
	printf("its library %d\n", of_kernel == library);
	SHOW(launch((CUfunction)fill, n, NULL, PARAMS(&p, &n, &value)));
	SHOW(cuCtxSynchronize());
	print_device("as a kernel", p, n * 4);
	SHOW(cuKernelGetFunction(&function, fill));
	value = 12;
	SHOW(launch(function, n, NULL, PARAMS(&p, &n, &value)));
	print_device("as its function", p, n * 4);
	SHOW(cuLibraryGetModule(&module, library));
	value = 13;
	SHOW(launch(get_kernel(module, "add"), n, NULL, PARAMS(&p, &n, &value)));
	print_device("from its module", p, n * 4);
	SHOW(cuLibraryGetGlobal(&counter, &size, library, "counter"));
	printf("size %zu\n", size);
	print_words("counter", counter, 1);
	SHOW(launch(get_kernel(module, "bump"), 1, NULL, NULL));
	print_words("counter", counter, 1);
	SHOW(cuLibraryGetGlobal(&counter, &size, library, "no_such_variable"));
	SHOW(cuLibraryUnload(library));
	/* A library is looked at when something of it is needed. */
	SHOW(cuLibraryLoadData(&library, "this is no module", NULL, NULL, 0, NULL, NULL, 0));
	SHOW(cuLibraryGetKernel(&none, library, "fill"));
	SHOW(cuLibraryUnload(library));
	OK(cuMemFree(p));
	return 0;
}
