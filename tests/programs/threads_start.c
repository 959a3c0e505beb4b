/* Many threads start the driver at the same time, and each goes straight on to work. */
#include "program.h"

#include <pthread.h>

enum { THREADS = 8 };

static pthread_barrier_t together;
static uint64_t results[THREADS];

static void *work(void *argument)
{
	unsigned number = *(unsigned *)argument, n = 3000, *out = malloc(n * 4);

	pthread_barrier_wait(&together);
	start();
	CUfunction mix = get_kernel(load_kernels(), "mix");
	CUdeviceptr p = allocate(n * 4);
	OK(cuMemsetD32(p, number, n));
	OK(launch(mix, n, NULL, PARAMS(&p, &n, &number)));
	OK(cuMemcpyDtoH(out, p, n * 4));
	results[number] = hash_bytes(out, n * 4);
	OK(cuMemFree(p));
	free(out);
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	unsigned numbers[THREADS];

	pthread_barrier_init(&together, NULL, THREADS);
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
