/*
 * Two kernels of many blocks write to the same memory in streams with no order between them (or, with the
 * argument "ordered", in one stream). Prints how often the memory had data of both.
 */
#include "program.h"

#define N 8192

int main(int count, char **arguments)
{
	bool ordered = count > 1 && !strcmp(arguments[1], "ordered");
	unsigned n = N, values[2] = {0, 1u << 20}, mixed = 0;
	static uint32_t words[N];
	CUstream streams[2];

	start();
	CUfunction fill = get_kernel(load_kernels(), "fill");
	CUdeviceptr p = allocate(sizeof(words));
	for (unsigned i = 0; i < 2; i++)
		OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	for (unsigned round = 0; round < 8; round++) {
		bool first = false, second = false;
		for (unsigned i = 0; i < 2; i++)
			OK(launch(fill, n, streams[ordered ? 0 : i], PARAMS(&p, &n, &values[i])));
		OK(cuCtxSynchronize());
		OK(cuMemcpyDtoH(words, p, sizeof(words)));
		for (unsigned i = 0; i < N; i++)
			*(words[i] < values[1] ? &first : &second) = true;
		mixed += first && second;
	}
	printf("mixed: %u\n", mixed);
	return 0;
}
