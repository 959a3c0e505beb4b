/* Threads with a small stack make calls. */
#include "program.h"

#include <pthread.h>

static CUcontext context;
static struct work shared;

static void *work(void *unused)
{
	unsigned n = 5000, rounds = 1;

	OK(cuCtxSetCurrent(context));
	OK(launch(shared.mix, n, NULL, PARAMS(&shared.data, &n, &rounds)));
	OK(cuCtxSynchronize());
	CUdeviceptr p = allocate(1000);
	OK(cuMemsetD8(p, 1, 1000));
	OK(cuMemFree(p));
	return unused;
}

int main(void)
{
	pthread_attr_t attributes;
	pthread_t thread;

	start();
	OK(cuCtxGetCurrent(&context));
	shared = begin_work();
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 64 << 10);
	for (unsigned i = 0; i < 4; i++) {
		if (pthread_create(&thread, &attributes, work, NULL))
			return 1;
		pthread_join(thread, NULL);
	}
	do_step(&shared);
	return 0;
}
