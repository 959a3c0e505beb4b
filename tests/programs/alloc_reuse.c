/* Memory is freed and allocated again: addresses return with other sizes. */
#include "program.h"

int main(void)
{
	CUdeviceptr kept = 0;

	start();
	CUfunction fill = get_kernel(load_kernels(), "fill");
	for (unsigned i = 0; i < 12; i++) {
		unsigned n = 1000 * (i % 4 + 1), value = 100 * i;
		CUdeviceptr p = allocate(n * 4);

		OK(launch(fill, n, NULL, PARAMS(&p, &n, &value)));
		OK(cuCtxSynchronize());
		print_device("round", p, n * 4);
		if (i == 5)
			kept = p;
		else
			OK(cuMemFree(p));
	}
	print_device("kept", kept, 8000);
	SHOW(cuMemFree(kept));
	return 0;
}
