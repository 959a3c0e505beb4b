/* Memory is freed while work on it is running: the driver waits for that work. */
#include "program.h"

int main(void)
{
	unsigned n = 100000, rounds = 200;
	CUstream stream;

	start();
	CUfunction mix = get_kernel(load_kernels(), "mix");
	CUdeviceptr kept = allocate(n * 4);
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (unsigned i = 0; i < 5; i++) {
		CUdeviceptr p = allocate(n * 4);

		OK(cuMemsetD32Async(p, i, n, stream));
		OK(launch(mix, n, stream, PARAMS(&p, &n, &rounds)));
		OK(cuMemcpyDtoDAsync(kept, p, n * 4, stream));
		SHOW(cuMemFree(p));
	}
	SHOW(cuStreamSynchronize(stream));
	print_device("kept", kept, n * 4);
	return 0;
}
