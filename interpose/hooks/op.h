/*
 * What every wrapper does around the driver's call.
 *
 * Invariant: the driver's call is made exactly once per attempt with the program's own arguments,
 * and its result is returned unchanged.
 */
#ifndef TT_HOOKS_OP_H
#define TT_HOOKS_OP_H

#include "capture/capture.h"
#include "capture/controls.h"
#include "delay/calls.h"
#include "delay/points.h"
#include "store/event_slots.h"
#include "options/options.h"
#include "lifecycle/recorder.h"
#include "session/session.h"
#include "util/clock.h"
#include "inspect/contexts.h"
#include "inspect/functions.h"
#include "track/regions.h"
#include "callstack/stacks.h"
#include "timeline/event_pairs.h"
#include "timeline/timeline.h"

struct op {
	bool on; /* the call is recorded */
	bool writes;
	bool capturing; /* it becomes a graph node and does not run now */
	bool waited;    /* its stream waits for a capture first */
	bool held;      /* no other thread submits work */
	uint32_t before; /* the epoch before it, if held */
	uint64_t waited_for; /* the region that this wait is for, 0: any */
	struct timing *timing; /* events around its work, or NULL */
	struct tt_event *event; /* its record, or NULL */
	struct thread *t;
	struct context *context;
	struct stream *stream;
	uint64_t seq, time;
	uint32_t call; /* enum call, or TT_NO_ID */
	uint32_t stack; /* call stack, if it was taken before the call; else 0 */
	uint32_t delays; /* TT_EVENTF_DELAYED… chosen for it */
	uint32_t delay_ns;
	uint64_t delay_number; /* its number among the calls of the stream that may be delayed */
};

/*
 * Declares a wrapper's op. Until it goes out of scope, the thread counts as being in a driver call, so a signal
 * that ends the process does not interrupt it. Callers that take the capture lock need one.
 */
#define OP(name, which) \
	struct op name __attribute__((cleanup(op_leave))); \
	name.call = which; \
	thread_enters(&thread_self, which)

/* The start of each wrapper: its op, then the given code if the driver has the call. */
#define HOOK(op, symbol, ...) \
	OP(op, CALL_##symbol); \
	if (!REAL(symbol)) \
		return CUDA_ERROR_NOT_SUPPORTED; \
	__VA_ARGS__

/* A wrapper that only acts after success. */
#define AFTER(symbol, params, args, ...) \
	EXPORT CUresult CUDAAPI symbol params \
	{ \
		HOOK(op, symbol); \
		CUresult r = real.symbol args; \
		if (r == CUDA_SUCCESS) { \
			__VA_ARGS__; \
		} \
		return r; \
	}

static inline void op_leave(struct op *op)
{
	(void)op;
	thread_leaves(&thread_self);
}

static inline bool recording(void)
{
	int state = atomic_load_explicit(&session_state, memory_order_acquire);

	return state == SESSION_ON || (state == SESSION_UNDECIDED && recorder_start());
}

/*
 * For calls that free memory or need all memory: after a failure, the recorder's captures may still read the
 * memory, and its own may still be allocated.
 */
static inline bool recording_or_stopped(void)
{
	return recording() || unlikely(atomic_load(&session_state) == SESSION_STOPPED);
}

/* Takes the call stack from PyTorch, whose code may make calls: before the gate. */
void op_ask_torch(struct op *op);

static inline bool op_start(struct op *op, bool recorded)
{
	op->on = op->writes = op->capturing = false;
	op->context = NULL;
	op->stream = NULL;
	op->timing = NULL;
	op->waited = op->held = false;
	op->waited_for = 0;
	op->event = NULL;
	op->stack = op->delays = 0;
	if (!recorded)
		return false;
	op->t = thread_current();
	if (op->t->busy)
		return false;
	if (unlikely(options.callstacks == CALLSTACKS_PYTORCH))
		op_ask_torch(op);
	return true;
}

static inline void op_number(struct op *op)
{
	op->seq = session_next_seq();
	thread_self.submits_for = op->seq;
}

static inline bool op_started(struct op *op)
{
	op_number(op);
	op->time = clock_ns();
	return op->on = true;
}

/* Call right before a driver call that submits work that may be delayed. */
static inline void op_delay(struct op *op)
{
	if (likely(!op->delays))
		return;
	if (op->delays & TT_EVENTF_DELAYED_STREAM && (op->capturing || !delay_stream(op->stream, op->delay_ns)))
		op->delays &= ~(uint32_t)TT_EVENTF_DELAYED_STREAM;
	delay_list(op->stream->id, op->delay_number, op->delays, op->delay_ns);
}

/* Events before and after the op's work, whose cost counts as that of the call. */
struct timing *op_timing(const struct op *op);
void op_timed(const struct op *op, bool submitted);

/* The same as op_delay for work that is timed. */
static inline void op_time(struct op *op)
{
	op_delay(op);
	if (unlikely(atomic_load_explicit(&timeline_source, memory_order_relaxed) == TIMELINE_EVENTS) && op->on &&
	    !op->capturing)
		op->timing = op_timing(op);
}

/* The caller's call stack. */
uint32_t op_stack(void);

/* Call right before a driver call that waits for the GPU: if it hangs, its call stack is known. */
static inline void op_waits(struct op *op)
{
	if (likely(!options.callstacks) || !op->on)
		return;
	if (!op->stack)
		op->stack = op_stack();
	atomic_store_explicit(&op->t->waits_at, op->stack, memory_order_relaxed);
}

/* The same for a call that does nothing else. Returns the time for op_waited; 0: the wait has no record of its times. */
static inline uint64_t op_only_waits(struct op *op)
{
	op_waits(op);
	return op->on && atomic_load_explicit(&timeline_source, memory_order_relaxed) != TIMELINE_OFF ? clock_ns() : 0;
}

/* Call right after it. */
void op_waited(const struct op *op, uint64_t since);

/* A call without a stream. */
static inline bool op_begin(struct op *op)
{
	return op_start(op, recording()) && (op->context = context_current(op->t)) && op_started(op);
}

/* The same, also after recording has stopped. */
static inline bool op_begin_always(struct op *op)
{
	return op_start(op, recording_or_stopped()) && (op->context = context_current(op->t)) && op_started(op);
}

/* The same for a call about memory: without a current context, the memory's context. */
static inline bool op_begin_at(struct op *op, uint64_t address)
{
	return op_start(op, recording_or_stopped()) &&
	       ((op->context = context_current(op->t)) || (op->context = region_context(address))) && op_started(op);
}

bool op_is_capturing(struct stream *s);

/* The op's work must run after the last capture, which reads memory that it may write. */
static inline void op_catch_up(struct op *op, uint64_t region)
{
	if (!capture_catch_up(op->stream))
		return;
	op->waited = true;
	op->waited_for = region;
}

/* launches: its memory is known later, and so is whether it must wait. delays: the allowed kinds of delay. */
static ON_PATH bool op_on_stream(struct op *op, CUstream handle, bool per_thread, bool writes, bool launches, uint32_t delays)
{
	if (!(op->stream = stream_of(op->t, handle, per_thread)))
		return false;
	op->context = op->stream->context;
	op->writes = writes;
	if (delays && unlikely(atomic_load_explicit(&delays_in_calls, memory_order_relaxed)))
		op->delays = delay_call(op->t, op->stream, delays, &op->delay_ns, &op->delay_number);
	if (unlikely(atomic_load_explicit(&captures_active, memory_order_relaxed)))
		op->capturing = op_is_capturing(op->stream);
	bool enters = writes && !op->capturing;
	op->time = clock_ns();
	if (enters)
		gate_enter(op->t);
	op_number(op); /* inside the gate: an earlier epoch does not include the call */
	op->on = true;
	if (enters && unlikely(stream_is_behind(op->stream)) && !(launches && options.deps_of_regions))
		op_catch_up(op, 0);
	return true;
}

/* A call that uses a stream; writes: it may change device memory. */
static inline bool op_begin_stream(struct op *op, CUstream handle, bool per_thread, bool writes)
{
	return op_start(op, recording()) && op_on_stream(op, handle, per_thread, writes, false, 0);
}

/* The same for calls that TT_LAUNCH_DELAY may choose. */
static inline bool op_begin_work(struct op *op, CUstream handle, bool per_thread, bool writes, uint32_t delays)
{
	return op_start(op, recording()) && op_on_stream(op, handle, per_thread, writes, false, delays);
}

/* A kernel launch, whose parameters tell what it may write. */
static ON_PATH bool op_begin_launch(struct op *op, CUstream handle, bool per_thread)
{
	return op_start(op, recording()) && op_on_stream(op, handle, per_thread, true, true, DELAYS);
}

/* A stream-ordered free, also after recording has stopped. */
static inline bool op_begin_free(struct op *op, CUstream handle, bool per_thread)
{
	return op_start(op, recording_or_stopped()) && op_on_stream(op, handle, per_thread, true, false, 0);
}

void call_failed(struct context *c, CUresult result, uint32_t call, uint64_t seq);

/* The event's slot with the common members but `id` set, or NULL. stack: with the call stack. */
static ON_PATH struct tt_event *op_slot(struct op *op, CUresult result, bool stack)
{
	struct tt_event *e = op->on && options.events ? event_slot() : NULL;

	if (unlikely(result != CUDA_SUCCESS) && op->on)
		call_failed(op->context, result, op->call, op->seq);
	if (unlikely(op->stack))
		atomic_store_explicit(&op->t->waits_at, 0, memory_order_relaxed);
	if (!e)
		return NULL;
	op->event = e;
	/* The slot is all zeros. */
	e->seq = op->seq;
	e->time_ns = op->time;
	e->flags = (op->capturing ? TT_EVENTF_CAPTURING : 0) | (op->waited ? TT_EVENTF_WAITED : 0) | op->delays;
	e->thread = op->t->tid;
	e->result = (uint32_t)result;
	e->context = op->context->index;
	e->call = (uint16_t)op->call;
	e->stream = op->stream ? op->stream->id : 0;
	if (unlikely(stack))
		e->stack = op->stack ? op->stack : op_stack();
	return e;
}

/* The event of a call that runs no kernel: its slot, or NULL. */
struct tt_event *op_event(struct op *op, CUresult result);

/* Writes the call's event if it has one; the arguments set members of e. */
#define RECORD(op, r, kind, ...) \
	do { \
		struct tt_event *e = op_event(op, r); \
		if (e) { \
			__VA_ARGS__; \
			events_publish(e, kind); \
		} \
	} while (0)

/* Call after op_begin_stream and op_time, if it may write. */
static inline void op_end(struct op *op, CUresult result)
{
	if (unlikely(op->timing != NULL))
		op_timed(op, result == CUDA_SUCCESS);
	if (!op->on || !op->writes)
		return;
	if (result == CUDA_SUCCESS && !op->capturing)
		atomic_store_explicit(&op->stream->submitted, op->seq, memory_order_relaxed);
	gate_leave(op->t);
}

/* Call around a wait of the host: work that was submitted before it is complete after it. */
static inline uint64_t op_submitted(const struct op *op)
{
	return op->stream ? atomic_load_explicit(&op->stream->submitted, memory_order_relaxed) : 0;
}
static inline void op_settled(struct op *op, uint64_t submitted)
{
	if (!op->stream)
		return;
	atomic_store_explicit(&op->stream->settled, submitted, memory_order_relaxed);
	atomic_store_explicit(&op->stream->completed, op->seq + 1, memory_order_relaxed);
}

/* The call submitted work that only a later action of the host may complete. */
static inline void op_host_bound(struct op *op, CUresult result)
{
	if (!op->on || op->capturing || result != CUDA_SUCCESS)
		return;
	atomic_store(&op->stream->host_bound, true);
	atomic_store(&op->context->host_bound, true);
}

struct region_origin op_origin(const struct op *op);
/* Waits until no capture reads memory in these contexts, given as context_bit. */
void op_settle(struct thread *t, uint64_t contexts);
/*
 * The next work writes memory of this context, or at this address. If that is another context's, the work waits for
 * a running capture there, and the next capture there waits for the work.
 */
void op_reaches(struct op *op, struct context *other);
void op_reaches_address(struct op *op, CUdeviceptr address);
void op_epoch(struct op *op, uint32_t trigger, uint32_t label);

#endif
