/*
 * Contexts and streams of the program, and the captures that each stream waits for.
 *
 * Invariant: a stream or context stays a valid pointer for the life of the process, so the launch path may keep it
 * without a lock. The struct of a destroyed stream is reused, while others may still check whether it is theirs.
 */
#ifndef TT_TRACK_STREAMS_H
#define TT_TRACK_STREAMS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "track/thread.h"
#include "util/cache_line.h"

#define STREAM_ID_LEGACY 1
#define STREAM_ID_PER_THREAD 2
#define STREAM_ID_FIRST 16

struct stream {
	AT_CACHE_LINE void
		*_Atomic handle; /* a CUstream for driver calls; default streams: CU_STREAM_LEGACY, CU_STREAM_PER_THREAD */
	_Atomic uint64_t id;
	struct context *context;
	struct thread *_Atomic owner; /* of a per-thread default stream, else NULL */
	_Atomic uint32_t awaited_capture;   /* the context's last capture that this stream waits for */
	_Atomic uint64_t works;  /* number of calls that TT_LAUNCH_DELAY may choose */
	_Atomic uint64_t submitted; /* sequence number of the last work that may write device memory */
	_Atomic uint64_t settled;   /* value of `submitted` up to which work is complete or a capture waits for it */
	_Atomic uint64_t completed; /* work submitted before this call is complete, because the host waited for it */
	_Atomic uint64_t reaches; /* context_bit of other contexts whose memory it may have written since their last capture */
	_Atomic bool alive;
	_Atomic bool host_bound; /* may have work that only an action of the host completes */
	_Atomic bool captured; /* a stream capture of the program is active in it */
	_Atomic uint64_t given_up; /* `submitted` when an epoch last timed out waiting for it */
	struct stream *next_of_context, *next_of_thread;
};

struct capture; /* capture/device.h */
struct delays; /* delay/calls.c */

struct context {
	AT_CACHE_LINE CUcontext handle;
	uint32_t index;
	_Atomic uint32_t captures; /* epochs cut in this context so far */
	CUdevice device;
	char device_name[128]; /* queried early: at the end the driver may hang */
	size_t device_memory;
	int device_capability; /* 90 of sm_90; 0: unknown */
	int device_clock_khz, device_multiprocessors; /* 0: unknown */
	_Atomic bool alive;
	_Atomic uint32_t rest_captured_by; /* the last capture of memory that parameters do not name: variables, or all */
	_Atomic bool host_bound; /* one of its streams may be host-bound */
	_Atomic bool short_of_memory; /* the device ran out of memory, so the recorder freed its own */
	_Atomic bool lost; /* a sticky error was seen */
	_Atomic uint64_t completed; /* work submitted before this call is complete: an epoch or a wait came later */
	_Atomic uint64_t reached; /* how often other contexts submitted work that writes its memory */
	_Atomic uint64_t device_bytes; /* of the recorder's memory in it */
	_Atomic uint64_t work_captured; /* context_work at the last epoch */
	struct stream legacy;
	struct stream *_Atomic streams;
	struct capture *_Atomic capture; /* ends while the gate is closed: threads inside may use it */
	struct delays *_Atomic delays; /* NULL: none yet */
	uint32_t retains; /* of a primary context */
	struct context *_Atomic next;
};

/* Bit for sets of contexts; two contexts may share one. */
static inline uint64_t context_bit(const struct context *c)
{
	return (uint64_t)1 << c->index % 64;
}

/* Properties of a context's device. */
struct context_device {
	CUdevice device;
	char name[sizeof(((struct context *)NULL)->device_name)];
	size_t memory;
	int capability, clock_khz, multiprocessors;
};
/* The context with this handle, created if new; NULL: no memory. */
struct context *context_add(CUcontext handle, const struct context_device *d);
struct context *context_find(CUcontext handle); /* NULL: not seen yet */
struct context *context_first(void); /* first of all, linked by ->next */
/* Whether there is, or was, more than one. */
extern _Atomic bool contexts_are_several;
static inline bool contexts_several(void)
{
	return atomic_load_explicit(&contexts_are_several, memory_order_relaxed);
}
/* Changes whenever work is submitted. */
uint64_t context_work(const struct context *c);
void context_destroyed(struct context *c);

/* Whether it has not waited for the last capture of its context. */
static inline bool stream_is_behind(const struct stream *s)
{
	return atomic_load_explicit(&s->awaited_capture, memory_order_relaxed) !=
	       atomic_load_explicit(&s->context->captures, memory_order_acquire);
}

/* NULL: not seen yet. Takes no lock. */
struct stream *stream_find(CUstream handle);
/* The stream with this handle, whose creation was not seen. NULL: no memory. */
struct stream *stream_seen(struct context *c, CUstream handle);
/* The thread's per-thread default stream in a context. NULL: no memory. */
struct stream *stream_per_thread(struct thread *t, struct context *c);
/* Whether the thread can use its handle: false for another thread's per-thread default stream. */
static inline bool stream_namable(const struct stream *s, const struct thread *t)
{
	return s->id != STREAM_ID_PER_THREAD || atomic_load(&s->owner) == t;
}
void stream_created(struct context *c, CUstream handle);
void stream_destroyed(CUstream handle);
void streams_thread_ended(struct thread *t);

/* Changes when handles may be reused: invalidates what threads cached. */
extern _Atomic uint32_t streams_generation;

extern _Atomic int captures_active; /* active stream captures of the program */

#endif
