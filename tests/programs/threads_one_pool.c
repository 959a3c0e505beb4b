/* Threads allocate and free in the order of one stream: memory that one frees is reused at once. */
#include "program.h"

#include <pthread.h>

enum { THREADS = 4, ROUNDS = 1000 };

static CUcontext context;
static CUstream stream;

static void *work(void *unused)
{
	CUdeviceptr p;

	OK(cuCtxSetCurrent(context));
	for (int i = 0; i < ROUNDS; i++) {
		OK(cuMemAllocAsync(&p, 4096, stream));
		OK(cuMemFreeAsync(p, stream));
	}
	return unused;
}

int main(void)
{
	pthread_t threads[THREADS];

	start();
	OK(cuCtxGetCurrent(&context));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, work, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	SHOW(cuStreamSynchronize(stream));
	return 0;
}
