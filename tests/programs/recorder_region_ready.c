/*
 * One stream adds to a with many launches and records an event, another one adds to b. tt_region_ready tells the
 * recorder that a is complete when the event is, and tt_epoch asks for an epoch at once. The event is used again and
 * again, and destroyed before its work is complete.
 */
#include <dlfcn.h>

#include "program.h"

#define N 20000
#define LAUNCHES 60
#define ROUNDS 4

typedef int ready_call(unsigned long long, void *);
typedef int epoch_call(void *, const char *);

int main(void)
{
	ready_call *ready = (ready_call *)dlsym(RTLD_DEFAULT, "tt_region_ready");
	epoch_call *epoch = (epoch_call *)dlsym(RTLD_DEFAULT, "tt_epoch");
	unsigned n = N, one = 1;
	CUstream producer, other;
	CUdeviceptr a, b;
	CUevent done;

	start();
	CUfunction add = get_kernel(load_kernels(), "add");
	a = allocate(N * 4), b = allocate(N * 4);
	OK(cuMemsetD8(a, 0, N * 4));
	OK(cuMemsetD8(b, 0, N * 4));
	OK(cuCtxSynchronize());
	OK(cuStreamCreate(&producer, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
	for (unsigned i = 0; i < ROUNDS; i++) {
		for (unsigned k = 0; k < LAUNCHES; k++)
			OK(cuLaunchKernel(add, (N + 127) / 128, 1, 1, 128, 1, 1, 0, producer, PARAMS(&a, &n, &one), NULL));
		OK(cuEventRecord(done, producer));
		if (ready && ready(a + 64, done))
			fprintf(stderr, "not ready\n");
		if (i == ROUNDS - 1)
			OK(cuEventDestroy(done));
		OK(cuLaunchKernel(add, (N + 127) / 128, 1, 1, 128, 1, 1, 0, other, PARAMS(&b, &n, &one), NULL));
		if (epoch)
			epoch(other, "round");
		OK(cuStreamSynchronize(producer));
		OK(cuStreamSynchronize(other));
	}
	if (ready && ready(16, producer) != -1)
		fprintf(stderr, "no allocation\n");
	print_device("a", a, N * 4);
	print_device("b", b, N * 4);
	return 0;
}
