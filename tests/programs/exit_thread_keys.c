/* A thread uses the driver until its end: in the last destructor of its thread-specific data. */
#include "program.h"

#include <pthread.h>

static CUcontext context;
static pthread_key_t key;
static struct work w;

static void at_end(void *round)
{
	OK(cuCtxSetCurrent(context)); /* a driver may have let go of it, where it has a key, too */
	do_step(&w);
	pthread_setspecific(key, (char *)round + 1); /* until there are no more rounds */
}

static void *body(void *unused)
{
	OK(cuCtxSetCurrent(context));
	pthread_setspecific(key, (void *)1);
	return unused;
}

int main(void)
{
	pthread_attr_t large; /* so that its stack, and what it kept there, is gone with it */
	pthread_t thread;

	start();
	OK(cuCtxGetCurrent(&context));
	w = begin_work();
	pthread_key_create(&key, at_end);
	pthread_attr_init(&large);
	pthread_attr_setstacksize(&large, (size_t)128 << 20);
	pthread_create(&thread, &large, body, NULL);
	pthread_join(thread, NULL);
	do_step(&w);
	return 0;
}
