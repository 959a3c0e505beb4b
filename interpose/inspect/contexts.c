/*
 * Finds contexts and streams of calls. See contexts.h.
 */
#include "inspect/contexts.h"

#include "session/session.h"

static int capability_of(CUdevice device)
{
	int major = 0, minor = 0;

	if (real.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) ||
	    real.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device))
		return 0;
	return 10 * major + minor;
}

/* The current context, which was not seen before. */
static struct context *context_ask(CUcontext handle)
{
	struct context_device d = {0};
	CUresult r = real.cuCtxGetDevice(&d.device);

	if (r == CUDA_ERROR_INVALID_CONTEXT || r == CUDA_ERROR_CONTEXT_IS_DESTROYED)
		return NULL; /* the program destroyed its current context */
	if (r != CUDA_SUCCESS) {
		session_fail("the driver does not say which device a context is on");
		return NULL;
	}
	real.cuDeviceGetName(d.name, sizeof(d.name), d.device);
	real.cuDeviceTotalMem_v2(&d.memory, d.device);
	d.capability = capability_of(d.device);
	real.cuDeviceGetAttribute(&d.clock_khz, CU_DEVICE_ATTRIBUTE_CLOCK_RATE, d.device);
	real.cuDeviceGetAttribute(&d.multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, d.device);
	return context_add(handle, &d);
}

HOT struct context *context_current(struct thread *t)
{
	CUcontext handle = NULL;
	uint32_t generation = atomic_load_explicit(&streams_generation, memory_order_acquire);

	CUresult r = real.cuCtxGetCurrent(&handle);
	if (unlikely(r != CUDA_SUCCESS && r != CUDA_ERROR_DEINITIALIZED)) { /* deinitialised: the process ends */
		session_fail(CONTEXT_UNKNOWN);
		if (generation == t->context_generation) /* the program may still free memory of the arena */
			handle = t->context_handle;
	}
	if (!handle)
		return NULL;
	if (likely(handle == t->context_handle && generation == t->context_generation))
		return t->context;
	struct context *c = context_find(handle);
	if (!c)
		c = context_ask(handle);
	t->context_handle = c ? handle : NULL;
	t->context = c;
	t->context_generation = generation;
	return c;
}

static struct stream *stream_ask(struct thread *t, CUstream handle)
{
	CUcontext owner = NULL;
	struct context *c = context_current(t);

	if (real.cuStreamGetCtx && real.cuStreamGetCtx(handle, &owner) == CUDA_SUCCESS && owner && (!c || c->handle != owner)) {
		struct context *other = context_find(owner);
		if (!other && context_push(owner)) {
			other = context_current(t);
			context_pop();
		}
		c = other;
	} else if (!owner) {
		return NULL; /* not a stream: the driver's call will fail */
	}
	return c ? stream_seen(c, handle) : NULL;
}

HOT struct stream *stream_look_up(struct thread *t, CUstream handle, bool per_thread)
{
	if (!handle)
		handle = per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
	if (handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
		struct context *c = context_current(t);
		if (!c)
			return NULL;
		return handle == CU_STREAM_LEGACY ? &c->legacy : stream_per_thread(t, c);
	}
	uint32_t generation = atomic_load_explicit(&streams_generation, memory_order_acquire);
	struct stream *s = stream_find(handle);
	if (!s)
		s = stream_ask(t, handle);
	if (s) {
		t->recent_handle = (uintptr_t)handle;
		t->recent = s;
		t->recent_generation = generation;
	}
	return s;
}
