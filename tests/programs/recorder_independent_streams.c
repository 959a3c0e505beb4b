/*
 * Fills buffers repeatedly, each in its own stream; no stream waits for another. Arguments: buffers,
 * elements of each, rounds.
 */
#include "program.h"

int main(int argc, char **argv)
{
	unsigned buffers = argc > 1 ? (unsigned)atoi(argv[1]) : 4, n = argc > 2 ? (unsigned)atoi(argv[2]) : 40000;
	unsigned rounds = argc > 3 ? (unsigned)atoi(argv[3]) : 6;
	CUstream *streams = calloc(buffers, sizeof(*streams));
	CUdeviceptr *p = calloc(buffers, sizeof(*p));

	start();
	CUfunction fill = get_kernel(load_kernels(), "fill");
	for (unsigned i = 0; i < buffers; i++) {
		OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
		p[i] = allocate(n * sizeof(unsigned));
	}
	for (unsigned round = 0; round < rounds; round++)
		for (unsigned i = 0; i < buffers; i++) {
			unsigned value = 1000 * round + i + 1;
			OK(launch(fill, n, streams[i], PARAMS(&p[i], &n, &value)));
		}
	OK(cuCtxSynchronize());
	for (unsigned i = 0; i < buffers; i++)
		print_device("buffer", p[i], n * sizeof(unsigned));
	return 0;
}
