/*
 * A launch that no option, delay, timing or stream capture changes, and whose function was launched in this context
 * before. launch.c has all others.
 *
 * Invariant: plain_begin returns false before it has done anything that the other way would do again.
 */
#ifndef TT_HOOKS_PLAIN_LAUNCH_H
#define TT_HOOKS_PLAIN_LAUNCH_H

#include "hooks/op.h"

/* The words of its event that nothing is written to: dst, src, bytes, cluster, params, params_size and stack. */
#define PLAIN_ZERO (7u << 6 | 7u << 13)
_Static_assert(offsetof(struct tt_event, dst) == 6 * 8 && offsetof(struct tt_event, id) == 9 * 8 &&
		       offsetof(struct tt_event, cluster) == 13 * 8,
	       "the words are these");

struct plain {
	struct stream *stream;
	struct function *function;
	uint64_t seq, time;
	uint32_t flags;
};

struct plain_arguments {
	unsigned grid[3], block[3], shared;
	void **params, **extra;
};

/* Adds the call stack and parameters that options ask for to an event. */
void launch_extras(struct tt_event *e, CUresult r, const struct function *f, void **params, void **extra);
/* Counts a launch, and cuts an epoch if one is due after so many. */
void launch_counted(const struct plain *p);
/* Marks the regions that a launch may write. */
void launch_touches(struct context *c, const struct function *f, void **params, void **extra);

static inline bool function_is_special(const struct function *f)
{
	return f->chosen | f->traced | atomic_load_explicit(&f->replayable, memory_order_relaxed);
}

/* One branch for all that is rare. */
static ON_PATH bool plain_allowed(const struct thread *t)
{
	int more = atomic_load_explicit(&session_state, memory_order_acquire) ^ SESSION_ON;

	more |= atomic_load_explicit(&captures_active, memory_order_relaxed);
	more |= atomic_load_explicit(&delays_in_calls, memory_order_relaxed);
	more |= atomic_load_explicit(&timeline_source, memory_order_relaxed) & TIMELINE_EVENTS;
	more |= atomic_load_explicit(&gate_closed, memory_order_relaxed); /* the time is from before the wait */
	return likely(!(more | t->busy)) && likely(options.plain_launches & t->registered);
}

static ON_PATH bool plain_knows(struct plain *p, struct thread *t, CUfunction f, CUstream handle, bool per_thread)
{
	if (unlikely(!(p->stream = stream_of(t, handle, per_thread))) || unlikely(!(p->function = function_find(f))))
		return false;
	if (unlikely(options.deps_of_regions) && stream_is_behind(p->stream))
		return false; /* an epoch from now on makes it wait for all regions */
	uint64_t known = atomic_load_explicit(&p->function->known, memory_order_acquire);
	return likely(known & context_bit(p->stream->context)) && likely(!function_is_special(p->function));
}

/*
 * The number first: its locked addition waits for all that the thread did before, such as the driver's last writes to
 * the device. What follows overlaps with the driver's own code.
 */
static ON_PATH bool plain_begin(struct plain *p, uint32_t call, CUfunction f, CUstream handle, bool per_thread)
{
	struct thread *t = &thread_self;

	if (!plain_allowed(t))
		return false;
	thread_enters(t, call);
	gate_enter(t);
	p->seq = session_next_seq();
	p->time = clock_ns();
	if (!plain_knows(p, t, f, handle, per_thread)) {
		session_return_seq(p->seq);
		gate_leave(t);
		thread_leaves(t);
		return false;
	}
	t->submits_for = p->seq;
	p->flags = unlikely(stream_is_behind(p->stream)) && capture_catch_up(p->stream) ? TT_EVENTF_WAITED : 0;
	return true;
}

static ON_PATH void plain_event(const struct plain *p, uint32_t call, CUresult r, struct plain_arguments a)
{
	struct tt_event *e = likely(options.launch_events) ? event_slot() : NULL;

	if (unlikely(!e))
		return;
	event_word(e, offsetof(struct tt_event, seq), p->seq);
	event_word(e, offsetof(struct tt_event, time_ns), p->time);
	event_pair(e, offsetof(struct tt_event, thread), thread_self.tid, (uint32_t)r);
	event_pair(e, offsetof(struct tt_event, context), p->stream->context->index, p->flags);
	event_word(e, offsetof(struct tt_event, stream), p->stream->id);
	event_pair(e, offsetof(struct tt_event, id), p->function->id, a.shared);
	event_pair(e, offsetof(struct tt_event, grid), a.grid[0], a.grid[1]);
	event_pair(e, offsetof(struct tt_event, grid[2]), a.grid[2], a.block[0]);
	event_pair(e, offsetof(struct tt_event, block[1]), a.block[1], a.block[2]);
	if (likely(!options.launch_extras)) {
		event_commit_knowing(e, TT_EVENT_LAUNCH, call, PLAIN_ZERO);
		return;
	}
	e->call = (uint16_t)call;
	launch_extras(e, r, p->function, a.params, a.extra);
	events_publish(e, TT_EVENT_LAUNCH);
}

static ON_PATH void plain_end(const struct plain *p, uint32_t call, CUresult r, struct plain_arguments a)
{
	struct thread *t = &thread_self;

	plain_event(p, call, r, a);
	if (likely(r == CUDA_SUCCESS))
		atomic_store_explicit(&p->stream->submitted, p->seq, memory_order_relaxed);
	else
		call_failed(p->stream->context, r, call, p->seq);
	if (unlikely(atomic_load_explicit(&controls.touched, memory_order_relaxed)) && r == CUDA_SUCCESS)
		launch_touches(p->stream->context, p->function, a.params, a.extra);
	gate_leave(t);
	if (unlikely(options.epoch.launch) && r == CUDA_SUCCESS)
		launch_counted(p);
	thread_leaves(t);
}

#endif
