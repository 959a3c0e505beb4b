/* Another thread ends the process while the first waits for the device, again and again. */
#include "program.h"

#include <pthread.h>
#include <unistd.h>

static void *end(void *unused)
{
	usleep(50000);
	exit(10);
	return unused;
}

int main(void)
{
	pthread_t thread;

	start();
	struct work w = begin_work();
	do_step(&w);
	pthread_create(&thread, NULL, end, NULL);
	for (;;) {
		cuMemsetD8Async(w.data, 1, 100000, NULL); /* fails once the driver shuts down */
		cuCtxSynchronize();
	}
}
