/*
 * Finds in-flight work. See inflight.h for the invariant.
 *
 * It passes several times over the recorded calls: for waits, for event records, for work. Each stream gets a lane,
 * and each event that was recorded or waited for gets a mark.
 */
#include "lifecycle/inflight.h"

#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "capture/capture.h"
#include "store/activities.h"
#include "store/events.h"
#include "options/options.h"
#include "inspect/contexts.h"
#include "session/session.h"
#include "lifecycle/signals.h"
#include "util/clock.h"
#include "util/recorder_thread.h"
#include "util/event_kinds.h"

#define LOOK_BACK 65536 /* calls */
#define LANES 4096
#define MARKS 4096
#define PROBES 32       /* longest search in a table; entries beyond it are dropped */
#define ASK_MS 300
#define ENDINGS 4096
#define WAITS 64        /* waits of streams for events that are examined */

struct lane {
	struct inflight_stream told;
	bool used, busy; /* busy: the driver says so */
	struct stream *stream; /* NULL: it can't be queried */
	struct context *context;
	_Atomic uint64_t completed; /* work submitted to it before this call is complete */
	uint64_t first;  /* sequence number of its first incomplete call */
};

/* An event of the program. */
struct mark {
	uint64_t event;
	uint64_t waited;   /* the last wait of the host for it that returned */
	uint64_t before;   /* when it was recorded before that, and in which stream */
	struct lane *before_lane;
	uint64_t recorded; /* when it was last recorded, and in which stream */
	struct lane *lane;
};

/* A stream that waits for an event. */
struct wait {
	struct lane *lane, *on;
	uint64_t event, seq, recorded;
};

/* The results; the thread that holds `looking` writes them. */
static struct {
	struct lane lanes[LANES];
	struct mark marks[MARKS];
	struct wait waits[WAITS];
	unsigned wait_count;
	uint64_t oldest; /* the first call that was examined */
	struct inflight answer;
	const struct context *only; /* NULL: all */
	atomic_flag looking;
} found = {.looking = ATOMIC_FLAG_INIT};

/* The thread that queries the driver. */
static struct {
	sem_t wake;
	_Atomic bool asking, asked, open;
	_Atomic uint64_t ask_until;
	_Atomic uint64_t event_ends[ENDINGS]; /* by hash: do not query events recorded before that call */
} driver_asker;

/* ---- tables ---- */

static size_t hash(uint64_t value)
{
	return (size_t)(value * 0x9e3779b97f4a7c15ull >> 40);
}

static struct context *context_numbered(uint32_t index)
{
	struct context *c = context_first();

	while (c && c->index != index)
		c = c->next;
	return c;
}

/* NULL: not of the requested context, or no room. */
static struct lane *lane_of(uint32_t context, uint64_t stream, uint32_t thread)
{
	uint32_t owner = stream == STREAM_ID_PER_THREAD ? thread : 0;
	size_t at = hash(stream << 32 ^ (uint64_t)context << 48 ^ owner);

	if (!stream || (found.only && found.only->index != context))
		return NULL;
	for (size_t i = 0; i < PROBES; i++) {
		struct lane *l = &found.lanes[(at + i) % LANES];
		if (!l->used) {
			l->used = true;
			l->told.context = context;
			l->told.id = stream;
			l->told.thread = owner;
			l->context = context_numbered(context);
			return l;
		}
		if (l->told.context == context && l->told.id == stream && l->told.thread == owner)
			return l;
	}
	return NULL;
}

static struct mark *mark_of(uint64_t event)
{
	for (size_t i = 0, at = hash(event); event && i < PROBES; i++) {
		struct mark *m = &found.marks[(at + i) % MARKS];
		if (!m->event)
			m->event = event;
		if (m->event == event)
			return m;
	}
	return NULL;
}

static void raise_to(_Atomic uint64_t *n, uint64_t to)
{
	uint64_t was = atomic_load(n);

	while (was < to && !atomic_compare_exchange_weak(n, &was, to))
		;
}

void inflight_completed(struct context *c, uint64_t seq)
{
	raise_to(&c->completed, seq);
}

static uint64_t completed(const struct lane *l)
{
	uint64_t of_context = l->context ? atomic_load(&l->context->completed) : 0, own = atomic_load(&l->completed);

	return own > of_context ? own : of_context;
}

/* ---- complete work, by recorded calls ---- */

static void look_for_waits(const struct tt_event *e, uint32_t kind, void *unused)
{
	struct lane *l;
	struct mark *m;

	(void)unused;
	if (e->seq < found.oldest)
		found.oldest = e->seq;
	if (e->result)
		return;
	bool copied = kind == TT_EVENT_COPY && (e->flags & TT_EVENTF_SYNC_COPY) && (e->flags & TT_EVENTF_HOST_DST);
	if (copied || (kind == TT_EVENT_SYNC && e->stream)) {
		if ((l = lane_of(e->context, e->stream, e->thread)))
			raise_to(&l->completed, e->seq + 1);
	} else if (kind == TT_EVENT_SYNC && e->src) {
		if ((m = mark_of(e->src)) && e->seq > m->waited)
			m->waited = e->seq;
	} else if (kind == TT_EVENT_SYNC) {
		struct context *c = context_numbered(e->context);
		if (c)
			inflight_completed(c, e->seq + 1);
	}
}

static void look_for_records(const struct tt_event *e, uint32_t kind, void *unused)
{
	struct mark *m;
	struct lane *l;

	(void)unused;
	if (kind != TT_EVENT_EVENT_RECORD || e->result || (e->flags & TT_EVENTF_CAPTURING) || !(m = mark_of(e->src)) ||
	    !(l = lane_of(e->context, e->stream, e->thread)))
		return;
	if (e->seq > m->recorded) {
		m->recorded = e->seq;
		m->lane = l;
	}
	if (e->seq < m->waited && e->seq > m->before) {
		m->before = e->seq;
		m->before_lane = l;
	}
}

static void look_at_activity(const struct tt_activity *a, void *unused)
{
	struct lane *l;

	(void)unused;
	if (a->seq && !a->node && a->stream != STREAM_ID_PER_THREAD && (l = lane_of(a->context, a->stream, 0)))
		raise_to(&l->completed, a->seq + 1);
}

static void find_completed(void)
{
	found.oldest = UINT64_MAX;
	events_recent(LOOK_BACK, look_for_waits, NULL);
	events_recent(LOOK_BACK, look_for_records, NULL);
	for (struct mark *m = found.marks; m < found.marks + MARKS; m++)
		if (m->before)
			raise_to(&m->before_lane->completed, m->before);
	activities_recent(LOOK_BACK, look_at_activity, NULL);
}

/* ---- incomplete work ---- */

static void list(struct inflight_stream *s, const struct tt_event *e)
{
	uint32_t at = s->listed;

	while (at && s->calls[at - 1]->seq > e->seq)
		at--;
	if (at == INFLIGHT_CALLS)
		return;
	if (s->listed < INFLIGHT_CALLS)
		s->listed++;
	memmove(s->calls + at + 1, s->calls + at, (s->listed - at - 1) * sizeof(*s->calls));
	s->calls[at] = e;
}

static void look_for_work(const struct tt_event *e, uint32_t kind, void *unused)
{
	struct lane *l;

	(void)unused;
	if (!event_kind_is(kind, TT_KIND_WORK) || e->result || (e->flags & TT_EVENTF_CAPTURING) ||
	    !(l = lane_of(e->context, e->stream, e->thread)) || e->seq < completed(l))
		return;
	l->told.count++;
	list(&l->told, e);
}

static void find_work(void)
{
	for (struct lane *l = found.lanes; l < found.lanes + LANES; l++)
		l->told.count = l->told.listed = 0;
	events_recent(LOOK_BACK, look_for_work, NULL);
	for (struct lane *l = found.lanes; l < found.lanes + LANES; l++) {
		l->told.destroyed = l->told.id >= STREAM_ID_FIRST && !l->stream;
		l->told.more = l->told.count && found.oldest > 1 && completed(l) < found.oldest;
		l->first = l->told.listed ? l->told.calls[0]->seq : 0;
	}
}

/* ---- the driver's answers ---- */

static void find_streams(void)
{
	for (struct context *c = context_first(); c; c = c->next) {
		if (!c->alive)
			continue;
		for (struct stream *s = atomic_load(&c->streams); s; s = s->next_of_context) {
			struct lane *l = s->alive && s->id != STREAM_ID_PER_THREAD ? lane_of(c->index, s->id, 0) : NULL;
			if (!l)
				continue;
			l->stream = s;
			raise_to(&l->completed, atomic_load(&s->completed));
		}
	}
}

static bool may_ask(void)
{
	return !atomic_load(&captures_active) && clock_ns() < atomic_load(&driver_asker.ask_until);
}

/* Whether an answer is in time and positive; a late one belongs to an earlier query. */
static bool heard(const struct context *c, CUresult r)
{
	if (clock_ns() > atomic_load(&driver_asker.ask_until))
		return false;
	if (driver_context_lost(r)) {
		found.answer.lost = r;
		found.answer.lost_context = c->index;
	}
	return r == CUDA_SUCCESS;
}

static void ask_about_streams(const struct context *c)
{
	for (struct lane *l = found.lanes; l < found.lanes + LANES && may_ask(); l++) {
		if (l->context != c || !l->stream || !l->stream->alive || (options.events && !l->told.count))
			continue;
		uint64_t now = session_last_seq();
		CUresult r = real.cuStreamQuery(l->stream->handle);
		l->busy = r == CUDA_ERROR_NOT_READY;
		if (heard(c, r))
			raise_to(&l->completed, now + 1);
	}
}

static void ask_about_events(const struct context *c)
{
	for (struct mark *m = found.marks; m < found.marks + MARKS && may_ask(); m++) {
		struct lane *l = m->lane;
		if (!m->recorded || l->context != c || !l->told.count || m->recorded < completed(l) ||
		    m->recorded < atomic_load(&driver_asker.event_ends[hash(m->event) % ENDINGS]) ||
		    (l->stream && !l->stream->alive))
			continue;
		if (heard(c, real.cuEventQuery((CUevent)(uintptr_t)m->event)))
			raise_to(&l->completed, m->recorded);
	}
}

static void ask(void)
{
	for (struct context *c = context_first(); c && may_ask(); c = c->next) {
		if (!c->alive || c->lost || (found.only && found.only != c) || !context_push(c->handle))
			continue;
		capture_mode_relax();
		ask_about_streams(c);
		ask_about_events(c);
		context_pop();
	}
}

static void *asker(void *unused)
{
	(void)unused;
	thread_current()->busy = 1;
	for (;;) {
		while (sem_wait(&driver_asker.wake))
			continue;
		ask();
		atomic_store(&driver_asker.asking, false);
		atomic_store(&driver_asker.asked, true);
	}
	return NULL;
}

void inflight_open(void)
{
	sem_init(&driver_asker.wake, 0, 0);
	atomic_store(&driver_asker.open, !recorder_thread(NULL, "tt-asking", 256 << 10, asker, NULL));
}

/* The driver is not queried again after it hung once. */
static bool answered(void)
{
	if (!atomic_load(&driver_asker.open) || atomic_exchange(&driver_asker.asking, true))
		return false;
	atomic_store(&driver_asker.asked, false);
	atomic_store(&driver_asker.ask_until, clock_ns() + ASK_MS * 1000000ull);
	sem_post(&driver_asker.wake);
	while (!atomic_load(&driver_asker.asked) && clock_ns() < atomic_load(&driver_asker.ask_until))
		nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
	return atomic_load(&driver_asker.asked);
}

/* Waits shortly while the driver is queried, before the program destroys a handle. */
void inflight_handle_ends(void)
{
	while (unlikely(atomic_load(&driver_asker.asking)) && clock_ns() < atomic_load(&driver_asker.ask_until))
		nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

void inflight_event_ends(CUevent event)
{
	atomic_store(&driver_asker.event_ends[hash((uintptr_t)event) % ENDINGS], session_last_seq() + 1);
	inflight_handle_ends();
}

/* ---- dependencies between streams ---- */

static void look_for_event_waits(const struct tt_event *e, uint32_t kind, void *unused)
{
	struct lane *l;

	(void)unused;
	if (kind != TT_EVENT_EVENT_WAIT || e->result || (e->flags & TT_EVENTF_CAPTURING) || found.wait_count == WAITS ||
	    !(l = lane_of(e->context, e->stream, e->thread)) || !l->first || e->seq > l->first || e->seq < completed(l))
		return;
	found.waits[found.wait_count++] = (struct wait){.lane = l, .event = e->src, .seq = e->seq};
}

/* Finds the last record of the event before the wait. */
static void look_for_waited(const struct tt_event *e, uint32_t kind, void *unused)
{
	(void)unused;
	if (kind != TT_EVENT_EVENT_RECORD || e->result)
		return;
	for (struct wait *w = found.waits; w < found.waits + found.wait_count; w++)
		if (w->event == e->src && e->seq < w->seq && e->seq > w->recorded) {
			w->recorded = e->seq;
			w->on = lane_of(e->context, e->stream, e->thread);
		}
}

static void find_waits(void)
{
	found.wait_count = 0;
	events_recent(LOOK_BACK, look_for_event_waits, NULL);
	if (found.wait_count)
		events_recent(LOOK_BACK, look_for_waited, NULL);
	for (struct wait *w = found.waits; w < found.waits + found.wait_count; w++)
		if (w->on && w->on != w->lane && w->on->first && w->recorded > w->on->first)
			w->lane->told.behind = &w->on->told;
}

/* ---- the result ---- */

static bool comes_before(const struct inflight_stream *a, const struct inflight_stream *b)
{
	if (a->destroyed != b->destroyed)
		return !a->destroyed;
	if (!a->behind != !b->behind)
		return !a->behind;
	if (!a->listed || !b->listed)
		return a->listed;
	return a->calls[0]->seq < b->calls[0]->seq;
}

static void tell(const struct inflight_stream *s)
{
	uint32_t at = found.answer.count < INFLIGHT_STREAMS ? found.answer.count : INFLIGHT_STREAMS;

	found.answer.count++;
	while (at && comes_before(s, found.answer.streams[at - 1])) {
		if (at < INFLIGHT_STREAMS)
			found.answer.streams[at] = found.answer.streams[at - 1];
		at--;
	}
	if (at < INFLIGHT_STREAMS)
		found.answer.streams[at] = s;
}

/* If calls are not recorded, a stream is in flight if the driver says so or does not answer. */
static bool is_in_flight(const struct lane *l)
{
	const struct stream *s = l->stream;

	if (l->told.count || l->busy)
		return true;
	return !options.events && s && atomic_load(&s->submitted) >= completed(l) &&
	       atomic_load(&s->submitted) != atomic_load(&s->settled);
}

const struct inflight *inflight_look(const struct context *c, bool may_ask_driver)
{
	if (atomic_flag_test_and_set(&found.looking))
		return NULL;
	memset(found.lanes, 0, sizeof(found.lanes));
	memset(found.marks, 0, sizeof(found.marks));
	found.answer = (struct inflight){.lost_context = TT_NO_ID};
	found.only = c;
	find_completed();
	find_streams();
	find_work();
	found.answer.answered = may_ask_driver && answered();
	if (may_ask_driver)
		find_work();
	find_waits();
	for (struct lane *l = found.lanes; l < found.lanes + LANES; l++)
		if (l->used && is_in_flight(l))
			tell(&l->told);
	return &found.answer;
}

void inflight_done(void)
{
	atomic_flag_clear(&found.looking);
}
