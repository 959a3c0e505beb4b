/*
 * Two devices, each used by its own threads, with copies between them and named epochs, each of which is
 * consistent across both. After step N every buffer holds N in its words.
 */
#include <dlfcn.h>
#include <pthread.h>

#include "program.h"

#define WORDS 50000
#define STEPS 12

static CUcontext contexts[2];
static CUdeviceptr own[2], from_other[2];
static pthread_barrier_t together;
static int (*epoch)(void *, const char *);

static void *work(void *number)
{
	int i = *(int *)number;
	unsigned n = WORDS;
	CUstream stream;
	char label[32];

	OK(cuCtxSetCurrent(contexts[i]));
	CUfunction fill = get_kernel(load_kernels(), "fill");
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (unsigned step = 1; step <= STEPS; step++) {
		OK(launch(fill, n, stream, PARAMS(&own[i], &n, &step)));
		OK(cuStreamSynchronize(stream));
		pthread_barrier_wait(&together);
		OK(cuMemcpyPeerAsync(from_other[i], contexts[i], own[!i], contexts[!i], WORDS * 4, stream));
		pthread_barrier_wait(&together);
		snprintf(label, sizeof(label), "step %u", step);
		if (i == (int)step % 2 && epoch)
			epoch(NULL, label);
		pthread_barrier_wait(&together);
		OK(cuStreamSynchronize(stream)); /* or the other's next step might change what is copied */
		pthread_barrier_wait(&together);
	}
	OK(cuStreamSynchronize(stream));
	return NULL;
}

int main(void)
{
	int count, numbers[2] = {0, 1};
	pthread_t threads[2];

	*(void **)&epoch = dlsym(RTLD_DEFAULT, "tt_epoch");
	OK(cuInit(0));
	OK(cuDeviceGetCount(&count));
	if (count < 2)
		return 77;
	for (int i = 0; i < 2; i++) {
		OK(cuDevicePrimaryCtxRetain(&contexts[i], i));
		OK(cuCtxSetCurrent(contexts[i]));
		own[i] = allocate(WORDS * 4);
		from_other[i] = allocate(WORDS * 4);
	}
	pthread_barrier_init(&together, NULL, 2);
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, work, &numbers[i]);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 2; i++) {
		OK(cuCtxSetCurrent(contexts[i]));
		print_device("own", own[i], WORDS * 4);
		print_device("the other's", from_other[i], WORDS * 4);
	}
	return 0;
}
