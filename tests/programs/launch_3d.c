/* Grids and blocks of three dimensions. */
#include "program.h"

int main(void)
{
	static const unsigned shapes[][6] = {
		{1, 1, 1, 1, 1, 1}, {5, 3, 2, 7, 2, 3}, {1, 1, 4, 33, 1, 1}, {2, 2, 2, 8, 8, 8}, {3, 1, 1, 1, 1, 64},
	};

	start();
	CUfunction ids = get_kernel(load_kernels(), "ids");
	CUdeviceptr p = allocate(40000);
	for (unsigned i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
		const unsigned *s = shapes[i];

		OK(cuMemsetD8(p, 0xff, 40000));
		SHOW(cuLaunchKernel(ids, s[0], s[1], s[2], s[3], s[4], s[5], 0, NULL, PARAMS(&p), NULL));
		print_device("ids", p, 40000);
	}
	OK(cuMemFree(p));
	return 0;
}
