/*
 * The writers. See writers.h for the invariant.
 */
#include "writers.h"

#include <pthread.h>
#include <signal.h>

#include "../format.h"
#include "../recorder.h"
#include "../state/thread.h"
#include "store.h"

#define STACK (256u << 10)

struct writer {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct tt_block *blocks;
	size_t count;
	const void *contents; /* NULL: idle */
	bool good;
};

static struct writer writers[TT_DATA_LANES];
static bool tried, started;

static void *work(void *context)
{
	struct writer *w = context;

	thread_current()->busy = 1;
	pthread_mutex_lock(&w->lock);
	for (;;) {
		while (!w->contents)
			pthread_cond_wait(&w->changed, &w->lock);
		pthread_mutex_unlock(&w->lock);
		bool good = store_blocks(recorder_store(), w->blocks, w->count, w->contents, (unsigned)(w - writers));
		pthread_mutex_lock(&w->lock);
		w->good = good;
		w->contents = NULL;
		pthread_cond_signal(&w->changed);
	}
	return NULL;
}

static bool start_all(void)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;
	bool ok = true;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	for (struct writer *w = writers; ok && w < writers + TT_DATA_LANES; w++) {
		pthread_mutex_init(&w->lock, NULL);
		pthread_cond_init(&w->changed, NULL);
		w->contents = NULL;
		w->good = true;
		ok = !pthread_create(&thread, &attributes, work, w);
		if (ok)
			pthread_setname_np(thread, "tt-writer");
	}
	pthread_attr_destroy(&attributes);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return ok;
}

bool writers_start(void)
{
	if (!tried)
		started = start_all();
	tried = true;
	return started;
}

void writers_put(unsigned lane, struct tt_block *blocks, size_t count, const void *contents)
{
	struct writer *w = &writers[lane];

	pthread_mutex_lock(&w->lock);
	w->blocks = blocks;
	w->count = count;
	w->contents = contents;
	pthread_cond_signal(&w->changed);
	pthread_mutex_unlock(&w->lock);
}

bool writers_wait(unsigned lane)
{
	struct writer *w = &writers[lane];

	pthread_mutex_lock(&w->lock);
	while (w->contents)
		pthread_cond_wait(&w->changed, &w->lock);
	bool good = w->good;
	w->good = true;
	pthread_mutex_unlock(&w->lock);
	return good;
}

void writers_forget(void)
{
	tried = started = false;
}
