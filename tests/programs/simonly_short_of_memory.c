/* Threads continue while another allocates all memory repeatedly. */
#include "program.h"

#include <pthread.h>

enum { THREADS = 2, ROUNDS = 3, MOST = 256 };

static CUcontext context;
static CUfunction mix;
static _Atomic bool over;

static void *work(void *argument)
{
	CUdeviceptr p = *(CUdeviceptr *)argument;
	unsigned n = 500, rounds = 1;
	CUstream stream;

	OK(cuCtxSetCurrent(context));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	while (!over) {
		OK(launch(mix, n, stream, PARAMS(&p, &n, &rounds)));
		OK(cuStreamSynchronize(stream));
	}
	return NULL;
}

static void take_all(void)
{
	CUdeviceptr taken[MOST];
	unsigned n = 0;

	for (size_t size = (size_t)16 << 20; size >= (size_t)1 << 20; size /= 2)
		while (n < MOST && cuMemAlloc(&taken[n], size) == CUDA_SUCCESS)
			n++;
	while (n)
		OK(cuMemFree(taken[--n]));
}

int main(void)
{
	pthread_t threads[THREADS];
	CUdeviceptr p[THREADS];

	start();
	OK(cuCtxGetCurrent(&context));
	mix = get_kernel(load_kernels(), "mix");
	for (unsigned i = 0; i < THREADS; i++) {
		p[i] = allocate(2000);
		OK(cuMemsetD8(p[i], 1, 2000));
		pthread_create(&threads[i], NULL, work, &p[i]);
	}
	for (unsigned i = 0; i < ROUNDS; i++)
		take_all();
	over = true;
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("done\n");
	return 0;
}
