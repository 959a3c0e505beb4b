/* The first thread ends; another goes on working and ends the process. */
#include "program.h"

#include <pthread.h>

static CUcontext context;
static pthread_t first;

static void *work(void *unused)
{
	OK(cuCtxSetCurrent(context));
	struct work w = begin_work();
	pthread_join(first, NULL);
	do_step(&w);
	do_step(&w);
	exit(0);
	return unused;
}

int main(void)
{
	pthread_t thread;

	start();
	OK(cuCtxGetCurrent(&context));
	first = pthread_self();
	pthread_create(&thread, NULL, work, NULL);
	pthread_exit(NULL);
}
