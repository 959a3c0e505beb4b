/* Two signals at once, while other threads work. */
#include "program.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

static struct work w;

static void *works(void *context)
{
	unsigned n = 5000, rounds = 1;

	OK(cuCtxSetCurrent(context));
	while (context) {
		OK(launch(w.mix, n, NULL, PARAMS(&w.data, &n, &rounds)));
		OK(cuCtxSynchronize());
	}
	return NULL;
}

static void *ends(void *unused)
{
	(void)unused;
	kill(getpid(), SIGTERM);
	return NULL;
}

int main(void)
{
	pthread_t thread;
	CUcontext context;

	start();
	w = begin_work();
	do_step(&w);
	OK(cuCtxGetCurrent(&context));
	pthread_create(&thread, NULL, works, context);
	pthread_create(&thread, NULL, ends, NULL);
	kill(getpid(), SIGTERM);
	for (;;)
		pause();
}
