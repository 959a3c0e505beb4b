/*
 * Stores records of traced launches. See flights.h for the invariant.
 */
#include "instrument/flights.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "capture/capture.h"
#include "inspect/contexts.h"
#include "instrument/ring.h"
#include "options/options.h"
#include "session/session.h"
#include "store/store.h"
#include "util/clock.h"
#include "util/recorder_thread.h"

#define POLL_NS 200000
#define RING_BYTES ((uint64_t)64 << 20) /* without TT_INSTRUMENT_RING */
#define RECORDS_MAX 100000000 /* without TT_INSTRUMENT_RECORDS */
#define COUNT_BYTES 16 /* of a slot: two u64 */
#define ACCESS_MAX 32  /* bytes that a lane accesses at most */

struct flight {
	struct flight *next;
	struct context_ring *ring;
	uint32_t index, slots;
	uint64_t records, lost; /* stored, and not stored */
	bool submitted, ended;
	CUevent end;
	struct memory counts, copy; /* copy: of the parameter */
	struct tt_trace_param param;
};

struct context_ring {
	struct context_ring *next;
	struct context *context;
	struct ring ring;
	struct flight *flights;
	uint64_t lost_before; /* of the ring's `lost`, as launches that have ended reported it */
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_t thread;
	bool running, stopping;
	struct context_ring *rings;
	struct context_ring *busy; /* the thread works on it without the lock */
	uint32_t count;            /* records of traced.bin */
	uint64_t records;          /* stored */
	_Atomic bool full;         /* no more launches are traced; set without the lock */
} flights = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static uint64_t ring_size(void)
{
	uint64_t size = (uint64_t)2 << 20;

	while (size < (options.instrument_ring ? options.instrument_ring : RING_BYTES))
		size *= 2;
	return size;
}

/* ---- storing ---- */

static void stop(const char *why)
{
	if (!atomic_exchange(&flights.full, true))
		session_lost("instructions are not traced any more: %s", why);
}

/* The launch with this number; NULL: none runs. Launches of a ring are few. */
static struct flight *flight_of(struct context_ring *r, uint32_t index)
{
	struct flight *f = r->flights;

	while (f && f->index != index)
		f = f->next;
	return f;
}

/* Whether the option's addresses meet those of a record, whose lanes access up to ACCESS_MAX bytes each. */
static bool is_near(const struct tt_trace_record *one, const char *payload)
{
	struct number_range near = options.instrument_addresses;
	uint64_t address;

	memcpy(&address, payload, sizeof(address));
	for (unsigned lane = 0; lane < 32; lane++) {
		if (!(one->tag >> 8 & TT_TRACEF_STRIDED))
			memcpy(&address, payload + lane * sizeof(address), sizeof(address));
		uint64_t at = one->tag >> 8 & TT_TRACEF_STRIDED ? address + (uint64_t)((int64_t)one->stride * lane) : address;
		if (one->mask >> lane & 1 && at < near.end && (at >= near.first || near.first - at < ACCESS_MAX))
			return true;
	}
	return false;
}

/* Moves the records that the option's addresses choose to the front; returns their bytes. */
static uint32_t near_records(char *records, uint32_t bytes)
{
	uint32_t kept = 0, size;

	if (!options.instrument_addresses.end)
		return bytes;
	for (uint32_t at = 0; at < bytes; at += size) {
		struct tt_trace_record one;
		memcpy(&one, records + at, sizeof(one));
		size = (one.tag >> 16) * 8;
		uint32_t kind = one.tag & 0xff;
		bool placed = kind == TT_TRACE_ADDRESSES || kind == TT_TRACE_VALUES;
		if (placed && !is_near(&one, records + at + sizeof(one)))
			continue;
		memmove(records + kept, records + at, size);
		kept += size;
	}
	return kept;
}

/* The bytes of the records that may still be stored; counts them, and those that are lost. */
static uint32_t within_limit(struct context_ring *r, const void *records, uint32_t bytes, uint64_t *count)
{
	uint64_t most = options.instrument_records ? options.instrument_records : RECORDS_MAX;
	struct flight *f = NULL;
	uint32_t kept = 0;

	pthread_mutex_lock(&flights.lock);
	for (uint32_t at = 0; at < bytes;) {
		struct tt_trace_record one;
		memcpy(&one, (const char *)records + at, sizeof(one));
		at += (one.tag >> 16) * 8;
		bool stored = !flights.full && flights.records + *count < most;
		if (!f || f->index != one.launch)
			f = flight_of(r, one.launch);
		if (f)
			*(stored ? &f->records : &f->lost) += 1;
		kept = stored ? at : kept;
		*count += stored;
	}
	flights.records += *count;
	pthread_mutex_unlock(&flights.lock);
	return kept;
}

static void take(void *user, void *records, uint32_t bytes)
{
	struct context_ring *r = user;
	uint64_t count = 0;

	bytes = near_records(records, bytes);
	uint32_t kept = within_limit(r, records, bytes, &count);

	if (kept && !store_trace(session_store(), records, kept, count))
		stop("there is no room on the disk");
	else if (kept < bytes)
		stop("there are as many records as --instrument-records allows");
	else
		return;
	ring_discard(&r->ring);
}

static void put_record(char *to, const struct flight *f, uint32_t kind, uint32_t instruction, uint64_t a, uint64_t b)
{
	const uint64_t payload[2] = {a, b};
	struct tt_trace_record record = {
		.tag = TT_TRACE_TAG(kind, 0, sizeof(record) + sizeof(payload)), .launch = f->index, .instruction = instruction};

	memcpy(to, &record, sizeof(record));
	memcpy(to + sizeof(record), payload, sizeof(payload));
}

#define SUMMARY (sizeof(struct tt_trace_record) + 2 * sizeof(uint64_t))

/* The counts of its instructions, and its end. */
static void store_end(struct context_ring *r, const struct flight *f, uint64_t lost)
{
	uint64_t *counts = f->slots ? malloc((size_t)f->slots * COUNT_BYTES) : NULL;
	char *out = malloc(((size_t)f->slots + 1) * SUMMARY);
	uint32_t most = TT_TRACE_CHUNK_MAX / SUMMARY, n = 0;

	bool known = counts && ring_copy(&r->ring, counts, f->counts.device, (uint64_t)f->slots * COUNT_BYTES);
	for (uint32_t i = 0; known && out && i < f->slots; i++)
		if (counts[2 * i])
			put_record(out + SUMMARY * n++, f, TT_TRACE_COUNT, i, counts[2 * i], counts[2 * i + 1]);
	if (out) {
		put_record(out + SUMMARY * n, f, TT_TRACE_END, 0, f->records + n, f->lost + lost);
		n++;
	}
	for (uint32_t at = 0; out && at < n; at += most) {
		uint32_t count = n - at < most ? n - at : most;
		store_trace(session_store(), out + SUMMARY * at, (uint32_t)(SUMMARY * count), count);
	}
	free(counts);
	free(out);
}

static void release(struct context_ring *r, struct flight *f)
{
	if (f->end)
		real.cuEventDestroy_v2(f->end);
	memory_free(r->context, &f->counts);
	memory_free(r->context, &f->copy);
	free(f);
}

/* ---- the thread ---- */

/* Which launches have ended; returns whether all have. Only the thread removes launches. */
static bool look(struct context_ring *r, struct flight *first)
{
	bool all = true;

	for (struct flight *f = first; f; f = f->next) {
		pthread_mutex_lock(&flights.lock);
		bool submitted = f->submitted, failed = submitted && !f->end;
		pthread_mutex_unlock(&flights.lock);
		CUresult result = !submitted ? CUDA_ERROR_NOT_READY : failed ? CUDA_SUCCESS : real.cuEventQuery(f->end);
		f->ended = result == CUDA_SUCCESS;
		if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY)
			r->ring.broken = true;
		all &= f->ended;
	}
	return all;
}

/* Takes those that have ended, and whose records are all stored, from the list. */
static struct flight *take_ended(struct context_ring *r)
{
	struct flight *out = NULL;

	pthread_mutex_lock(&flights.lock);
	for (struct flight **link = &r->flights; *link;) {
		struct flight *f = *link;
		if (!f->ended) {
			link = &f->next;
			continue;
		}
		*link = f->next;
		f->next = out;
		out = f;
	}
	pthread_mutex_unlock(&flights.lock);
	return out;
}

static struct flight *newest(const struct context_ring *r)
{
	pthread_mutex_lock(&flights.lock);
	struct flight *f = r->flights;
	pthread_mutex_unlock(&flights.lock);
	return f;
}

/* Returns whether anything happened. */
static bool empty(struct context_ring *r)
{
	struct tt_trace_ring control;

	struct flight *first = newest(r);
	bool all = look(r, first);
	if (!ring_read(&r->ring, &control))
		return false;
	all &= newest(r) == first; /* else the head may be that of a launch that began meanwhile */
	uint64_t taken = ring_take(&r->ring, control.head, all, take, r);
	bool given_up = all && r->ring.tail != control.head;
	if (r->ring.broken || (!all && r->ring.tail != control.head))
		return taken;
	struct flight *ended = take_ended(r);
	uint64_t lost = control.lost - r->lost_before + given_up;
	if (lost && ended && !flights.full)
		session_lost("records of instructions were lost: the ring was full for too long");
	r->lost_before = control.lost;
	for (struct flight *f = ended, *next; f; f = next) {
		next = f->next;
		store_end(r, f, lost);
		release(r, f);
	}
	if (all && ended && (given_up || control.discard)) {
		pthread_mutex_lock(&flights.lock);
		bool idle = !r->flights && !flights.full;
		if (idle) {
			ring_reset(&r->ring);
			r->lost_before = 0;
		}
		pthread_mutex_unlock(&flights.lock);
	}
	return taken || ended;
}

static bool work_left(void)
{
	for (struct context_ring *r = flights.rings; r; r = r->next)
		if (r->flights && !r->ring.broken)
			return true;
	return false;
}

static void *body(void *unused)
{
	(void)unused;
	thread_current()->busy++; /* this thread's driver calls are the recorder's own */
	capture_mode_relax();
	pthread_mutex_lock(&flights.lock);
	while (!flights.stopping) {
		bool active = false;
		for (struct context_ring *r = flights.rings; r; r = r->next) {
			if (!r->flights || r->ring.broken)
				continue;
			flights.busy = r;
			pthread_mutex_unlock(&flights.lock);
			if (context_push(r->context->handle)) {
				active |= empty(r);
				context_pop();
			}
			pthread_mutex_lock(&flights.lock);
			flights.busy = NULL;
			pthread_cond_broadcast(&flights.changed);
		}
		if (active)
			continue;
		if (work_left()) {
			pthread_mutex_unlock(&flights.lock);
			nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
			pthread_mutex_lock(&flights.lock);
		} else {
			pthread_cond_wait(&flights.changed, &flights.lock);
		}
	}
	pthread_mutex_unlock(&flights.lock);
	return NULL;
}

/* ---- the program's threads ---- */

/* Caller holds the lock. NULL: no memory. */
static struct context_ring *ring_of(struct context *c)
{
	struct context_ring *r = flights.rings;

	while (r && r->context != c)
		r = r->next;
	if (r || !(r = calloc(1, sizeof(*r))))
		return r;
	r->context = c;
	if (!ring_make(&r->ring, c, ring_size())) {
		ring_free(&r->ring);
		free(r);
		return NULL;
	}
	r->next = flights.rings;
	flights.rings = r;
	return r;
}

static bool make_counts(struct ring *r, struct flight *f)
{
	if (!f->slots)
		return true;
	return memory_on_device(r->context, &f->counts, (uint64_t)f->slots * COUNT_BYTES) &&
	       real.cuMemsetD8Async(f->counts.device, 0, (uint64_t)f->slots * COUNT_BYTES, r->stream) == CUDA_SUCCESS &&
	       real.cuStreamSynchronize(r->stream) == CUDA_SUCCESS;
}

/* Caller holds the lock. NULL: no memory. */
static struct flight *flight_new(struct context *c, uint32_t slots)
{
	struct flight *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->slots = slots;
	f->ring = ring_of(c);
	if (!flights.running)
		flights.running = !recorder_thread(&flights.thread, "tt-trace", 0, body, NULL);
	if (f->ring && !f->ring->ring.broken && flights.running && make_counts(&f->ring->ring, f) &&
	    memory_on_device(c, &f->copy, sizeof(f->param)))
		return f;
	if (f->ring)
		memory_free(c, &f->counts);
	free(f);
	return NULL;
}

static void add_record(struct tt_traced *t)
{
	store_traced(session_store(), t);
	flights.count++;
}

void flight_refused(struct tt_traced *t)
{
	pthread_mutex_lock(&flights.lock);
	add_record(t);
	pthread_mutex_unlock(&flights.lock);
}

struct tt_trace_param *flight_param(struct flight *f, CUdeviceptr *device)
{
	*device = f->copy.device;
	return &f->param;
}

struct flight *flight_begin(struct context *c, struct tt_traced *t, uint32_t slots)
{
	pthread_mutex_lock(&flights.lock);
	struct flight *f = flights.full ? NULL : flight_new(c, slots);
	t->refused = flights.full ? TT_REFUSED_LIMIT : f ? TT_REFUSED_NONE : TT_REFUSED_MEMORY;
	if (f) {
		f->index = flights.count;
		f->next = f->ring->flights;
		f->ring->flights = f;
		uint64_t end = options.instrument_blocks.end;
		uint64_t last = options.instrument_instructions.end;
		f->param = (struct tt_trace_param){.ring = f->ring->ring.control.device,
						   .base = f->ring->ring.memory.device,
						   .bytes = f->ring->ring.bytes,
						   .counts = f->counts.device,
						   .launch = f->index,
						   .first_block = options.instrument_blocks.first,
						   .last_block = end ? end - 1 : UINT64_MAX,
						   .kinds = t->kinds,
						   .first_instruction = (uint32_t)options.instrument_instructions.first,
						   .last_instruction = last && last <= UINT32_MAX ? (uint32_t)last - 1
												  : UINT32_MAX};
	}
	add_record(t);
	pthread_mutex_unlock(&flights.lock);
	return f;
}

void flight_submitted(struct flight *f, CUstream stream, bool failed)
{
	CUevent end = NULL;

	if (!failed && (real.cuEventCreate(&end, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS ||
			real.cuEventRecord(end, stream) != CUDA_SUCCESS)) {
		session_lost("the end of a traced launch is unknown: the driver makes no event");
		end = NULL;
	}
	pthread_mutex_lock(&flights.lock);
	f->end = end;
	f->submitted = true;
	pthread_cond_broadcast(&flights.changed);
	pthread_mutex_unlock(&flights.lock);
}

/* Caller holds the lock. Waits until the thread has stored all of them. */
static void await(struct context_ring *r)
{
	uint64_t until = clock_ns() + options.stall_ms * UINT64_C(1000000);

	while ((flights.busy == r || (r->flights && !r->ring.broken)) && clock_ns() < capture_deadline(until, true)) {
		pthread_mutex_unlock(&flights.lock);
		nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
		pthread_mutex_lock(&flights.lock);
	}
	if (r->flights)
		session_lost("a traced launch did not end: its last records are missing");
}

/* Caller holds the lock; the context is current. */
static void end(struct context_ring *r)
{
	await(r);
	if (flights.busy == r)
		return; /* the thread waits for a device that does not answer */
	for (struct context_ring **link = &flights.rings; *link; link = &(*link)->next)
		if (*link == r) {
			*link = r->next;
			break;
		}
	bool unused = !r->flights && !r->ring.broken;
	for (struct flight *f; (f = r->flights);) {
		r->flights = f->next;
		free(f);
	}
	if (unused)
		ring_free(&r->ring);
	free(r);
}

void flights_context_ends(struct context *c)
{
	pthread_mutex_lock(&flights.lock);
	for (struct context_ring *r = flights.rings; r; r = r->next)
		if (r->context == c) {
			end(r);
			break;
		}
	pthread_mutex_unlock(&flights.lock);
}

void flights_close(void)
{
	pthread_mutex_lock(&flights.lock);
	for (struct context_ring *r = flights.rings, *next; r; r = next) {
		next = r->next;
		if (r->context->alive && context_push(r->context->handle)) {
			end(r);
			context_pop();
		}
	}
	if (options.instrument && !flights.count)
		session_warn("no launch was traced: %s", options.instrument_kernel.count || *options.kernel_filters
								 ? "no launched kernel matches"
							 : options.instrument_launch ? "there were fewer launches"
										     : "no kernel was launched");
	bool joins = flights.running && !flights.busy;
	flights.stopping = true;
	flights.running = false;
	pthread_cond_broadcast(&flights.changed);
	pthread_mutex_unlock(&flights.lock);
	if (joins)
		pthread_join(flights.thread, NULL);
}

void flights_forget(void)
{
	memset(&flights, 0, sizeof(flights));
	pthread_mutex_init(&flights.lock, NULL);
	pthread_cond_init(&flights.changed, NULL);
}
