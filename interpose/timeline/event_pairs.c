/*
 * Converts pairs of events to times. See event_pairs.h for the invariant.
 *
 * The driver returns the time between two events as a float in milliseconds. So each context has a
 * base event with a known time on the recorder's clock, and a new one every second, before the
 * float gets too coarse.
 */
#include "timeline/event_pairs.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "capture/capture.h"
#include "store/activities.h"
#include "session/session.h"
#include "util/clock.h"
#include "util/event_kinds.h"
#include "inspect/contexts.h"
#include "timeline/timeline.h"

#define PAIRS 8192 /* unfinished pairs of one context */
#define CONTEXTS 64
#define BASE_NS 1000000000ull
#define BASE_TRIES 8
#define LAST_MS 100
#define BASE_MS 50 /* limit for an idle stream of the recorder, which takes microseconds */

enum { FREE, TAKEN, SUBMITTED };

struct timing {
	_Atomic int state;
	CUevent begin, end;
	uint64_t seq, stream, bytes;
	uint32_t kind, name;
};

struct pool {
	const struct context *context;
	CUstream stream;
	CUevent base, tried;
	uint64_t base_ns;
	_Atomic uint64_t head;
	uint64_t tail;
	struct timing pairs[PAIRS];
};

static struct {
	struct pool *_Atomic of[CONTEXTS]; /* by the context's index */
	uint64_t refused;                /* contexts without a pool, a bit each */
	pthread_mutex_t lock;            /* guards creation, use and removal */
} pools = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- bases ---- */

/* The base happened between before and after: keeps the narrowest of a few tries. */
static void try_base(struct pool *p, uint64_t *width)
{
	uint64_t before = clock_ns(), after;
	CUresult r = real.cuEventRecord(p->tried, p->stream);

	do {
		r = r == CUDA_SUCCESS || r == CUDA_ERROR_NOT_READY ? real.cuEventQuery(p->tried) : r;
		after = clock_ns();
	} while (r == CUDA_ERROR_NOT_READY && after - before < BASE_MS * 1000000ull);
	if (r != CUDA_SUCCESS || after - before >= *width)
		return;
	CUevent old = p->base;
	p->base = p->tried;
	p->tried = old;
	p->base_ns = before + (after - before) / 2;
	*width = after - before;
}

static bool set_base(struct pool *p)
{
	uint64_t width = UINT64_MAX;

	for (int i = 0; i < BASE_TRIES; i++)
		try_base(p, &width);
	if (width != UINT64_MAX)
		timeline_clock_error(width / 2);
	return width != UINT64_MAX;
}

/* ---- pools ---- */

static struct pool *make_pool(const struct context *c)
{
	struct pool *p = calloc(1, sizeof(*p));
	bool good = p && real.cuStreamCreateWithPriority(&p->stream, CU_STREAM_NON_BLOCKING, 0) == CUDA_SUCCESS &&
		    real.cuEventCreate(&p->base, CU_EVENT_DEFAULT) == CUDA_SUCCESS &&
		    real.cuEventCreate(&p->tried, CU_EVENT_DEFAULT) == CUDA_SUCCESS;

	for (unsigned i = 0; good && i < PAIRS; i++)
		good = real.cuEventCreate(&p->pairs[i].begin, CU_EVENT_DEFAULT) == CUDA_SUCCESS &&
		       real.cuEventCreate(&p->pairs[i].end, CU_EVENT_DEFAULT) == CUDA_SUCCESS;
	if (p)
		p->context = c;
	good = good && set_base(p);
	if (!good)
		session_lost("the driver refuses CUDA events: the work of context %u has no times", c->index);
	return good ? p : NULL; /* its events are destroyed with the context */
}

/* At the first timed call of a context. */
static __attribute__((noinline, cold)) struct pool *first_of(const struct context *c)
{
	struct thread *t = thread_current();
	struct pool *p;

	t->busy++;
	pthread_mutex_lock(&pools.lock);
	p = atomic_load(&pools.of[c->index]);
	if (!p && !(pools.refused >> c->index & 1) && context_push(c->handle)) {
		CUstreamCaptureMode mode = capture_mode_relax();
		p = make_pool(c);
		capture_mode_restore(mode);
		context_pop();
		pools.refused |= (uint64_t)!p << c->index;
		atomic_store(&pools.of[c->index], p);
	}
	pthread_mutex_unlock(&pools.lock);
	t->busy--;
	return p;
}

struct timing *timing_begin(struct stream *s, uint64_t seq)
{
	const struct context *c = s->context;
	struct pool *p = c->index < CONTEXTS ? atomic_load_explicit(&pools.of[c->index], memory_order_acquire) : NULL;
	int state = FREE;

	if (unlikely(!p) && (c->index >= CONTEXTS || !(p = first_of(c)))) {
		timeline_missed(1);
		return NULL;
	}
	struct timing *t = &p->pairs[atomic_fetch_add(&p->head, 1) % PAIRS];
	/* The recorder submits nothing during a stream capture: that could invalidate the capture. */
	if (atomic_load_explicit(&captures_active, memory_order_relaxed) ||
	    !atomic_compare_exchange_strong(&t->state, &state, TAKEN)) {
		timeline_missed(1);
		return NULL;
	}
	t->seq = seq;
	if (real.cuEventRecord(t->begin, s->handle) == CUDA_SUCCESS)
		return t;
	atomic_store(&t->state, FREE);
	timeline_missed(1);
	return NULL;
}

static uint32_t region_name(uint32_t region)
{
	char text[32];

	snprintf(text, sizeof(text), "region %u", region);
	return store_string(session_store(), text);
}

void timing_end(struct timing *t, const struct stream *s, const struct tt_event *e, bool submitted)
{
	bool good = submitted && e && real.cuEventRecord(t->end, s->handle) == CUDA_SUCCESS;

	if (good) {
		t->stream = s->id;
		t->kind = e->kind;
		t->name = e->kind == TT_EVENT_REGION_READY ? region_name(e->id) : TT_NO_ID;
		t->bytes = event_kind_is(e->kind, TT_KIND_MOVE) ? e->bytes : 0;
	} else if (submitted) {
		timeline_missed(1);
	}
	atomic_store(&t->state, good ? SUBMITTED : FREE);
}

/* ---- times ---- */

static CUresult after_base(const struct pool *p, CUevent event, uint64_t *ns)
{
	float ms;
	CUresult r = real.cuEventElapsedTime(&ms, p->base, event);

	if (r == CUDA_SUCCESS)
		*ns = (uint64_t)((int64_t)p->base_ns + (int64_t)((double)ms * 1e6));
	return r;
}

/* CUDA_ERROR_NOT_READY: not complete. */
static CUresult write_times(const struct pool *p, const struct timing *t)
{
	struct tt_activity a = {
		.seq = t->seq,
		.stream = t->stream,
		.bytes = t->bytes,
		.kind = t->kind,
		.flags = TT_ACTIVITYF_COARSE | (t->kind == TT_EVENT_REGION_READY ? TT_ACTIVITYF_OWN : 0u),
		.context = p->context->index,
		.device = (uint32_t)p->context->device,
		.name = t->name,
	};
	CUresult r = after_base(p, t->end, &a.end_ns);

	if (r == CUDA_SUCCESS)
		r = after_base(p, t->begin, &a.begin_ns);
	if (r == CUDA_SUCCESS && (a.end_ns < a.begin_ns || !activities_add(&a)))
		r = CUDA_ERROR_UNKNOWN;
	return r;
}

/* Returns the number of pairs. */
static unsigned empty(struct pool *p, bool give_up)
{
	uint64_t head = atomic_load(&p->head);
	bool all = true; /* all pairs so far are complete */
	unsigned found = 0;

	if (head - p->tail > PAIRS)
		p->tail = head - PAIRS;
	for (uint64_t i = p->tail; i < head; i++) {
		struct timing *t = &p->pairs[i % PAIRS];
		if (atomic_load(&t->state) == SUBMITTED) {
			CUresult r = write_times(p, t);
			bool over = r != CUDA_ERROR_NOT_READY || give_up;
			timeline_missed(over && r != CUDA_SUCCESS);
			found += over;
			if (over)
				atomic_store(&t->state, FREE);
		}
		all = all && atomic_load(&t->state) == FREE;
		p->tail += all;
	}
	return found;
}

static unsigned poll(struct pool *p, bool give_up)
{
	if (!p->context->alive || !context_push(p->context->handle))
		return 0;
	CUstreamCaptureMode mode = capture_mode_relax();
	unsigned found = empty(p, give_up);
	if (!give_up && clock_ns() - p->base_ns > BASE_NS)
		set_base(p);
	capture_mode_restore(mode);
	context_pop();
	return found;
}

unsigned timing_poll(void)
{
	unsigned found = 0;

	for (unsigned i = 0; i < CONTEXTS; i++) {
		pthread_mutex_lock(&pools.lock);
		if (pools.of[i])
			found += poll(pools.of[i], false);
		pthread_mutex_unlock(&pools.lock);
	}
	return found;
}

static bool pending(const struct pool *p)
{
	for (uint64_t i = p->tail; i < atomic_load(&p->head); i++)
		if (atomic_load(&p->pairs[i % PAIRS].state) == SUBMITTED)
			return true;
	return false;
}

/* Waits shortly for the last work: it completes soon, or hangs. */
static void drop(unsigned index)
{
	struct pool *p = atomic_load(&pools.of[index]);
	uint64_t until = clock_ns() + LAST_MS * 1000000ull;

	if (!p)
		return;
	do
		poll(p, false);
	while (p->context->alive && pending(p) && clock_ns() < until);
	poll(p, true);
	atomic_store(&pools.of[index], NULL); /* never freed: a thread may use it */
}

void timing_context_gone(const struct context *c)
{
	pthread_mutex_lock(&pools.lock);
	if (c->index < CONTEXTS)
		drop(c->index);
	pthread_mutex_unlock(&pools.lock);
}

void timing_close(void)
{
	pthread_mutex_lock(&pools.lock);
	for (unsigned i = 0; i < CONTEXTS; i++)
		drop(i);
	pthread_mutex_unlock(&pools.lock);
}

void timing_forget(void)
{
	pthread_mutex_init(&pools.lock, NULL);
	for (unsigned i = 0; i < CONTEXTS; i++)
		atomic_store(&pools.of[i], NULL);
}
