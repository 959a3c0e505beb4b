/*
 * Traced launches: how they begin and end, and the thread that looks after them. See flights.h for the invariant.
 */
#include "instrument/flights_parts.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "capture/capture.h"
#include "inspect/contexts.h"
#include "instrument/plan.h"
#include "options/options.h"
#include "session/session.h"
#include "store/store.h"
#include "util/clock.h"
#include "util/recorder_thread.h"

#define RING_BYTES ((uint64_t)64 << 20) /* without TT_INSTRUMENT_RING */

#define IDLE_NS (300 * MS)
#define CALM_NS (100 * MS) /* without a record, an end or a new launch: then the thread looks less often */
#define CALM_POLL_NS (5 * MS)

struct flights flights = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .still_ns = UINT64_MAX};

static uint64_t ring_size(void)
{
	uint64_t size = (uint64_t)2 << 20;

	while (size < (options.instrument_ring ? options.instrument_ring : RING_BYTES))
		size *= 2;
	return size;
}

/* Accesses and barriers together keep an order: `race --exact` reads it. */
static unsigned rings(bool several)
{
	const uint32_t order = 1u << TT_TRACE_OPCODE, accesses = 1u << TT_TRACE_ADDRESSES | 1u << TT_TRACE_VALUES;
	uint32_t kinds = plan_asked();
	uint64_t most = ring_size() >> 21; /* each has pages of 2 MiB */

	if (!several || (kinds & order && kinds & accesses))
		return 1;
	return most < RINGS_MOST ? (unsigned)most : RINGS_MOST;
}

static void release(struct context_ring *r, struct flight *f)
{
	if (f->end)
		real.cuEventDestroy_v2(f->end);
	zeros_give(&r->zeros, &r->ring, &f->counts);
	memory_free(r->context, &f->copy);
	zeros_give(&r->zeros, &r->ring, &f->beats.memory);
	heartbeats_free(&f->beats);
	free(f->values);
	free(f);
}

/* ---- the thread ---- */

/* Which launches have ended; returns whether all have. Only the thread removes launches. */
bool flights_look(struct context_ring *r, struct flight *first)
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
	struct tt_trace_ring control[RINGS_MOST];
	uint64_t all_lost = 0;
	bool discards = false;

	struct flight *first = newest(r);
	bool all = flights_look(r, first);
	flights_watch(r, first);
	if (!ring_read(&r->ring, control))
		return false;
	for (unsigned i = 0; i < r->ring.count; i++) {
		all_lost += control[i].lost;
		discards |= control[i].discard;
	}
	all &= newest(r) == first; /* else the head may be that of a launch that began meanwhile */
	uint64_t taken = ring_take(&r->ring, control, all, flight_take, r);
	bool is_empty = ring_is_empty(&r->ring, control), given_up = all && !is_empty;
	if (r->ring.broken || (!all && !is_empty))
		return taken;
	struct flight *ended = take_ended(r);
	uint64_t lost = all_lost - r->lost_before + given_up;
	if (lost && ended && !flights.full)
		session_lost("records of instructions were lost: the ring was full for too long");
	r->lost_before = all_lost;
	for (struct flight *f = ended, *next; f; f = next) {
		next = f->next;
		flight_store_end(r, f, lost);
		release(r, f);
	}
	zeros_clear(&r->zeros, &r->ring, all);
	if (all && ended && (given_up || discards)) {
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
		if (flights.asked)
			flights_answer();
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
			zeros_cleared(&r->zeros, &r->ring);
			flights.busy = NULL;
			pthread_cond_broadcast(&flights.changed);
		}
		flights_note_still();
		if (active) {
			flights.active_ns = clock_ns();
			continue;
		}
		if (work_left()) {
			long pause = clock_ns() < flights.active_ns + CALM_NS ? FLIGHT_POLL_NS : CALM_POLL_NS;
			pthread_mutex_unlock(&flights.lock);
			nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
			pthread_mutex_lock(&flights.lock);
		} else if (!flights.asked) {
			pthread_cond_wait(&flights.changed, &flights.lock);
		}
	}
	pthread_mutex_unlock(&flights.lock);
	return NULL;
}

/* ---- the program's threads ---- */

/* Caller holds the lock. NULL: no memory. */
static struct context_ring *ring_of(struct context *c, bool several)
{
	struct context_ring *r = flights.rings;

	while (r && r->context != c)
		r = r->next;
	if (r || !(r = calloc(1, sizeof(*r))))
		return r;
	r->context = c;
	if (!ring_make(&r->ring, c, rings(several), ring_size())) {
		ring_free(&r->ring);
		free(r);
		return NULL;
	}
	r->next = flights.rings;
	flights.rings = r;
	return r;
}

static bool make_counts(struct context_ring *r, struct flight *f)
{
	uint64_t bytes = flight_count_bytes(&f->counted);

	return !bytes || zeros_take(&r->zeros, &r->ring, &f->counts, bytes);
}

/* Too many warps, or no memory: there are no heartbeats. */
static void make_heartbeats(struct context_ring *r, struct flight *f, const struct tt_traced *t)
{
	uint64_t bytes = heartbeats_make(&f->beats, t->grid, t->block);

	if (bytes && !zeros_take(&r->zeros, &r->ring, &f->beats.memory, bytes)) {
		memory_free(r->context, &f->beats.memory);
		heartbeats_free(&f->beats);
	}
}

/* Caller holds the lock. NULL: no memory. */
static struct flight *flight_new(struct context *c, const struct tt_traced *t, const struct flight_counts *counts)
{
	struct flight *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->counted = *counts;
	f->ring = ring_of(c, counts->several_rings);
	if (!flights.running)
		flights.running = !recorder_thread(&flights.thread, "tt-trace", 0, body, NULL);
	if (f->ring && !f->ring->ring.broken && flights.running && make_counts(f->ring, f) &&
	    memory_on_device(c, &f->copy, sizeof(f->param))) {
		make_heartbeats(f->ring, f, t);
		return f;
	}
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

void **flight_values(struct flight *f, size_t count)
{
	return f->values = calloc(count, sizeof(*f->values));
}

struct flight *flight_begin(struct context *c, struct tt_traced *t, const struct flight_counts *counts)
{
	pthread_mutex_lock(&flights.lock);
	struct flight *f = flights.full ? NULL : flight_new(c, t, counts);
	t->refused = flights.full ? TT_REFUSED_LIMIT : f ? TT_REFUSED_NONE : TT_REFUSED_MEMORY;
	t->text = f ? t->text : TT_NO_ID;
	if (f) {
		f->index = flights.count;
		f->seq = t->seq;
		atomic_store(&flights.still_ns, 0);
		flights.active_ns = clock_ns();
		f->next = f->ring->flights;
		f->ring->flights = f;
		uint64_t end = options.instrument_blocks.end;
		uint64_t last = options.instrument_instructions.end;
		f->param = (struct tt_trace_param){.ring = f->ring->ring.control.device,
						   .base = f->ring->ring.memory[0].device,
						   .bytes = f->ring->ring.bytes,
						   .counts = f->counts.device,
						   .heartbeat = f->beats.memory.device,
						   .rings = f->ring->ring.count,
						   .copies = counts->copies,
						   .slots = counts->slots,
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

/* Caller holds the lock. The process is being ended, and the launches that are left do nothing any more. */
static bool is_vain(void)
{
	uint64_t since = session_hurried();

	if (since && flights.active_ns > since)
		since = flights.active_ns;
	return since && clock_ns() > since + IDLE_NS;
}

/* Caller holds the lock. Waits until the thread has stored all of them. */
static void await(struct context_ring *r)
{
	uint64_t until = clock_ns() + options.stall_ms * UINT64_C(1000000);

	while ((flights.busy == r || (r->flights && !r->ring.broken)) && clock_ns() < capture_deadline(until, true) &&
	       !is_vain()) {
		pthread_mutex_unlock(&flights.lock);
		nanosleep(&(struct timespec){.tv_nsec = FLIGHT_POLL_NS}, NULL);
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
		free(f->values);
		free(f);
	}
	zeros_end(&r->zeros, &r->ring, !unused);
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
	flights.still_ns = UINT64_MAX;
	pthread_mutex_init(&flights.lock, NULL);
	pthread_cond_init(&flights.changed, NULL);
}
