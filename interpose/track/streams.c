/*
 * Contexts and streams. See streams.h for the invariant.
 */
#include "track/streams.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "session/session.h"
#include "util/handle_table.h"

HOT_DATA _Atomic uint32_t streams_generation = 1;
HOT_DATA _Atomic bool contexts_are_several;

HOT_DATA _Atomic int captures_active;

static struct {
	struct context *_Atomic contexts;
	uint32_t context_count;
	uint64_t next_id;
	struct handle_table *_Atomic by_handle; /* the slot of a destroyed stream may be reused with another handle */
	pthread_mutex_t lock;
} streams = {.next_id = STREAM_ID_FIRST, .lock = PTHREAD_MUTEX_INITIALIZER};

/* A call of the program was missed: later records would be wrong. */
static void no_memory(void)
{
	session_fail("no host memory for a context or stream");
}

HOT struct stream *stream_find(CUstream handle)
{
	struct stream *s = handle_find(&streams.by_handle, handle);

	return s && atomic_load_explicit(&s->alive, memory_order_relaxed) ? s : NULL;
}

static bool table_insert(struct stream *s)
{
	if (handle_add(&streams.by_handle, &s->handle))
		return true;
	no_memory();
	return false;
}

/* Caller holds the lock. */
static void stream_end(struct stream *s)
{
	handle_remove(&streams.by_handle, &s->handle);
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
	return atomic_load_explicit(&streams.contexts, memory_order_acquire);
}

struct context *context_find(CUcontext handle)
{
	for (struct context *c = context_first(); c; c = atomic_load_explicit(&c->next, memory_order_acquire))
		if (c->handle == handle && atomic_load_explicit(&c->alive, memory_order_relaxed))
			return c;
	return NULL;
}

/* Caller holds the lock. */
static struct context *context_new(CUcontext handle, const struct context_device *d)
{
	struct context *c = calloc_at_line(sizeof(*c));

	if (!c) {
		no_memory();
		return NULL;
	}
	c->handle = handle;
	c->device = d->device;
	memcpy(c->device_name, d->name, sizeof(c->device_name));
	c->device_memory = d->memory;
	c->device_capability = d->capability;
	c->device_clock_khz = d->clock_khz;
	c->device_multiprocessors = d->multiprocessors;
	c->index = streams.context_count++;
	c->legacy.handle = CU_STREAM_LEGACY;
	c->legacy.id = STREAM_ID_LEGACY;
	c->legacy.context = c;
	c->legacy.alive = true;
	c->streams = &c->legacy;
	c->alive = true;
	struct context *_Atomic *end = &streams.contexts;
	if (*end)
		atomic_store(&contexts_are_several, true);
	while (*end)
		end = &(*end)->next;
	atomic_store_explicit(end, c, memory_order_release);
	return c;
}

struct context *context_add(CUcontext handle, const struct context_device *d)
{
	pthread_mutex_lock(&streams.lock);
	struct context *c = context_find(handle);
	if (!c)
		c = context_new(handle, d);
	pthread_mutex_unlock(&streams.lock);
	return c;
}

void context_destroyed(struct context *c)
{
	atomic_store(&c->alive, false);
	pthread_mutex_lock(&streams.lock);
	for (struct stream *s = atomic_load(&c->streams); s; s = s->next_of_context)
		stream_end(s);
	pthread_mutex_unlock(&streams.lock);
	atomic_fetch_add(&streams_generation, 1);
}

/* Reuses the struct of a destroyed stream, so that memory stays bounded. */
static struct stream *stream_add(struct context *c, CUstream handle, uint64_t id, struct thread *owner)
{
	struct stream *s = atomic_load(&c->streams);

	while (s && (s->alive || s->owner || s->id < STREAM_ID_FIRST))
		s = s->next_of_context;
	bool fresh = !s;
	if (fresh && !(s = calloc_at_line(sizeof(*s)))) {
		no_memory();
		return NULL;
	}
	s->handle = handle;
	s->id = id;
	if (fresh)
		s->context = c;
	s->owner = owner;
	atomic_store(&s->settled, atomic_load(&s->submitted)); /* submitted stays, for context_work */
	s->given_up = 0;
	s->works = 0;
	s->host_bound = false;
	s->awaited_capture = 0; /* the first use waits for all earlier captures */
	s->alive = true;
	if (fresh) {
		s->next_of_context = atomic_load(&c->streams);
		atomic_store_explicit(&c->streams, s, memory_order_release);
	}
	return s;
}

struct stream *stream_per_thread(struct thread *t, struct context *c)
{
	for (struct stream *s = t->streams; s; s = s->next_of_thread)
		if (s->context == c && s->alive)
			return s;
	pthread_mutex_lock(&streams.lock);
	struct stream *s = stream_add(c, CU_STREAM_PER_THREAD, STREAM_ID_PER_THREAD, t);
	pthread_mutex_unlock(&streams.lock);
	if (s) {
		s->next_of_thread = t->streams;
		t->streams = s;
	}
	return s;
}

/* Caller holds the lock. NULL: no memory. */
static struct stream *stream_new(struct context *c, CUstream handle)
{
	struct stream *s = stream_add(c, handle, streams.next_id++, NULL);

	return s && table_insert(s) ? s : NULL;
}

struct stream *stream_seen(struct context *c, CUstream handle)
{
	pthread_mutex_lock(&streams.lock);
	struct stream *s = stream_find(handle);
	if (!s)
		s = stream_new(c, handle);
	pthread_mutex_unlock(&streams.lock);
	return s;
}

void stream_created(struct context *c, CUstream handle)
{
	pthread_mutex_lock(&streams.lock);
	stream_new(c, handle);
	pthread_mutex_unlock(&streams.lock);
}

void stream_destroyed(CUstream handle)
{
	pthread_mutex_lock(&streams.lock);
	struct stream *s = stream_find(handle);
	if (s)
		stream_end(s);
	pthread_mutex_unlock(&streams.lock);
	atomic_fetch_add(&streams_generation, 1);
}

void streams_thread_ended(struct thread *t)
{
	for (struct stream *s = t->streams; s; s = s->next_of_thread)
		atomic_store(&s->owner, NULL);
}
