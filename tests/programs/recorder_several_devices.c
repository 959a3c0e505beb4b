/*
 * Several devices (two, or the argument), each used by its own thread, with copies from each to the one before it
 * and named epochs, each of which is consistent across all. After step N every buffer holds N in its words.
 */
#include <dlfcn.h>
#include <pthread.h>

#include "program.h"

#define WORDS 50000
#define STEPS 12
#define MOST 8

static int count = 2;
static CUcontext contexts[MOST];
static CUdeviceptr own[MOST], from_other[MOST];
static pthread_barrier_t together;
static int (*epoch)(void *, const char *);

static void *work(void *number)
{
	int i = *(int *)number, other = (i + 1) % count;
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
		OK(cuMemcpyPeerAsync(from_other[i], contexts[i], own[other], contexts[other], WORDS * 4, stream));
		pthread_barrier_wait(&together);
		snprintf(label, sizeof(label), "step %u", step);
		if (i == (int)step % count && epoch)
			epoch(NULL, label);
		pthread_barrier_wait(&together);
		OK(cuStreamSynchronize(stream)); /* or the other's next step might change what is copied */
		pthread_barrier_wait(&together);
	}
	OK(cuStreamSynchronize(stream));
	return NULL;
}

int main(int argc, char **argv)
{
	int present, numbers[MOST];
	pthread_t threads[MOST];

	if (argc > 1)
		count = atoi(argv[1]);
	*(void **)&epoch = dlsym(RTLD_DEFAULT, "tt_epoch");
	OK(cuInit(0));
	OK(cuDeviceGetCount(&present));
	if (count < 2 || count > MOST || count > present)
		return 77;
	for (int i = 0; i < count; i++) {
		OK(cuDevicePrimaryCtxRetain(&contexts[i], i));
		OK(cuCtxSetCurrent(contexts[i]));
		own[i] = allocate(WORDS * 4);
		from_other[i] = allocate(WORDS * 4);
	}
	pthread_barrier_init(&together, NULL, (unsigned)count);
	for (int i = 0; i < count; i++) {
		numbers[i] = i;
		pthread_create(&threads[i], NULL, work, &numbers[i]);
	}
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < count; i++) {
		OK(cuCtxSetCurrent(contexts[i]));
		print_device("own", own[i], WORDS * 4);
		print_device("the other's", from_other[i], WORDS * 4);
	}
	return 0;
}
