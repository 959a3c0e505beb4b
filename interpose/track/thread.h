/*
 * Per-thread state and the gate, which lets one thread cut an epoch while others submit work.
 *
 * Invariant: a thread that submits work which may write device memory is inside the gate during the driver call.
 * While the gate is closed, no thread is inside. Entering costs a store and a load; the thread that closes it pays
 * for the ordering with membarrier.
 */
#ifndef TT_TRACK_THREAD_H
#define TT_TRACK_THREAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "driver/driver.h"
#include "util/cache_line.h"

struct stream;
struct context;

struct thread {
	AT_CACHE_LINE _Atomic int inside; /* inside the gate */
	/* Other threads read these for threads_in_calls. */
	_Atomic int calls;         /* depth of wrapped driver calls that it is in */
	_Atomic uint32_t call;     /* the last of them; TT_NO_ID: not a driver call */
	_Atomic uint32_t waits_at; /* call stack of the wait that it is in, if recorded; else 0 */
	uint64_t submits_for; /* sequence number of the call whose work it submits; 0: none, or the recorder's work */
	int busy;           /* the recorder itself is working: wrappers call the driver directly */
	bool holds; /* has the capture lock and closed the gate, for a launch of the program */
	bool registered;
	uint32_t tid;
	uint32_t recent_generation;
	uintptr_t recent_handle; /* the last stream that was looked up */
	struct stream *recent;
	uint32_t destructor_runs; /* how often its destructor has run */
	uint32_t context_generation;
	CUcontext context_handle; /* the last context that was looked up */
	struct context *context;
	struct stream *streams; /* its per-thread default streams, one for each context */
	TAILQ_ENTRY(thread) link; /* of registered threads */
};

extern __thread struct thread thread_self __attribute__((tls_model("initial-exec")));

void thread_register(struct thread *t);
static inline struct thread *thread_current(void)
{
	struct thread *t = &thread_self;

	if (unlikely(!t->registered))
		thread_register(t);
	return t;
}

/* Called around each wrapped call; only this thread writes these members. */
static inline void thread_calls(struct thread *t, int more)
{
	atomic_store_explicit(&t->calls, atomic_load_explicit(&t->calls, memory_order_relaxed) + more, memory_order_relaxed);
}

static inline void thread_enters(struct thread *t, uint32_t call)
{
	atomic_store_explicit(&t->call, call, memory_order_relaxed);
	thread_calls(t, 1);
}
static inline void thread_leaves(struct thread *t)
{
	t->submits_for = 0;
	thread_calls(t, -1);
}

static inline bool thread_in_call(const struct thread *t)
{
	return atomic_load_explicit(&t->calls, memory_order_relaxed);
}

void gate_init(void);
extern _Atomic int gate_closed;
extern bool gate_fenced; /* no membarrier: threads that enter need the fence */
void gate_wait(void);

static inline void gate_enter(struct thread *t)
{
	for (;;) {
		atomic_store_explicit(&t->inside, 1, memory_order_relaxed);
		if (unlikely(gate_fenced))
			atomic_thread_fence(memory_order_seq_cst);
		else
			atomic_signal_fence(memory_order_seq_cst);
		if (likely(!atomic_load_explicit(&gate_closed, memory_order_acquire)))
			return;
		atomic_store_explicit(&t->inside, 0, memory_order_release);
		gate_wait();
	}
}

static inline void gate_leave(struct thread *t)
{
	atomic_store_explicit(&t->inside, 0, memory_order_release);
}

/*
 * Calls that have their number but are not submitted yet, outside the gate: an epoch of another thread then does
 * not know its last call.
 */
extern _Atomic int gate_ahead;

/*
 * Only one thread closes at a time (the caller holds the capture lock). True: no thread is inside. False: after
 * timeout_ms one still was; it may wait in the driver for work that the caller will submit. The gate is closed for
 * others in both cases.
 */
bool gate_close(unsigned timeout_ms);
void gate_open(void);

/* The threads inside driver calls; gives up if the list stays locked. */
void threads_in_calls(void (*visit)(uint32_t tid, uint32_t call, uint32_t stack, void *to), void *to);

void thread_forget_all(void); /* in a forked child */

#endif
