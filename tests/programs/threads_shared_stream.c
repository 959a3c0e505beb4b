/* Many threads launch into the same stream; additions commute, so the result is fixed. */
#include "program.h"

#include <pthread.h>

enum { THREADS = 8, LAUNCHES = 20 };

static CUcontext context;
static CUfunction add;
static CUdeviceptr p;
static CUstream stream;

static void *work(void *argument)
{
	unsigned n = 4000, value = *(unsigned *)argument;

	OK(cuCtxSetCurrent(context));
	for (unsigned i = 0; i < LAUNCHES; i++)
		OK(launch(add, n, stream, PARAMS(&p, &n, &value)));
	OK(cuStreamSynchronize(stream));
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	unsigned values[THREADS];

	start();
	OK(cuCtxGetCurrent(&context));
	add = get_kernel(load_kernels(), "add");
	p = allocate(16000);
	OK(cuMemsetD8(p, 0, 16000));
	OK(cuCtxSynchronize());
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (unsigned i = 0; i < THREADS; i++) {
		values[i] = 1u << i;
		pthread_create(&threads[i], NULL, work, &values[i]);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	print_device("shared", p, 16000);
	print_words("first", p, 1);
	OK(cuMemFree(p));
	return 0;
}
