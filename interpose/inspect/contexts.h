/*
 * Asks the driver for the context and the stream of a call.
 */
#ifndef TT_INSPECT_CONTEXTS_H
#define TT_INSPECT_CONTEXTS_H

#include "driver/driver.h"
#include "track/streams.h"

/* The calling thread's current context; NULL where there is none. */
struct context *context_current(struct thread *t);
/* The stream that a call given `handle` works on; per_thread: NULL means the per-thread default. */
struct stream *stream_of(struct thread *t, CUstream handle, bool per_thread);

/* False: it can't be made current. Goes with context_pop. */
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
 * What the driver takes for an allocation is more than was asked for, and what it gives back
 * for a free may be less: look at what is left. The program's own cuMemGetInfo adds the sum.
 */
static inline uint64_t context_free_bytes(void)
{
	size_t left = 0, total;

	return real.cuMemGetInfo_v2(&left, &total) == CUDA_SUCCESS ? left : 0;
}

/* What is free less than before is the recorder's. */
static inline void context_account(struct context *c, uint64_t before)
{
	atomic_fetch_add(&c->device_bytes, before - context_free_bytes());
}

/* From here on a stream capture of the program, even one of this thread, forbids nothing. Gives the mode before. */
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

/* Around work of the recorder in a thread of the program: wrappers pass straight through. */
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
