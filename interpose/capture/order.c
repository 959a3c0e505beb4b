/*
 * Orders captures and streams: what a capture waits for, and what waits for it. See capture.h for
 * the invariant.
 */
#include "options/options.h"
#include "session/session.h"
#include "util/clock.h"
#include "capture/budget.h"
#include "capture/capture.h"

#define HOST_BOUND_MS 200 /* longest wait of an epoch for streams that may wait for the host */
#define OTHERS_MS 50      /* and for busy other streams */

void capture_stream_began(struct stream *s)
{
	if (!s || atomic_exchange(&s->captured, true))
		atomic_fetch_sub(&captures_active, 1); /* untracked, or its last end was missed */
}

void capture_stream_ended(struct stream *s)
{
	if (s && atomic_exchange(&s->captured, false))
		atomic_fetch_sub(&captures_active, 1);
}

void capture_streams_gone(const struct context *c)
{
	for (struct stream *s = atomic_load(&c->streams); s; s = s->next_of_context)
		capture_stream_ended(s);
}

static bool becomes_idle(const struct stream *s, uint64_t deadline)
{
	while (real.cuStreamQuery(s->handle) != CUDA_SUCCESS) {
		if (clock_ns() > deadline)
			return false;
		nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
	}
	return true;
}

/*
 * Work after a host function, or after a wait for a value, may complete only through the host's next action. So no
 * work of the recorder may wait for it. Waits shortly for these streams to become idle. False: some did not.
 */
static bool host_bound_ended(const struct thread *t, struct context *c)
{
	uint64_t deadline = clock_ns() + HOST_BOUND_MS * 1000000ull;
	bool ended = true;

	for (struct stream *s = atomic_load(&c->streams); s; s = s->next_of_context) {
		uint64_t submitted = atomic_load(&s->submitted);
		if (!atomic_load(&s->alive) || !atomic_load(&s->host_bound))
			continue;
		bool again = s->given_up == submitted + 1; /* no new work since the last wait */
		if (stream_namable(s, t) && becomes_idle(s, again ? 0 : deadline)) {
			atomic_store(&s->host_bound, false);
			continue;
		}
		s->given_up = submitted + 1;
		ended = false;
	}
	atomic_store(&c->host_bound, !ended);
	return ended;
}

/* Uses a new event. False: the driver refuses it. The stream's context is current. */
static bool order_behind(const struct capture *p, CUstream stream)
{
	CUevent event;
	bool ok;

	if (real.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
		return false;
	ok = real.cuEventRecord(event, stream) == CUDA_SUCCESS && real.cuStreamWaitEvent(p->stream, event, 0) == CUDA_SUCCESS;
	real.cuEventDestroy_v2(event);
	return ok;
}

/* Waits for streams of another context that may have written to this one's memory. */
static bool order_others(const struct thread *t, const struct capture *p, struct context *other, bool *idle)
{
	uint64_t bit = context_bit(p->context);
	bool exact = true;

	for (struct stream *s = atomic_load(&other->streams); s; s = s->next_of_context) {
		if (!atomic_load(&s->alive) || !(atomic_load(&s->reaches) & bit))
			continue;
		bool bound = atomic_load(&s->host_bound), named = stream_namable(s, t);
		uint64_t submitted = atomic_load(&s->submitted);
		bool patient = bound && s->given_up != submitted + 1;
		bool busy = !named || !becomes_idle(s, patient ? clock_ns() + HOST_BOUND_MS * 1000000ull : 0);
		*idle &= !busy;
		if (busy && bound)
			s->given_up = submitted + 1;
		if (busy && (bound || !order_behind(p, named ? s->handle : CU_STREAM_LEGACY)))
			exact = false;
		else
			atomic_fetch_and(&s->reaches, ~bit);
	}
	return exact;
}

static bool order_other_contexts(const struct thread *t, const struct capture *p, bool *idle)
{
	bool exact = true;

	for (struct context *o = context_first(); o; o = o->next) {
		if (o == p->context || !atomic_load(&o->alive))
			continue;
		if (!context_push(o->handle)) {
			exact = false;
			continue;
		}
		exact &= order_others(t, p, o, idle);
		context_pop();
	}
	return exact;
}

bool capture_order(struct thread *t, struct capture *p, bool *idle)
{
	struct context *c = p->context;
	bool exact = true;

	*idle = false;
	if (!options.deps)
		return false;
	bool stuck = atomic_load(&c->host_bound) && !host_bound_ended(t, c);
	*idle = !stuck;
	uint64_t deadline = stuck ? clock_ns() + OTHERS_MS * 1000000ull : 0;
	for (struct stream *s = atomic_load(&c->streams); s; s = s->next_of_context) {
		uint64_t submitted = atomic_load(&s->submitted);
		if (submitted == atomic_load(&s->settled) || !atomic_load(&s->alive))
			continue;
		/* An idle stream stays idle: nothing is submitted to it. */
		bool order = !stream_namable(s, t) || !becomes_idle(s, deadline);
		*idle &= !order;
		if (order && stuck) {
			exact = false;
			continue;
		}
		atomic_store(&s->settled, submitted);
		/* The legacy default stream waits for other threads' per-thread default streams. */
		CUstream handle = stream_namable(s, t) ? s->handle : CU_STREAM_LEGACY;
		if (order)
			exact &= real.cuEventRecord(p->order, handle) == CUDA_SUCCESS &&
				 real.cuStreamWaitEvent(p->stream, p->order, 0) == CUDA_SUCCESS;
	}
	if (unlikely(atomic_load(&c->reached)))
		exact &= order_other_contexts(t, p, idle);
	return exact;
}

/* False: these captures are complete, so there is nothing to wait for. */
static bool wait_for_captures(struct capture *p, CUstream stream, uint32_t captures)
{
	if (capture_released(p, captures))
		return false;
	if (real.cuStreamWaitValue32_v2(stream, capture_word_address(p, captures), captures, CU_STREAM_WAIT_VALUE_GEQ) !=
		    CUDA_SUCCESS &&
	    !capture_poll(p, capture_word(p, captures), captures, p->stream, options.stall_ms) && !p->broken)
		session_fail("the driver cannot make a stream wait, and a capture took more than %u ms", options.stall_ms);
	return true;
}

bool capture_catch_up(struct stream *s)
{
	struct context *c = s->context;
	uint32_t captures = atomic_load(&c->captures);
	struct capture *p = c->capture;
	CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;

	if (!p || p->broken || !options.deps) {
		atomic_store(&s->awaited_capture, captures);
		return false;
	}
	if (atomic_load(&captures_active) &&
	    (real.cuStreamIsCapturing(s->handle, &capturing) != CUDA_SUCCESS || capturing != CU_STREAM_CAPTURE_STATUS_NONE))
		return false;
	uint64_t begun = budget_begin();
	bool waits = wait_for_captures(p, s->handle, captures);
	budget_end(begun, BUDGET_OTHER);
	atomic_store(&s->awaited_capture, captures);
	return waits;
}

bool capture_await(const struct stream *s, const struct context *other)
{
	uint32_t captures = atomic_load(&other->captures);
	struct capture *p = other->capture;

	return p && !p->broken && options.deps && wait_for_captures(p, s->handle, captures);
}

void capture_overtake(struct stream *s)
{
	struct context *c = s->context;
	uint32_t captures = atomic_load(&c->captures);
	struct capture *p = c->capture;

	if (!p || capture_released(p, captures))
		atomic_store(&s->awaited_capture, captures);
}
