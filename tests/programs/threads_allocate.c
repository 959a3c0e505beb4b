/* Threads allocate and free at once, all sizes and both kinds: no allocation is changed by another thread. */
#include "program.h"

#include <pthread.h>

enum { THREADS = 4, ROUNDS = 60, LIVE = 7 };

static CUcontext context;
static unsigned wrong[THREADS];

struct held {
	CUdeviceptr p;
	size_t size;
	unsigned char value;
	bool async;
};

static void let_go(struct held *h, CUstream stream, unsigned *errors)
{
	unsigned char *back = malloc(h->size);

	OK(cuMemcpyDtoHAsync(back, h->p, h->size, stream));
	OK(cuStreamSynchronize(stream));
	for (size_t i = 0; i < h->size; i++)
		*errors += back[i] != h->value;
	free(back);
	OK(h->async ? cuMemFreeAsync(h->p, stream) : cuMemFree(h->p));
	h->p = 0;
}

static void *work(void *argument)
{
	unsigned number = *(unsigned *)argument;
	uint32_t state = number * 77 + 5;
	struct held held[LIVE] = {0};
	CUstream stream;

	OK(cuCtxSetCurrent(context));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct held *h = &held[i % LIVE];

		if (h->p)
			let_go(h, stream, &wrong[number]);
		state = state * 1664525 + 1013904223;
		h->size = 1 + (state >> 8) % (1u << (4 + (state >> 28) % 14 + (i % 9 == 8) * 4));
		h->value = (unsigned char)(state >> 3 | 1);
		h->async = i % 3 == 1;
		OK(h->async ? cuMemAllocAsync(&h->p, h->size, stream) : cuMemAlloc(&h->p, h->size));
		OK(cuMemsetD8Async(h->p, h->value, h->size, stream));
	}
	for (unsigned i = 0; i < LIVE; i++)
		if (held[i].p)
			let_go(&held[i], stream, &wrong[number]);
	OK(cuStreamDestroy(stream));
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	unsigned numbers[THREADS];
	CUdeviceptr kept;

	start();
	OK(cuMemAlloc(&kept, 100));
	OK(cuMemsetD8(kept, 7, 100));
	OK(cuCtxGetCurrent(&context));
	for (unsigned i = 0; i < THREADS; i++) {
		numbers[i] = i;
		pthread_create(&threads[i], NULL, work, &numbers[i]);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (unsigned i = 0; i < THREADS; i++)
		printf("thread %u: wrong %u\n", i, wrong[i]);
	SHOW(cuCtxSynchronize());
	return 0;
}
