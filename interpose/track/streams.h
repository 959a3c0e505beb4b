/*
 * Contexts and streams of the program, and how far each is ordered behind captures.
 *
 * Invariant: a stream or context stays a valid pointer for the life of the process, so the launch
 * path may keep it without a lock. The place of a destroyed stream is reused, while others may
 * still check whether it is theirs.
 */
#ifndef TT_TRACK_STREAMS_H
#define TT_TRACK_STREAMS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "track/thread.h"

#define STREAM_ID_LEGACY 1
#define STREAM_ID_PER_THREAD 2
#define STREAM_ID_FIRST 16

struct stream {
	void *_Atomic handle; /* a CUstream, as the driver wants it: CU_STREAM_LEGACY and CU_STREAM_PER_THREAD for those */
	_Atomic uint64_t id;
	struct context *context;
	struct thread *_Atomic owner; /* of a per-thread default stream, else NULL */
	_Atomic uint32_t seen;   /* the context's last capture that this stream waits for */
	_Atomic uint64_t works;  /* calls that TT_LAUNCH_DELAY chooses from */
	_Atomic uint64_t submitted; /* sequence number of a last piece of work that may write device memory */
	_Atomic uint64_t settled;   /* `submitted` when all of it was known to be complete or waited for by a capture */
	_Atomic uint64_t completed; /* all that was submitted before this call is complete, for the host waited for it */
	_Atomic uint64_t reaches; /* context_bit of others to whose memory it may write, with no capture there behind that */
	_Atomic bool alive;
	_Atomic bool host_bound; /* may hold work that ends only by an action of the host */
	_Atomic bool captured; /* a stream capture of the program began in it, and did not end so far */
	_Atomic uint64_t given_up; /* `submitted` when an epoch last timed out waiting for it */
	struct stream *next_of_context, *next_of_thread;
};

struct capture; /* capture/device.h */
struct delays; /* delay/calls.c */

struct context {
	CUcontext handle;
	uint32_t index;
	CUdevice device;
	char device_name[128]; /* asked beforehand: at the end the driver may hang */
	size_t device_memory;
	int device_capability; /* 90 of sm_90; 0 where the driver did not say */
	_Atomic bool alive;
	_Atomic uint32_t captures; /* epochs cut here so far */
	_Atomic uint32_t
		rest_captured_by; /* the last of them that reads what parameters do not name: variables, or all there is */
	_Atomic bool host_bound; /* a stream of it may be */
	_Atomic bool short_of_memory; /* of its device, so that the recorder gave its own back */
	_Atomic bool lost; /* an error that nothing ends was seen */
	_Atomic uint64_t
		completed; /* all that was submitted before this call is complete, for an epoch or a wait came after it */
	_Atomic uint64_t reached; /* how often work of other contexts was submitted that writes to its memory */
	_Atomic uint64_t device_bytes; /* of the recorder's own memory there */
	uint64_t work_captured; /* context_work at the last epoch */
	struct stream legacy;
	struct stream *_Atomic streams;
	struct capture *_Atomic capture; /* ends behind the closed gate: threads inside may use it */
	struct delays *_Atomic delays; /* NULL: none so far */
	uint32_t retains; /* of a primary context */
	struct context *_Atomic next;
};

/* Of sets of contexts: two may share one. */
static inline uint64_t context_bit(const struct context *c)
{
	return (uint64_t)1 << c->index % 64;
}

/* What is to be known of a context's device. */
struct context_device {
	CUdevice device;
	char name[sizeof(((struct context *)NULL)->device_name)];
	size_t memory;
	int capability;
};
/* The context of this handle, new or not; NULL: no memory. */
struct context *context_add(CUcontext handle, const struct context_device *d);
struct context *context_find(CUcontext handle); /* NULL when not seen so far */
struct context *context_first(void); /* all, by ->next */
/* Whether there is, or was, more than one. */
extern _Atomic bool contexts_are_several;
static inline bool contexts_several(void)
{
	return atomic_load_explicit(&contexts_are_several, memory_order_relaxed);
}
/* Changes whenever work is submitted. */
uint64_t context_work(const struct context *c);
void context_destroyed(struct context *c);

/* NULL when not seen so far. Takes no lock. */
struct stream *stream_find(CUstream handle);
/* The stream of this handle, whose creation was not seen. NULL: no memory. */
struct stream *stream_seen(struct context *c, CUstream handle);
/* The thread's per-thread default stream in a context. NULL: no memory. */
struct stream *stream_per_thread(struct thread *t, struct context *c);
/* Whether the thread can name it: it is not another thread's per-thread default stream. */
static inline bool stream_namable(const struct stream *s, const struct thread *t)
{
	return s->id != STREAM_ID_PER_THREAD || atomic_load(&s->owner) == t;
}
void stream_created(struct context *c, CUstream handle);
void stream_destroyed(CUstream handle);
void streams_thread_ended(struct thread *t);

/* Handles of destroyed streams and contexts come back: what threads cached is void. */
extern _Atomic uint32_t streams_generation;

extern _Atomic int captures_active; /* unfinished stream captures of the program */

#endif
