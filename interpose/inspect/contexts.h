/*
 * Asks the driver for the context and the stream of a call.
 */
#ifndef TT_INSPECT_CONTEXTS_H
#define TT_INSPECT_CONTEXTS_H

#include "driver/driver.h"
#include "track/streams.h"

/* The calling thread's current context; NULL: none. */
struct context *context_current(struct thread *t);
/* The stream of a call with this handle; per_thread: NULL means the per-thread default stream. */
struct stream *stream_look_up(struct thread *t, CUstream handle, bool per_thread);
static inline struct stream *stream_of(struct thread *t, CUstream handle, bool per_thread)
{
	uint32_t generation = atomic_load_explicit(&streams_generation, memory_order_acquire);

	if (likely((uintptr_t)handle == t->recent_handle && generation == t->recent_generation && handle))
		return t->recent;
	return stream_look_up(t, handle, per_thread);
}

/* False: it can't be made current. Call context_pop after success. */
static inline bool context_push(CUcontext handle)
{
	return real.cuCtxPushCurrent_v2(handle) == CUDA_SUCCESS;
}

static inline void context_pop(void)
{
	CUcontext popped;

	real.cuCtxPopCurrent_v2(&popped);
}

/*
 * The driver takes more memory than was asked for, and may release less at a free. So measure the free memory. The
 * program's own cuMemGetInfo adds the sum.
 */
static inline uint64_t context_free_bytes(void)
{
	size_t left = 0, total;

	return real.cuMemGetInfo_v2(&left, &total) == CUDA_SUCCESS ? left : 0;
}

/* Counts the decrease of free memory as the recorder's. */
static inline void context_account(struct context *c, uint64_t before)
{
	atomic_fetch_add(&c->device_bytes, before - context_free_bytes());
}

/*
 * Until capture_mode_restore, stream captures of the program forbid nothing in this thread. Returns the mode
 * before.
 */
static inline CUstreamCaptureMode capture_mode_relax(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	real.cuThreadExchangeStreamCaptureMode(&mode);
	return mode;
}

static inline void capture_mode_restore(CUstreamCaptureMode mode)
{
	real.cuThreadExchangeStreamCaptureMode(&mode);
}

/* Call around the recorder's work in a thread of the program: wrappers call the driver directly. */
static inline CUstreamCaptureMode recorder_work_begin(struct thread *t)
{
	t->busy++;
	return capture_mode_relax();
}

static inline void recorder_work_end(struct thread *t, CUstreamCaptureMode mode)
{
	capture_mode_restore(mode);
	t->busy--;
}

#endif
