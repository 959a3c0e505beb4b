/*
 * The writer threads. See writers.h for the invariant.
 */
#include "capture/writers.h"

#include <pthread.h>

#include "format.h"
#include "session/session.h"
#include "track/thread.h"
#include "store/store.h"
#include "util/recorder_thread.h"

#define STACK (256u << 10)

struct writer {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct work {
		struct tt_block *blocks;
		size_t count;
		const void *contents;
	} queue[WRITERS_QUEUE];
	uint64_t put, done; /* in total */
	bool good;
};

static struct {
	struct writer of_lane[TT_DATA_LANES];
	bool tried, started;
} writers;

static void *work(void *context)
{
	struct writer *w = context;

	thread_current()->busy = 1;
	pthread_mutex_lock(&w->lock);
	for (;;) {
		while (w->put == w->done)
			pthread_cond_wait(&w->changed, &w->lock);
		struct work job = w->queue[w->done % WRITERS_QUEUE];
		pthread_mutex_unlock(&w->lock);
		bool good = store_blocks(session_store(), job.blocks, job.count, job.contents, (unsigned)(w - writers.of_lane));
		pthread_mutex_lock(&w->lock);
		w->good &= good;
		w->done++;
		pthread_cond_signal(&w->changed);
	}
	return NULL;
}

static bool start_all(void)
{
	bool ok = true;

	for (struct writer *w = writers.of_lane; ok && w < writers.of_lane + TT_DATA_LANES; w++) {
		pthread_mutex_init(&w->lock, NULL);
		pthread_cond_init(&w->changed, NULL);
		w->put = w->done = 0;
		w->good = true;
		ok = !recorder_thread(NULL, "tt-writer", STACK, work, w);
	}
	return ok;
}

bool writers_start(void)
{
	if (!writers.tried)
		writers.started = start_all();
	writers.tried = true;
	return writers.started;
}

uint64_t writers_put(unsigned lane, struct tt_block *blocks, size_t count, const void *contents)
{
	struct writer *w = &writers.of_lane[lane];

	pthread_mutex_lock(&w->lock);
	w->queue[w->put % WRITERS_QUEUE] = (struct work){blocks, count, contents};
	uint64_t piece = ++w->put;
	pthread_cond_signal(&w->changed);
	pthread_mutex_unlock(&w->lock);
	return piece;
}

bool writers_have(unsigned lane, uint64_t piece)
{
	struct writer *w = &writers.of_lane[lane];

	pthread_mutex_lock(&w->lock);
	bool done = w->done >= piece;
	pthread_mutex_unlock(&w->lock);
	return done;
}

bool writers_wait(unsigned lane)
{
	struct writer *w = &writers.of_lane[lane];

	pthread_mutex_lock(&w->lock);
	while (w->done < w->put)
		pthread_cond_wait(&w->changed, &w->lock);
	bool good = w->good;
	w->good = true; /* state for the next epoch */
	pthread_mutex_unlock(&w->lock);
	return good;
}

void writers_forget(void)
{
	writers.tried = writers.started = false;
}
