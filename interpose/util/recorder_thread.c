/*
 * The recorder's threads. See recorder_thread.h for the invariant.
 */
#define _GNU_SOURCE
#include "util/recorder_thread.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>

struct started {
	void *(*body)(void *);
	void *context;
	pthread_t self;
	struct recorder_thread_cost *cost;
	LIST_ENTRY(started) link;
};

static struct {
	pthread_mutex_t lock;
	LIST_HEAD(, started) running;
	struct recorder_thread_cost ended[RECORDER_THREAD_NAMES];
	unsigned names;
	cpu_set_t cores;
	bool placed, idle;
} threads = {.lock = PTHREAD_MUTEX_INITIALIZER};

void recorder_threads_place(const cpu_set_t *cores, bool idle)
{
	threads.placed = cores != NULL;
	if (cores)
		threads.cores = *cores;
	threads.idle = idle;
}

/* Caller holds the lock. */
static struct recorder_thread_cost *cost_of(const char *name)
{
	unsigned i = 0;

	while (i < threads.names && strcmp(threads.ended[i].name, name))
		i++;
	if (i == RECORDER_THREAD_NAMES)
		return NULL;
	if (i == threads.names)
		snprintf(threads.ended[threads.names++].name, sizeof(threads.ended[i].name), "%s", name);
	return &threads.ended[i];
}

static uint64_t processor_time(clockid_t clock)
{
	struct timespec t = {0};

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *run(void *argument)
{
	struct started *s = argument;

	/* A place that the system refuses is only a slower one. */
	if (threads.placed)
		sched_setaffinity(0, sizeof(threads.cores), &threads.cores);
	if (threads.idle)
		sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){0});
	pthread_mutex_lock(&threads.lock);
	s->self = pthread_self();
	LIST_INSERT_HEAD(&threads.running, s, link);
	pthread_mutex_unlock(&threads.lock);
	void *result = s->body(s->context);
	pthread_mutex_lock(&threads.lock);
	LIST_REMOVE(s, link);
	if (s->cost)
		s->cost->cpu_ns += processor_time(CLOCK_THREAD_CPUTIME_ID);
	pthread_mutex_unlock(&threads.lock);
	free(s);
	return result;
}

unsigned recorder_threads_cost(struct recorder_thread_cost costs[RECORDER_THREAD_NAMES])
{
	struct started *s;
	clockid_t clock;

	pthread_mutex_lock(&threads.lock);
	unsigned names = threads.names;
	memcpy(costs, threads.ended, sizeof(threads.ended));
	LIST_FOREACH(s, &threads.running, link)
	if (s->cost && !pthread_getcpuclockid(s->self, &clock))
		costs[s->cost - threads.ended].cpu_ns += processor_time(clock);
	pthread_mutex_unlock(&threads.lock);
	return names;
}

void recorder_threads_forget(void)
{
	pthread_mutex_init(&threads.lock, NULL);
	LIST_INIT(&threads.running);
	memset(threads.ended, 0, sizeof(threads.ended));
	threads.names = 0;
}

static int start(struct started *s, pthread_t *thread, size_t stack)
{
	pthread_attr_t attributes;
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attributes);
	if (stack)
		pthread_attr_setstacksize(&attributes, stack);
	int error = pthread_create(thread, &attributes, run, s);
	if (error == EINVAL) /* thread-local data may need more stack than that */
		error = pthread_create(thread, NULL, run, s);
	pthread_attr_destroy(&attributes);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}

int recorder_thread(pthread_t *joined, const char *name, size_t stack, void *(*body)(void *), void *context)
{
	struct started *s = malloc(sizeof(*s));
	pthread_t thread;

	if (!s)
		return ENOMEM;
	*s = (struct started){.body = body, .context = context};
	pthread_mutex_lock(&threads.lock);
	s->cost = cost_of(name);
	pthread_mutex_unlock(&threads.lock);
	struct recorder_thread_cost *cost = s->cost; /* the thread frees s */
	int error = start(s, &thread, stack);
	if (error) {
		free(s);
		return error;
	}
	if (cost) {
		pthread_mutex_lock(&threads.lock);
		cost->count++;
		pthread_mutex_unlock(&threads.lock);
	}
	pthread_setname_np(thread, name);
	if (joined)
		*joined = thread;
	else
		pthread_detach(thread);
	return 0;
}
