/* Dynamic shared memory, as much as the device gives and more. */
#include "program.h"

int main(void)
{
	unsigned n = 1024, value = 0, few = 60;

	start();
	CUmodule module = load_kernels();
	CUfunction reverse = get_kernel(module, "reverse");
	CUdeviceptr p = allocate(n * 4);
	OK(launch(get_kernel(module, "fill"), n, NULL, PARAMS(&p, &n, &value)));
	SHOW(cuLaunchKernel(reverse, 1, 1, 1, n, 1, 1, n * 4, NULL, PARAMS(&p, &n), NULL));
	print_device("reversed", p, n * 4);
	SHOW(cuLaunchKernel(reverse, 1, 1, 1, few, 1, 1, 48 << 10, NULL, PARAMS(&p, &few), NULL));
	print_device("part reversed", p, n * 4);
	SHOW(cuLaunchKernel(reverse, 1, 1, 1, few, 1, 1, 512 << 10, NULL, PARAMS(&p, &few), NULL));
	SHOW(cuCtxSynchronize());
	print_device("unchanged", p, n * 4);
	OK(cuMemFree(p));
	return 0;
}
