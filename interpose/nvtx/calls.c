/*
 * Records marks, ranges and names. See calls.h.
 */
#include "nvtx/calls.h"

#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "capture/capture.h"
#include "store/events.h"
#include "options/options.h"
#include "session/session.h"
#include "util/clock.h"
#include "util/visit.h"
#include "inspect/contexts.h"
#include "nvtx/nvtx.h"
#include "nvtx/payload.h"
#include "nvtx/ranges.h"

#define NO_LEVEL (-1) /* no range to pop */

bool nvtx_recording(void)
{
	return session_state == SESSION_ON && !thread_self.busy;
}

static inline bool may_record_later(void)
{
	return session_state == SESSION_UNDECIDED;
}

/* ---- writing ---- */

static _Atomic uint64_t count;

uint64_t nvtx_count(void)
{
	return atomic_load(&count);
}

static void publish(struct tt_event *e, uint32_t kind)
{
	events_publish(e, kind);
	atomic_fetch_add_explicit(&count, 1, memory_order_relaxed);
}

/* The thread's last context: to query the current one would be a driver call. */
static uint32_t context_known(void)
{
	struct context *c = thread_self.context;

	return c && atomic_load(&c->alive) ? c->index : TT_NO_ID;
}

static void fill(struct tt_event *e, const struct said *s)
{
	e->seq = session_next_seq();
	e->time_ns = clock_ns();
	e->thread = thread_self.registered ? thread_self.tid : (uint32_t)syscall(SYS_gettid);
	e->context = context_known();
	e->call = TT_NO_CALL;
	e->dst = e->id = TT_NO_ID;
	e->bytes = s->payload;
	e->shared = s->color;
	e->grid[0] = s->payload_type;
	e->grid[1] = s->category;
	payload_store(e, &s->extended);
}

/* Returns the sequence number. */
static uint64_t write_event(uint32_t kind, const struct said *s, struct text text, uint64_t src)
{
	struct tt_event *e = options.events ? events_next() : NULL;

	if (!e)
		return session_next_seq();
	fill(e, s);
	e->id = text.offset;
	e->dst = texts_domain_name(s->domain);
	e->src = src;
	publish(e, kind);
	return e->seq;
}

static struct text text_of(const struct said *s)
{
	return s->registered ? texts_registered(s->registered) : texts_find(s->domain, s->message);
}

static struct text write_early(const struct early *early)
{
	struct text text = early->registered ? texts_registered(early->registered) : texts_find(early->domain, early->message);
	struct tt_event *e = options.events ? events_next() : NULL;

	if (!e)
		return text;
	*e = early->event;
	e->thread = thread_current()->tid; /* the thread may be in a forked child now */
	e->id = text.offset;
	if (early->kind == TT_EVENT_NAME)
		e->src = e->thread;
	else
		e->dst = texts_domain_name(early->domain);
	publish(e, early->kind);
	return text;
}

static void settle(void)
{
	if (ranges_are_early() && nvtx_recording())
		ranges_settle(write_early);
}

void nvtx_recording_begins(void)
{
	settle();
}

static struct early *early_of(uint32_t kind, const struct said *s)
{
	struct early *e = may_record_later() ? ranges_early(s->registered ? NULL : s->message) : NULL;

	if (!e)
		return NULL;
	e->kind = kind;
	e->domain = s->domain;
	e->registered = s->registered;
	fill(&e->event, s);
	return e;
}

/*
 * Cuts an epoch in the thread's current context, or its last one. Only in threads that have made driver calls:
 * threads in which the driver runs host functions may not, and have not. Not within a driver call.
 */
static void cut(struct text text, uint64_t seq)
{
	struct thread *t = &thread_self;

	if (likely(!text.chosen) || thread_in_call(t) || !t->context)
		return;
	thread_calls(t, 1);
	struct visit v = visit_begin();
	struct context *c = context_current(t), *last = t->context;
	if (c)
		capture_epoch(t, c, TT_TRIGGER_NVTX, text.offset, seq, false);
	else if (last && atomic_load(&last->alive) && context_push(last->handle)) {
		capture_epoch(t, last, TT_TRIGGER_NVTX, text.offset, seq, false);
		context_pop();
	}
	visit_end(v);
	thread_calls(t, -1);
}

/* ---- annotations ---- */

/* A struct of an older version lacks later members. */
#define HAS(a, member) ((a)->size >= offsetof(struct nvtx_attributes, member) + sizeof((a)->member))

static uint64_t payload_of(const struct nvtx_attributes *a)
{
	return a->payload_type >= TT_PAYLOAD_U32 ? (uint32_t)a->payload : a->payload;
}

struct said nvtx_said_with(unsigned domain, const struct nvtx_attributes *a, char narrow[TEXTS_WIDE])
{
	struct said s = {.domain = domain};

	if (!a || !HAS(a, message))
		return s;
	s.category = a->category;
	s.color = a->color_type == NVTX_ARGB ? a->color : 0;
	if (payload_extended(a, &s.extended))
		s.payload_type = TT_PAYLOAD_BYTES;
	else if (a->payload_type > TT_PAYLOAD_NONE && a->payload_type <= TT_PAYLOAD_F32) {
		s.payload_type = (uint32_t)a->payload_type;
		s.payload = payload_of(a);
	}
	switch (a->message_type) {
	case NVTX_ASCII:
		s.message = a->message.ascii;
		break;
	case NVTX_WIDE:
		s.message = texts_narrow(a->message.wide, narrow);
		break;
	case NVTX_REGISTERED:
		s.registered = a->message.registered;
		break;
	}
	return s;
}

struct said nvtx_said_of(unsigned domain, const struct nvtx_extended *payloads, size_t count)
{
	struct said s = {.domain = domain};

	if (payload_first(payloads, count, &s.extended))
		s.payload_type = TT_PAYLOAD_BYTES;
	return s;
}

void nvtx_mark(const struct said *s)
{
	settle();
	if (!nvtx_recording())
		return;
	struct text text = text_of(s);
	ranges_entered(text);
	cut(text, write_event(TT_EVENT_MARK, s, text, 0));
	ranges_left(text);
}

int nvtx_push(const struct said *s)
{
	struct text text = NO_TEXT;

	settle();
	if (!nvtx_recording())
		return ranges_push(s->domain, text, early_of(TT_EVENT_RANGE_PUSH, s));
	text = text_of(s);
	write_event(TT_EVENT_RANGE_PUSH, s, text, 0);
	return ranges_push(s->domain, text, NULL);
}

int nvtx_pop(const struct said *s)
{
	struct range r;

	settle();
	if (!ranges_pop(s->domain, &r))
		return NO_LEVEL;
	free(r.early);
	if (nvtx_recording())
		cut(r.text, write_event(TT_EVENT_RANGE_POP, s, r.text, 0));
	ranges_left(r.text);
	return r.level;
}

uint64_t nvtx_start(const struct said *s, uint64_t id)
{
	static _Atomic uint64_t last;
	struct text text;

	if (!id)
		id = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
	settle();
	if (!nvtx_recording())
		return id;
	text = text_of(s);
	ranges_started(id, s->domain, text);
	write_event(TT_EVENT_RANGE_START, s, text, id);
	return id;
}

void nvtx_end(struct said s, uint64_t id)
{
	struct text text = NO_TEXT;

	settle();
	if (!nvtx_recording())
		return;
	ranges_ended(id, &s.domain, &text);
	cut(text, write_event(TT_EVENT_RANGE_END, &s, text, id));
	ranges_left(text);
}

void nvtx_name_thread(uint32_t thread, const char *name)
{
	struct said s = {.message = name};
	struct early *early;

	settle();
	if (!name || !*name)
		return;
	if (nvtx_recording()) {
		struct tt_event *e = options.events ? events_next() : NULL;
		if (!e)
			return;
		fill(e, &s);
		e->id = texts_find(0, name).offset;
		e->dst = TT_NAMED_THREAD;
		e->src = thread;
		publish(e, TT_EVENT_NAME);
	} else if (thread == (uint32_t)syscall(SYS_gettid) && (early = early_of(TT_EVENT_NAME, &s))) {
		early->event.dst = TT_NAMED_THREAD;
		ranges_name(early);
	}
}

void nvtx_name_stream(CUstream handle, const char *name)
{
	struct thread *t = thread_current();
	struct said s = {.message = name};
	struct stream *stream;
	struct tt_event *e;

	settle();
	if (!name || !*name || !nvtx_recording() || thread_in_call(t) || !(stream = stream_of(t, handle, false)) ||
	    !options.events || !(e = events_next()))
		return;
	fill(e, &s);
	e->context = stream->context->index;
	e->stream = stream->id;
	e->id = texts_find(0, name).offset;
	e->dst = TT_NAMED_STREAM;
	publish(e, TT_EVENT_NAME);
}
