/*
 * The context and the stream that a call works on, as the driver says.
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
