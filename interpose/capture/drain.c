/*
 * The drain thread. See drain.h for the invariant.
 */
#include "capture/drain.h"

#include <pthread.h>
#include <sys/prctl.h>

#include "capture/budget.h"
#include "capture/capture.h"
#include "options/options.h"
#include "session/session.h"
#include "util/clock.h"
#include "util/recorder_thread.h"
#include "store/store.h"
#include "capture/epoch_store.h"
#include "capture/writers.h"

#define LONG_MS 5000 /* a wait that the user is told of */

static struct {
	struct pending queue[CAPTURE_PENDING];
	uint64_t added;           /* in total; changes under the capture lock, too */
	_Atomic uint64_t drained; /* in total */
	_Atomic uint64_t progress; /* changes whenever the drain makes progress */
	uint64_t stuck_at;         /* progress when a wait for it timed out */
	bool running;
	_Atomic bool stopping;
	_Atomic bool given_up; /* an epoch could not be stored, so no later one can be */
	pthread_mutex_t lock;
	pthread_cond_t changed;
} drain = {.stuck_at = UINT64_MAX, .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

void drain_progressed(void)
{
	atomic_fetch_add_explicit(&drain.progress, 1, memory_order_relaxed);
}

bool drain_is_stopping(void)
{
	return atomic_load(&drain.stopping);
}

/* The context was destroyed before the epoch was stored: gives it a record without contents. */
static bool store_lost(struct pending *q)
{
	if (!q->refused)
		q->epoch.flags = q->read ? (q->epoch.flags & TT_EPOCHF_LOOSE) | TT_EPOCHF_DROPPED : TT_EPOCHF_REFUSED;
	q->refused = true;
	q->part = 0;
	return !q->final || epoch_store_part(q);
}

/*
 * The capture reads no more memory, nor does one before it. If it is in a graph, the graph may go on, and even wait for
 * the work that waits for this.
 */
static void take_status(struct pending *q)
{
	capture_release(q->capture, q->number);
	capture_take_status(q, capture_status(q->capture, q->slot));
	if (!q->refused && q->epoch.number < atomic_load(&q->capture->torn_before))
		q->epoch.flags |= TT_EPOCHF_LOOSE;
	budget_captured(q);
}

struct pending *drain_following(const struct pending *q)
{
	pthread_mutex_lock(&drain.lock);
	bool any = drain.added - drain.drained > 1;
	struct pending *next = &drain.queue[(drain.drained + 1) % CAPTURE_PENDING];
	pthread_mutex_unlock(&drain.lock);
	if (!any || next->capture != q->capture || next->watch || (!next->read && !capture_complete(next->capture, next->slot)))
		return NULL;
	if (!next->read)
		take_status(next);
	return next;
}

/*
 * Waits for the capture of an epoch. Cancels it if it waits too long for work of the program, repeatedly, because
 * later captures may wait for it too.
 */
static bool wait_captured(struct pending *q)
{
	struct capture *p = q->capture;
	bool off = q->epoch.number < atomic_load(&p->cancelled_before);
	bool captured = capture_wait(p, q->slot, off ? 0 : options.stall_ms);

	if (!captured && !p->broken && !session_hurried())
		capture_tell_late(q->epoch.number);
	while (!captured && !p->broken && !atomic_load(&drain.stopping) && !session_hurried()) {
		capture_cancel(p, q->slot);
		captured = capture_wait(p, q->slot, 100);
	}
	if (captured)
		take_status(q);
	return captured;
}

void drain_cancel_later(struct capture *p)
{
	pthread_mutex_lock(&drain.lock);
	uint64_t i = drain.drained, end = drain.added;
	pthread_mutex_unlock(&drain.lock);
	while (++i < end) {
		const struct pending *q = &drain.queue[i % CAPTURE_PENDING];
		if (q->capture != p || q->read || capture_complete(p, q->slot))
			continue;
		capture_tell_late(q->epoch.number);
		capture_cancel(p, q->slot);
		return;
	}
}

/* Also waits if recording has failed: streams of the program may wait for this capture. */
static bool drain_from_device(struct pending *q, bool on)
{
	struct capture *p = q->capture;

	if (!capture_enter(p->context))
		return false;
	capture_mode_relax(); /* in each context: a stream capture of the program must not forbid calls here */
	bool ok = (q->read || wait_captured(q)) && on && (q->watch || epoch_store_part(q));
	context_pop();
	return ok;
}

static void drain_one(struct pending *q)
{
	bool on = session_state == SESSION_ON && !drain.given_up, ok = false;
	struct capture *p = q->capture;
	char reason[256] = "";

	if (!p->broken && (on || !q->read))
		ok = drain_from_device(q, on);
	if (!on || q->watch)
		return;
	if (!ok && p->broken && session_state == SESSION_ON && !store_failed(session_store(), reason, sizeof(reason)))
		ok = store_lost(q);
	if (ok)
		return;
	drain.given_up = true;
	store_epoch_abandon(session_store());
	if (store_failed(session_store(), reason, sizeof(reason)))
		session_fail("%s", reason);
	else if (!p->broken && !atomic_load(&drain.stopping))
		session_fail("epoch %u can't be stored", q->epoch.number);
}

/* Caller holds the lock. */
static void wait_for_change(unsigned ms)
{
	struct timespec until = clock_in(ms);

	pthread_cond_timedwait(&drain.changed, &drain.lock, &until);
}

static void *work(void *unused)
{
	(void)unused;

	prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0); /* waits for copies are shorter than the default slack */
	thread_current()->busy = 1;
	pthread_mutex_lock(&drain.lock);
	for (;;) {
		clock_tune();
		while (drain.added == drain.drained && !drain.stopping) {
			wait_for_change(clock_line ? 100 : 25);
			clock_tune();
			pthread_mutex_unlock(&drain.lock);
			store_idle(session_store());
			pthread_mutex_lock(&drain.lock);
		}
		if (drain.added == drain.drained)
			break;
		struct pending *q = &drain.queue[drain.drained % CAPTURE_PENDING];
		pthread_mutex_unlock(&drain.lock);
		drain_one(q);
		if (q->final)
			region_list_release(q->list);
		pthread_mutex_lock(&drain.lock);
		drain.drained++;
		drain.progress++;
		pthread_cond_broadcast(&drain.changed);
	}
	drain.running = false;
	pthread_cond_broadcast(&drain.changed);
	pthread_mutex_unlock(&drain.lock);
	return NULL;
}

bool drain_start(void)
{
	drain.running = true; /* before the thread can clear it */
	if (recorder_thread(NULL, "tt-drain", 512 << 10, work, NULL))
		drain.running = false;
	return drain.running;
}

/* A thread of the program waits for a long time. */
static void tell_of_wait(void)
{
	pthread_mutex_unlock(&drain.lock);
	session_warn("the program waits until epochs are stored: they come faster than the disk takes them; fewer epochs, "
		     "--contents none or --overwrite drop-oldest avoid that");
	pthread_mutex_lock(&drain.lock);
}

/*
 * Waits until so many more can be added at once, and until chunks fit into the ring of p or nothing is pending. False:
 * the drain makes no progress; later calls do not wait for the same again.
 */
static bool wait_drained(unsigned places, struct capture *p, uint64_t size, uint64_t largest)
{
	pthread_mutex_lock(&drain.lock);
	uint64_t begun = clock_ns(), since = begun, seen = drain.progress, all = drain.added;
	uint64_t target = all + places > CAPTURE_PENDING ? all + places - CAPTURE_PENDING : 0;
	bool ok, told = false;

	while (!(ok = drain.drained >= target && (!p || drain.drained >= all || capture_fits(p, size, largest))) &&
	       drain.running) {
		uint64_t now = clock_ns();
		if (seen != drain.progress) {
			seen = drain.progress;
			since = now;
		}
		if (seen == drain.stuck_at || now > capture_deadline(since + options.stall_ms * 1000000ull, true)) {
			drain.stuck_at = seen;
			break;
		}
		if (!told && now - begun > LONG_MS * 1000000ull) {
			told = true;
			tell_of_wait();
			continue;
		}
		wait_for_change(100);
	}
	pthread_mutex_unlock(&drain.lock);
	return ok;
}

bool drain_flush(void)
{
	return wait_drained(CAPTURE_PENDING, NULL, 0, 0);
}

bool drain_places(unsigned places)
{
	/* Mostly they are free, and stay so: only callers add to the queue. A skipped epoch should not pay for the lock. */
	return drain.added + places - drain.drained <= CAPTURE_PENDING || wait_drained(places, NULL, 0, 0);
}

bool drain_make_room(struct capture *p, uint64_t size, uint64_t largest)
{
	return wait_drained(1, p, size, largest) && session_state == SESSION_ON;
}

/* The places stay free: only threads with the capture lock, as the caller has it, add to the queue. */
static bool has_places(unsigned places)
{
	bool free = drain_places(places);

	if (!free && session_state == SESSION_ON)
		session_fail("the drain was blocked for %u ms, and its queue is full", options.stall_ms);
	return free;
}

uint32_t drain_slot(void)
{
	has_places(1);
	return (uint32_t)(drain.added % CAPTURE_PENDING);
}

bool drain_add_all(const struct pending *p, unsigned count)
{
	bool free = has_places(count);

	pthread_mutex_lock(&drain.lock);
	bool ok = free && drain.running;
	if (ok) {
		for (unsigned i = 0; i < count; i++)
			drain.queue[drain.added++ % CAPTURE_PENDING] = p[i];
		pthread_cond_broadcast(&drain.changed);
	}
	pthread_mutex_unlock(&drain.lock);
	return ok;
}

bool drain_add(const struct pending *p)
{
	return drain_add_all(p, 1);
}

/* Number of epochs that are not stored, of one context or of all (NULL). Caller holds the lock. */
static unsigned epochs_left(const struct capture *p)
{
	unsigned n = 0;

	for (uint64_t i = drain.drained; i < drain.added; i++) {
		const struct pending *q = &drain.queue[i % CAPTURE_PENDING];
		n += q->final && !q->watch && (!p || q->capture == p);
	}
	return n;
}

void drain_leave(struct capture *p)
{
	pthread_mutex_lock(&drain.lock);
	unsigned left = epochs_left(p);
	atomic_store(&p->broken, true);
	while (drain.running && drain.drained < drain.added && drain.queue[drain.drained % CAPTURE_PENDING].capture == p)
		wait_for_change(100);
	pthread_mutex_unlock(&drain.lock);
	if (left && session_state == SESSION_ON)
		session_lost("a context ended while the drain was blocked: %u of its epochs may have no contents", left);
}

void drain_stop(void)
{
	drain_flush();
	pthread_mutex_lock(&drain.lock);
	unsigned left = epochs_left(NULL);
	drain.stopping = true;
	pthread_cond_broadcast(&drain.changed);
	pthread_mutex_unlock(&drain.lock);
	if (left)
		session_fail("the drain was blocked for %u ms: the last %u epochs may be missing", options.stall_ms, left);
}

void drain_forget(void)
{
	pthread_mutex_init(&drain.lock, NULL);
	pthread_cond_init(&drain.changed, NULL);
	writers_forget();
	epoch_store_forget();
	drain.running = drain.stopping = drain.given_up = false;
	drain.added = drain.drained = 0;
	drain.stuck_at = UINT64_MAX;
}
