/*
 * The functions that modules call: marks, ranges, domains, registered messages, names.
 *
 * The program gets the answers of a tool: the level of a range within its domain and thread, a number for a range
 * that may end anywhere, a handle for a domain. If another tool is attached too, the program gets that tool's
 * answers.
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

nvtx_function *_Atomic nvtx_theirs[NVTX_PARTS][NVTX_FUNCTIONS];

#define NO_LEVEL (-1) /* no range to pop */

/* An annotation of the program. */
struct said {
	unsigned domain;
	const char *message;
	nvtx_handle registered; /* replaces the message, if not 0 */
	uint32_t color, category, payload_type;
	uint64_t payload;
	struct nvtx_extended extended; /* of TT_PAYLOAD_BYTES */
};

static inline bool recording(void)
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
	if (ranges_are_early() && recording())
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

static struct said said_with(unsigned domain, const struct nvtx_attributes *a, char narrow[TEXTS_WIDE])
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

static struct said said(const char *message)
{
	return (struct said){.message = message};
}

static void mark(const struct said *s)
{
	settle();
	if (!recording())
		return;
	struct text text = text_of(s);
	ranges_entered(text);
	cut(text, write_event(TT_EVENT_MARK, s, text, 0));
	ranges_left(text);
}

static int push(const struct said *s)
{
	struct text text = NO_TEXT;

	settle();
	if (!recording())
		return ranges_push(s->domain, text, early_of(TT_EVENT_RANGE_PUSH, s));
	text = text_of(s);
	write_event(TT_EVENT_RANGE_PUSH, s, text, 0);
	return ranges_push(s->domain, text, NULL);
}

static int pop(unsigned domain)
{
	struct range r;

	settle();
	if (!ranges_pop(domain, &r))
		return NO_LEVEL;
	free(r.early);
	if (recording())
		cut(r.text, write_event(TT_EVENT_RANGE_POP, &(struct said){.domain = domain}, r.text, 0));
	ranges_left(r.text);
	return r.level;
}

static uint64_t start(const struct said *s, uint64_t id)
{
	static _Atomic uint64_t last;
	struct text text;

	if (!id)
		id = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
	settle();
	if (!recording())
		return id;
	text = text_of(s);
	ranges_started(id, s->domain, text);
	write_event(TT_EVENT_RANGE_START, s, text, id);
	return id;
}

static void end(unsigned domain, uint64_t id)
{
	struct text text = NO_TEXT;

	settle();
	if (!recording())
		return;
	ranges_ended(id, &domain, &text);
	cut(text, write_event(TT_EVENT_RANGE_END, &(struct said){.domain = domain}, text, id));
	ranges_left(text);
}

static void name_thread(uint32_t thread, const char *name)
{
	struct said s = said(name);
	struct early *early;

	settle();
	if (!name || !*name)
		return;
	if (recording()) {
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

static void name_stream(CUstream handle, const char *name)
{
	struct thread *t = thread_current();
	struct said s = said(name);
	struct stream *stream;
	struct tt_event *e;

	settle();
	if (!name || !*name || !recording() || thread_in_call(t) || !(stream = stream_of(t, handle, false)) ||
	    !options.events || !(e = events_next()))
		return;
	fill(e, &s);
	e->context = stream->context->index;
	e->stream = stream->id;
	e->id = texts_find(0, name).offset;
	e->dst = TT_NAMED_STREAM;
	publish(e, TT_EVENT_NAME);
}

/* ---- functions for modules ---- */

#define THEIRS(part, number, type) ((type)atomic_load_explicit(&nvtx_theirs[part][number], memory_order_relaxed))

/* what: a struct said, built with `narrow` for wide messages. */
#define MARK(function, part, number, what, parameters, arguments) \
	static void function parameters \
	{ \
		char narrow[TEXTS_WIDE]; \
		struct said s = what; \
		void(*theirs) parameters = THEIRS(part, number, void(*) parameters); \
		(void)narrow; \
		if (theirs) \
			theirs arguments; \
		mark(&s); \
	}
#define PUSH(function, part, number, what, parameters, arguments) \
	static int function parameters \
	{ \
		char narrow[TEXTS_WIDE]; \
		struct said s = what; \
		int(*theirs) parameters = THEIRS(part, number, int(*) parameters); \
		(void)narrow; \
		int level = push(&s); \
		return theirs ? theirs arguments : level; \
	}
#define START(function, part, number, what, parameters, arguments) \
	static uint64_t function parameters \
	{ \
		char narrow[TEXTS_WIDE]; \
		struct said s = what; \
		uint64_t(*theirs) parameters = THEIRS(part, number, uint64_t(*) parameters); \
		(void)narrow; \
		return start(&s, theirs ? theirs arguments : 0); \
	}

#define IN_FORMS(KIND, kind, KINDS) \
	KIND(kind##_ex, NVTX_CORE, NVTX_##KINDS##_EX, said_with(0, a, narrow), (const struct nvtx_attributes *a), (a)) \
	KIND(kind##_a, NVTX_CORE, NVTX_##KINDS##_A, said(message), (const char *message), (message)) \
	KIND(kind##_w, NVTX_CORE, NVTX_##KINDS##_W, said(texts_narrow(message, narrow)), (const wchar_t *message), (message)) \
	KIND(domain_##kind, NVTX_DOMAINS, NVTX_DOMAIN_##KINDS, said_with(texts_domain(domain), a, narrow), \
	     (nvtx_handle domain, const struct nvtx_attributes *a), (domain, a))

IN_FORMS(MARK, mark, MARK)
IN_FORMS(PUSH, push, PUSH)
IN_FORMS(START, start, START)

static int pop_default(void)
{
	int (*theirs)(void) = THEIRS(NVTX_CORE, NVTX_POP, int (*)(void));
	int level = theirs ? theirs() : 0, ours = pop(0);

	return theirs ? level : ours;
}

static int domain_pop(nvtx_handle domain)
{
	int (*theirs)(nvtx_handle) = THEIRS(NVTX_DOMAINS, NVTX_DOMAIN_POP, int (*)(nvtx_handle));
	int level = theirs ? theirs(domain) : 0, ours = pop(texts_domain(domain));

	return theirs ? level : ours;
}

static void end_default(uint64_t id)
{
	void (*theirs)(uint64_t) = THEIRS(NVTX_CORE, NVTX_END, void (*)(uint64_t));

	if (theirs)
		theirs(id);
	end(0, id);
}

static void domain_end(nvtx_handle domain, uint64_t id)
{
	void (*theirs)(nvtx_handle, uint64_t) = THEIRS(NVTX_DOMAINS, NVTX_DOMAIN_END, void (*)(nvtx_handle, uint64_t));

	if (theirs)
		theirs(domain, id);
	end(texts_domain(domain), id);
}

/* The program gets another tool's handle; records it as an alias. */
static nvtx_handle given(nvtx_handle ours, bool another, nvtx_handle theirs)
{
	if (another)
		texts_also(theirs, ours);
	return another ? theirs : ours;
}

static nvtx_handle create_a(const char *name)
{
	nvtx_handle (*theirs)(const char *) = THEIRS(NVTX_DOMAINS, NVTX_DOMAIN_CREATE_A, nvtx_handle (*)(const char *));

	return given(texts_create_domain(name), theirs, theirs ? theirs(name) : 0);
}

static nvtx_handle create_w(const wchar_t *name)
{
	nvtx_handle (*theirs)(const wchar_t *) = THEIRS(NVTX_DOMAINS, NVTX_DOMAIN_CREATE_W, nvtx_handle (*)(const wchar_t *));
	char narrow[TEXTS_WIDE];

	return given(texts_create_domain(texts_narrow(name, narrow)), theirs, theirs ? theirs(name) : 0);
}

static nvtx_handle register_a(nvtx_handle domain, const char *message)
{
	nvtx_handle (*theirs)(nvtx_handle, const char *) = THEIRS(NVTX_DOMAINS, NVTX_DOMAIN_REGISTER_A,
								  nvtx_handle (*)(nvtx_handle, const char *));

	return given(texts_register(texts_domain(domain), message, recording()), theirs, theirs ? theirs(domain, message) : 0);
}

static nvtx_handle register_w(nvtx_handle domain, const wchar_t *message)
{
	nvtx_handle (*theirs)(nvtx_handle, const wchar_t *) = THEIRS(NVTX_DOMAINS, NVTX_DOMAIN_REGISTER_W,
								     nvtx_handle (*)(nvtx_handle, const wchar_t *));
	char narrow[TEXTS_WIDE];

	return given(texts_register(texts_domain(domain), texts_narrow(message, narrow), recording()), theirs,
		     theirs ? theirs(domain, message) : 0);
}

#define NAMES(function, part, number, name, type, text, characters) \
	static void function(type what, const characters *given_name) \
	{ \
		char narrow[TEXTS_WIDE]; \
		void (*theirs)(type, const characters *) = THEIRS(part, number, void (*)(type, const characters *)); \
		(void)narrow; \
		if (theirs) \
			theirs(what, given_name); \
		name(what, text); \
	}

#define NAMES_IN_FORMS(function, part, number, name, type) \
	NAMES(function##_a, part, number##_A, name, type, given_name, char) \
	NAMES(function##_w, part, number##_W, name, type, texts_narrow(given_name, narrow), wchar_t)

NAMES_IN_FORMS(thread, NVTX_CORE, NVTX_NAME_THREAD, name_thread, uint32_t)
NAMES_IN_FORMS(stream, NVTX_CUDA, NVTX_CUDA_STREAM, name_stream, CUstream)
NAMES_IN_FORMS(runtime_stream, NVTX_CUDART, NVTX_CUDART_STREAM, name_stream, CUstream)

#define OURS(function) ((nvtx_function *)(function))

nvtx_function *const nvtx_ours[NVTX_PARTS][NVTX_FUNCTIONS] = {
	[NVTX_CORE] =
		{
			[NVTX_MARK_EX] = OURS(mark_ex),
			[NVTX_MARK_A] = OURS(mark_a),
			[NVTX_MARK_W] = OURS(mark_w),
			[NVTX_START_EX] = OURS(start_ex),
			[NVTX_START_A] = OURS(start_a),
			[NVTX_START_W] = OURS(start_w),
			[NVTX_PUSH_EX] = OURS(push_ex),
			[NVTX_PUSH_A] = OURS(push_a),
			[NVTX_PUSH_W] = OURS(push_w),
			[NVTX_END] = OURS(end_default),
			[NVTX_POP] = OURS(pop_default),
			[NVTX_NAME_THREAD_A] = OURS(thread_a),
			[NVTX_NAME_THREAD_W] = OURS(thread_w),
		},
	[NVTX_DOMAINS] =
		{
			[NVTX_DOMAIN_MARK] = OURS(domain_mark),
			[NVTX_DOMAIN_START] = OURS(domain_start),
			[NVTX_DOMAIN_PUSH] = OURS(domain_push),
			[NVTX_DOMAIN_END] = OURS(domain_end),
			[NVTX_DOMAIN_POP] = OURS(domain_pop),
			[NVTX_DOMAIN_REGISTER_A] = OURS(register_a),
			[NVTX_DOMAIN_REGISTER_W] = OURS(register_w),
			[NVTX_DOMAIN_CREATE_A] = OURS(create_a),
			[NVTX_DOMAIN_CREATE_W] = OURS(create_w),
		},
	[NVTX_CUDA] = {[NVTX_CUDA_STREAM_A] = OURS(stream_a), [NVTX_CUDA_STREAM_W] = OURS(stream_w)},
	[NVTX_CUDART] =
		{
			[NVTX_CUDART_STREAM_A] = OURS(runtime_stream_a),
			[NVTX_CUDART_STREAM_W] = OURS(runtime_stream_w),
		},
};
