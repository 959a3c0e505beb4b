/*
 * Contexts and streams. See streams.h for the invariant.
 */
#include "track/streams.h"

#include <pthread.h>
#include <stdlib.h>

#include "session/session.h"
#include "util/handle_table.h"

HOT_DATA _Atomic uint32_t streams_generation = 1;
HOT_DATA _Atomic bool contexts_are_several;

HOT_DATA _Atomic int captures_active;

static struct context *_Atomic contexts;
static uint32_t context_count;
static uint64_t next_id = STREAM_ID_FIRST;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* A call of the program went by unseen: what came after it would be told wrongly. */
static void no_memory(void)
{
	session_fail("no host memory for a context or stream");
}

static struct handle_table *_Atomic table; /* a destroyed stream's place may be used again under another handle */

static struct stream *table_find(CUstream handle)
{
	struct stream *s = handle_find(&table, handle);

	return s && atomic_load_explicit(&s->alive, memory_order_relaxed) ? s : NULL;
}

static bool table_insert(struct stream *s)
{
	if (handle_add(&table, &s->handle))
		return true;
	no_memory();
	return false;
}

/* With the lock. */
static void stream_end(struct stream *s)
{
	handle_remove(&table, &s->handle);
	atomic_store(&s->alive, false);
}

uint64_t context_work(const struct context *c)
{
	uint64_t work = atomic_load_explicit(&c->reached, memory_order_relaxed);

	for (struct stream *s = atomic_load(&c->streams); s; s = s->next_of_context)
		work = work * 0x9e3779b97f4a7c15u + atomic_load_explicit(&s->submitted, memory_order_relaxed);
	return work;
}

struct context *context_first(void)
{
	return atomic_load_explicit(&contexts, memory_order_acquire);
}

struct context *context_find(CUcontext handle)
{
	for (struct context *c = context_first(); c; c = atomic_load_explicit(&c->next, memory_order_acquire))
		if (c->handle == handle && atomic_load_explicit(&c->alive, memory_order_relaxed))
			return c;
	return NULL;
}

static int capability_of(CUdevice device)
{
	int major = 0, minor = 0;

	if (real.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) ||
	    real.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device))
		return 0;
	return 10 * major + minor;
}

static struct context *context_add(CUcontext handle)
{
	struct context *c = context_find(handle);
	CUdevice device;

	if (c)
		return c;
	CUresult r = real.cuCtxGetDevice(&device);
	if (r == CUDA_ERROR_INVALID_CONTEXT || r == CUDA_ERROR_CONTEXT_IS_DESTROYED)
		return NULL; /* the program destroyed the context that is current */
	if (r != CUDA_SUCCESS) {
		session_fail("the driver does not say which device a context is on");
		return NULL;
	}
	if (!(c = calloc(1, sizeof(*c)))) {
		no_memory();
		return NULL;
	}
	c->handle = handle;
	c->device = device;
	real.cuDeviceGetName(c->device_name, sizeof(c->device_name), device);
	real.cuDeviceTotalMem_v2(&c->device_memory, device);
	c->device_capability = capability_of(device);
	c->index = context_count++;
	c->legacy.handle = CU_STREAM_LEGACY;
	c->legacy.id = STREAM_ID_LEGACY;
	c->legacy.context = c;
	c->legacy.alive = true;
	c->streams = &c->legacy;
	c->alive = true;
	struct context *_Atomic *end = &contexts;
	if (*end)
		atomic_store(&contexts_are_several, true);
	while (*end)
		end = &(*end)->next;
	atomic_store_explicit(end, c, memory_order_release);
	return c;
}

HOT struct context *context_current(struct thread *t)
{
	CUcontext handle = NULL;
	uint32_t generation = atomic_load_explicit(&streams_generation, memory_order_acquire);

	CUresult r = real.cuCtxGetCurrent(&handle);
	if (unlikely(r != CUDA_SUCCESS && r != CUDA_ERROR_DEINITIALIZED)) { /* it is that when the process ends */
		session_fail(CONTEXT_UNKNOWN);
		if (generation == t->context_generation) /* what the program was given of ours it may still free */
			handle = t->context_handle;
	}
	if (!handle)
		return NULL;
	if (likely(handle == t->context_handle && generation == t->context_generation))
		return t->context;
	struct context *c = context_find(handle);
	if (!c) {
		pthread_mutex_lock(&lock);
		c = context_add(handle);
		pthread_mutex_unlock(&lock);
	}
	t->context_handle = c ? handle : NULL;
	t->context = c;
	t->context_generation = generation;
	return c;
}

void context_destroyed(struct context *c)
{
	atomic_store(&c->alive, false);
	pthread_mutex_lock(&lock);
	for (struct stream *s = atomic_load(&c->streams); s; s = s->next_of_context)
		stream_end(s);
	pthread_mutex_unlock(&lock);
	atomic_fetch_add(&streams_generation, 1);
}

/* A destroyed stream's place is used again, so that a program that makes many does not grow us. */
static struct stream *stream_add(struct context *c, CUstream handle, uint64_t id, struct thread *owner)
{
	struct stream *s = atomic_load(&c->streams);

	while (s && (s->alive || s->owner || s->id < STREAM_ID_FIRST))
		s = s->next_of_context;
	bool fresh = !s;
	if (fresh && !(s = calloc(1, sizeof(*s)))) {
		no_memory();
		return NULL;
	}
	s->handle = handle;
	s->id = id;
	if (fresh)
		s->context = c;
	s->owner = owner;
	atomic_store(&s->settled, atomic_load(&s->submitted)); /* which stays, for context_work */
	s->given_up = 0;
	s->works = 0;
	s->host_bound = false;
	s->seen = 0; /* the first use waits for the captures so far */
	s->alive = true;
	if (fresh) {
		s->next_of_context = atomic_load(&c->streams);
		atomic_store_explicit(&c->streams, s, memory_order_release);
	}
	return s;
}

static struct stream *per_thread_stream(struct thread *t, struct context *c)
{
	for (struct stream *s = t->streams; s; s = s->next_of_thread)
		if (s->context == c && s->alive)
			return s;
	pthread_mutex_lock(&lock);
	struct stream *s = stream_add(c, CU_STREAM_PER_THREAD, STREAM_ID_PER_THREAD, t);
	pthread_mutex_unlock(&lock);
	if (s) {
		s->next_of_thread = t->streams;
		t->streams = s;
	}
	return s;
}

static struct stream *stream_adopt(struct thread *t, CUstream handle)
{
	CUcontext owner = NULL;
	struct context *c = context_current(t);

	if (real.cuStreamGetCtx && real.cuStreamGetCtx(handle, &owner) == CUDA_SUCCESS && owner && (!c || c->handle != owner)) {
		struct context *other = context_find(owner);
		if (!other && real.cuCtxPushCurrent_v2(owner) == CUDA_SUCCESS) {
			CUcontext popped;
			other = context_current(t);
			real.cuCtxPopCurrent_v2(&popped);
		}
		c = other;
	} else if (!owner) {
		return NULL; /* not a stream: the driver will say so */
	}
	if (!c)
		return NULL;
	pthread_mutex_lock(&lock);
	struct stream *s = table_find(handle);
	if (!s && (s = stream_add(c, handle, next_id++, NULL)) && !table_insert(s))
		s = NULL;
	pthread_mutex_unlock(&lock);
	return s;
}

HOT struct stream *stream_of(struct thread *t, CUstream handle, bool per_thread)
{
	if (!handle)
		handle = per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
	if (handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
		struct context *c = context_current(t);
		if (!c)
			return NULL;
		return handle == CU_STREAM_LEGACY ? &c->legacy : per_thread_stream(t, c);
	}
	uint32_t generation = atomic_load_explicit(&streams_generation, memory_order_acquire);
	if (likely((uintptr_t)handle == t->recent_handle && generation == t->recent_generation))
		return t->recent;
	struct stream *s = table_find(handle);
	if (!s)
		s = stream_adopt(t, handle);
	if (s) {
		t->recent_handle = (uintptr_t)handle;
		t->recent = s;
		t->recent_generation = generation;
	}
	return s;
}

void stream_created(struct thread *t, CUstream handle)
{
	struct context *c = context_current(t);

	if (!c)
		return;
	pthread_mutex_lock(&lock);
	struct stream *s = stream_add(c, handle, next_id++, NULL);
	if (s)
		table_insert(s);
	pthread_mutex_unlock(&lock);
}

void stream_destroyed(CUstream handle)
{
	pthread_mutex_lock(&lock);
	struct stream *s = table_find(handle);
	if (s)
		stream_end(s);
	pthread_mutex_unlock(&lock);
	atomic_fetch_add(&streams_generation, 1);
}

void streams_thread_ended(struct thread *t)
{
	for (struct stream *s = t->streams; s; s = s->next_of_thread)
		atomic_store(&s->owner, NULL);
}
