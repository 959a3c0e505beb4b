/*
 * A thread for each of two devices. Work of the first cannot begin until the second thread has launched something, as
 * with ranks of NCCL. Meanwhile the first thread waits for an event that is long complete.
 */
#include "held_back.h"

#include <pthread.h>

static CUcontext contexts[2];
static CUdeviceptr data[2];
static CUfunction add[2];
static CUevent let_go;
static unsigned n = 5000, one = 1;
static pthread_barrier_t together;

static void work(unsigned device, CUstream stream)
{
	OK(launch(add[device], n, stream, PARAMS(&data[device], &n, &one)));
}

static void *second(void *unused)
{
	CUstream held, stream;

	OK(cuCtxSetCurrent(contexts[1]));
	OK(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&let_go, CU_EVENT_DISABLE_TIMING));
	OK(cuLaunchHostFunc(held, wait_for_go, NULL));
	OK(cuEventRecord(let_go, held));
	pthread_barrier_wait(&together);
	pthread_barrier_wait(&together);
	usleep(100000); /* the other thread is in its wait */
	work(1, stream);
	OK(cuStreamSynchronize(stream));
	go = 1;
	return unused;
}

static void first(void)
{
	CUstream busy, other;
	CUevent complete;

	OK(cuCtxSetCurrent(contexts[0]));
	OK(cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&complete, CU_EVENT_DISABLE_TIMING));
	work(0, other);
	OK(cuEventRecord(complete, other));
	OK(cuCtxSynchronize());
	pthread_barrier_wait(&together);
	OK(cuStreamWaitEvent(busy, let_go, 0));
	work(0, busy);
	work(0, other);
	OK(cuStreamSynchronize(other));
	work(0, other);
	pthread_barrier_wait(&together);
	OK(cuEventSynchronize(complete));
	OK(cuCtxSynchronize());
}

int main(void)
{
	pthread_t thread;

	OK(cuInit(0));
	for (int i = 0; i < 2; i++) {
		OK(cuDevicePrimaryCtxRetain(&contexts[i], i));
		OK(cuCtxSetCurrent(contexts[i]));
		add[i] = get_kernel(load_kernels(), "add");
		data[i] = allocate(n * 4);
		OK(cuMemsetD8(data[i], 0, n * 4));
		work((unsigned)i, NULL); /* loads it: that may wait for all streams */
		OK(cuCtxSynchronize());
	}
	pthread_barrier_init(&together, NULL, 2);
	if (pthread_create(&thread, NULL, second, NULL))
		return 3;
	first();
	pthread_join(thread, NULL);
	for (int i = 0; i < 2; i++) {
		OK(cuCtxSetCurrent(contexts[i]));
		print_device("all done", data[i], n * 4);
	}
	return 0;
}
