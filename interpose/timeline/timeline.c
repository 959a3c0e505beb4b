/*
 * Chooses the source of times, and runs the thread that collects them. See timeline.h.
 */
#define _GNU_SOURCE
#include "timeline/timeline.h"

#include <pthread.h>
#include <time.h>

#include "capture/capture.h"
#include "capture/graph_instrumentation.h"
#include "store/activities.h"
#include "util/json_writer.h"
#include "entry/entry.h"
#include "options/option_limits.h"
#include "session/session.h"
#include "util/clock.h"
#include "util/recorder_thread.h"
#include "inspect/contexts.h"
#include "timeline/cupti.h"
#include "timeline/event_pairs.h"
#include "timeline/stamps.h"

#define EVENTS_MS 5   /* between polls of event pairs, which are few */
/*
 * CUPTI computes times from two readings: the first when it gets our clock callback, the second when it next
 * returns records, best much later. So the callback is set again only rarely.
 */
#define CUPTI_MS 1000
#define CLOCK_EVERY 5 /* in units of CUPTI_MS */
#define BUSY 256      /* if a poll finds this many pairs, more are complete by its end */
#define CLOSE_S 5     /* longest wait at the end */
#define HURRIED_S 1

HOT_DATA _Atomic int timeline_source;

static struct {
	int used;           /* source at the end */
	const char *reason; /* why that is not the requested source */
	_Atomic uint64_t missed, clock_error;
	pthread_mutex_t lock; /* guards the following members */
	pthread_cond_t changed;
	bool running, stopping;
} timeline = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

void timeline_missed(uint64_t count)
{
	atomic_fetch_add_explicit(&timeline.missed, count, memory_order_relaxed);
}

void timeline_clock_error(uint64_t ns)
{
	uint64_t before = atomic_load(&timeline.clock_error);

	while (ns > before && !atomic_compare_exchange_weak(&timeline.clock_error, &before, ns))
		;
}

void timeline_wake(void)
{
	pthread_cond_broadcast(&timeline.changed);
}

/* ---- the thread ---- */

/* Submits work of the recorder in some context, to compare clocks. */
static void probe(void)
{
	struct context *c = context_first();

	while (c && !c->alive)
		c = c->next;
	if (!c || !context_push(c->handle))
		return;
	capture_mode_relax();
	cupti_probe(c);
	context_pop();
}

/* Returns the time until the next poll. */
static unsigned look(void)
{
	static unsigned looks;

	if (atomic_load(&timeline_source) != TIMELINE_CUPTI)
		return timing_poll() + stamps_poll() > BUSY ? 0 : EVENTS_MS;
	probe();
	cupti_flush();
	if (looks++ % CLOCK_EVERY == 0)
		cupti_set_clock();
	return CUPTI_MS;
}

/* Caller holds the lock. */
static void wait(unsigned ms)
{
	struct timespec until = clock_in(ms);

	if (ms && !timeline.stopping)
		pthread_cond_timedwait(&timeline.changed, &timeline.lock, &until);
}

static void *work(void *unused)
{
	(void)unused;
	thread_current()->busy = 1;
	pthread_mutex_lock(&timeline.lock);
	wait(atomic_load(&timeline_source) == TIMELINE_CUPTI ? CUPTI_MS : EVENTS_MS);
	while (!timeline.stopping) {
		pthread_mutex_unlock(&timeline.lock);
		unsigned ms = look();
		pthread_mutex_lock(&timeline.lock);
		wait(ms);
	}
	pthread_mutex_unlock(&timeline.lock);
	if (atomic_load(&timeline_source) == TIMELINE_CUPTI)
		probe(); /* before CUPTI is off: the end of a context waits for it */
	if (atomic_exchange(&timeline_source, TIMELINE_OFF) == TIMELINE_CUPTI)
		cupti_close();
	timing_close();
	stamps_close();
	pthread_mutex_lock(&timeline.lock);
	timeline.running = false;
	pthread_cond_broadcast(&timeline.changed);
	pthread_mutex_unlock(&timeline.lock);
	return NULL;
}

/* ---- on and off ---- */

/* Times of graph nodes by stamps; CUPTI needs none. */
static bool stamps_wanted(void)
{
	return atomic_load(&timeline_source) == TIMELINE_EVENTS && options.entry != ENTRY_CUPTI; /* it can't change graphs */
}

bool timeline_open(const struct folder *folder, char *error, size_t error_size)
{
	int source = options.timeline;

	if (source == TIMELINE_OFF)
		return true;
	node_timer = (struct node_timer){stamps_wanted, stamps_prepare};
	if (!activities_open(folder, error, error_size))
		return false;
	if (source == TIMELINE_CUPTI && (timeline.reason = cupti_open())) {
		session_warn("%s: CUDA events time the calls instead", timeline.reason);
		source = TIMELINE_EVENTS;
	}
	atomic_store(&timeline_source, source);
	timeline.running = !recorder_thread(NULL, "tt-timeline", 0, work, NULL);
	if (!timeline.running) {
		atomic_store(&timeline_source, TIMELINE_OFF);
		timeline.reason = "cannot start the timeline thread";
		session_lost("%s: no GPU times", timeline.reason);
		source = TIMELINE_OFF;
	}
	timeline.used = source;
	if (source == TIMELINE_CUPTI)
		atomic_store(&entry_cupti_taken, timeline_give_way);
	return true;
}

void timeline_give_way(void)
{
	int cupti = TIMELINE_CUPTI;

	if (thread_current()->busy) /* a call of the recorder itself */
		return;
	if (!atomic_compare_exchange_strong(&timeline_source, &cupti, TIMELINE_EVENTS))
		return;
	struct thread *t = thread_current();
	t->busy++;
	cupti_close();
	t->busy--;
	timeline.used = TIMELINE_EVENTS;
	timeline.reason = "the program uses CUPTI itself";
	session_warn("%s: CUDA events time the calls from here on", timeline.reason);
}

void timeline_context_ends(const struct context *c)
{
	struct thread *t = thread_current();

	t->busy++;
	if (atomic_load(&timeline_source) == TIMELINE_CUPTI)
		cupti_context_ends(c);
	timing_context_gone(c);
	stamps_context_gone(c);
	t->busy--;
}

void timeline_close(void)
{
	unsigned seconds = session_hurried() ? HURRIED_S : CLOSE_S;
	struct timespec until = clock_in(seconds * 1000);

	pthread_mutex_lock(&timeline.lock);
	timeline.stopping = true;
	pthread_cond_broadcast(&timeline.changed);
	while (timeline.running && !pthread_cond_timedwait(&timeline.changed, &timeline.lock, &until))
		;
	if (timeline.running)
		session_lost("the last GPU times did not arrive within %u s", seconds);
	pthread_mutex_unlock(&timeline.lock);
	activities_close();
}

void timeline_forget(void)
{
	pthread_mutex_init(&timeline.lock, NULL);
	pthread_cond_init(&timeline.changed, NULL);
	timeline.running = timeline.stopping = false;
	atomic_store(&timeline_source, TIMELINE_OFF);
	cupti_forget();
	timing_forget();
	stamps_forget();
	activities_forget();
}

void timeline_json(struct json *j)
{
	json_open(j, '{');
	choice_json(j, "asked", LIMIT_TIMELINE, options.timeline);
	if (timeline.used == TIMELINE_OFF)
		json_member_string(j, "source", "none");
	else
		choice_json(j, "source", LIMIT_TIMELINE, (uint32_t)timeline.used);
	json_member_string(j, "reason", timeline.reason);
	json_member_u64(j, "missed", atomic_load(&timeline.missed));
	json_key(j, "clock_error_ns");
	if (atomic_load(&timeline.clock_error))
		json_u64(j, atomic_load(&timeline.clock_error));
	else
		json_null(j);
	json_close(j, '}');
}
