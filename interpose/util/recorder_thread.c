/*
 * The recorder's threads. See recorder_thread.h for the invariant.
 */
#define _GNU_SOURCE
#include "util/recorder_thread.h"

#include <errno.h>
#include <signal.h>

int recorder_thread(pthread_t *joined, const char *name, size_t stack, void *(*body)(void *), void *context)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attributes);
	if (stack)
		pthread_attr_setstacksize(&attributes, stack);
	int error = pthread_create(&thread, &attributes, body, context);
	if (error == EINVAL) /* thread-local data may need more stack than that */
		error = pthread_create(&thread, NULL, body, context);
	pthread_attr_destroy(&attributes);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error)
		return error;
	pthread_setname_np(thread, name);
	if (joined)
		*joined = thread;
	else
		pthread_detach(thread);
	return 0;
}
