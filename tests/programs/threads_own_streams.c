/* Each thread has its own stream and memory, and allocates and frees while it works. */
#include "program.h"

#include <pthread.h>

enum { THREADS = 6, ROUNDS = 5 };

static CUcontext context;
static CUfunction mix;
static uint64_t results[THREADS];

static void *work(void *argument)
{
	unsigned number = *(unsigned *)argument, n = 1000 * (number + 1), *out = malloc(n * 4);
	CUstream stream;

	OK(cuCtxSetCurrent(context));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (unsigned i = 0; i < ROUNDS; i++) {
		CUdeviceptr p = allocate(n * 4);

		OK(cuMemsetD32Async(p, number, n, stream));
		OK(launch(mix, n, stream, PARAMS(&p, &n, &i)));
		OK(cuMemcpyDtoHAsync(out, p, n * 4, stream));
		OK(cuStreamSynchronize(stream));
		results[number] = results[number] * 31 + hash_bytes(out, n * 4);
		OK(cuMemFree(p));
	}
	OK(cuStreamDestroy(stream));
	free(out);
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	unsigned numbers[THREADS];

	start();
	OK(cuCtxGetCurrent(&context));
	mix = get_kernel(load_kernels(), "mix");
	for (unsigned i = 0; i < THREADS; i++) {
		numbers[i] = i;
		pthread_create(&threads[i], NULL, work, &numbers[i]);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (unsigned i = 0; i < THREADS; i++)
		printf("thread %u: %016llx\n", i, (unsigned long long)results[i]);
	return 0;
}
