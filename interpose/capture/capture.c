/*
 * Cutting an epoch. See capture.h for the invariant.
 */
#include "capture/capture.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "capture/controls.h"
#include "capture/drain.h"
#include "options/options.h"
#include "session/session.h"
#include "util/clock.h"

#define GATE_MS 200
#define OTHERS 64         /* contexts that an epoch is of, besides its own */
#define NO_LAST_EPOCH "work of the program did not end: the last epoch is missing"
#define HURRY_MS 700      /* in a hurry, for the GPU */
#define HURRY_DRAIN_MS 3000

pthread_mutex_t capture_lock = PTHREAD_MUTEX_INITIALIZER;

uint64_t capture_deadline(uint64_t usual, bool drain)
{
	uint64_t since = session_hurried(), until = since + (drain ? HURRY_DRAIN_MS : HURRY_MS) * 1000000ull;

	return since && until < usual ? until : usual;
}

static CUresult launch(struct capture *p, CUfunction f, struct tt_capture_params *params, uint64_t work)
{
	void *args[] = {params};
	uint64_t most = (uint64_t)p->processors * TT_DIGEST_CTAS_PER_SM;
	unsigned grid = (unsigned)(work < 1 ? 1 : work < most ? work : most);

	return real.cuLaunchKernel(f, grid, 1, 1, TT_DIGEST_THREADS, 1, 1, 0, p->stream, args, NULL);
}

void capture_let_go_after(struct capture *p, CUstream stream)
{
	if (real.cuStreamWriteValue32_v2(stream, p->shared.device, p->number, 0) == CUDA_SUCCESS)
		atomic_store(&p->context->captures, p->number);
	else /* nothing can wait for it but we here */
		capture_settled(p);
}

void capture_take_status(struct pending *q, const struct tt_capture_status *s)
{
	q->status = *s;
	q->read = true;
	q->epoch.captured_ns = options.deterministic ? 0 : clock_ns();
	if (s->flags & TT_CAPTURE_DISCARDED) {
		q->refused = true;
		q->epoch.flags = TT_EPOCHF_REFUSED;
	}
}

static void never_ended(struct capture *p, uint32_t slot)
{
	p->broken = true;
	session_fail("a capture did not end within %u ms: the program waits for later work of its own", options.stall_ms);
	capture_call_off(p, slot);
}

/* Launches the gather of a range of the list, and waits for it. */
static bool gather(struct capture *p, struct tt_capture_params *params, struct pending *q, uint64_t blocks)
{
	params->flags = 0;
	params->tail = atomic_load(&p->tail);
	q->slot = capture_slot(p);
	params->status = capture_status_address(p, q->slot);
	params->sequence++;
	if (launch(p, p->gather, params, blocks * 8) != CUDA_SUCCESS ||
	    real.cuEventRecord(p->done[q->slot], p->stream) != CUDA_SUCCESS)
		return false;
	if (!capture_wait(p, q->slot, options.stall_ms)) {
		never_ended(p, q->slot);
		return false;
	}
	q->status = *capture_status(p, q->slot);
	capture_account(p, &q->status);
	return true;
}

/*
 * The list did not fit: gather it in parts, each as large as what the drain has freed, while
 * the program's memory holds still. Entries of one region may be of any size, so a part is
 * taken by its worst case.
 */
static bool gather_parts(struct capture *p, struct tt_capture_params *params, struct pending *q, uint64_t count)
{
	uint64_t first = 0;
	uint32_t part = 0;

	do { /* at least once: a ring may be too full even for a chunk without a block */
		uint64_t n = (p->ring.size / 2 - TT_RING_ALIGN * 2) / (TT_BLOCK_SIZE + sizeof(struct tt_chunk_entry));
		if (n > count - first)
			n = count - first;
		uint64_t size = tt_chunk_size(n, n * TT_BLOCK_SIZE);
		if (!drain_make_room(p, size, size))
			return false;
		params->first = (uint32_t)first;
		params->last = (uint32_t)(first + n);
		params->part = part;
		if (!gather(p, params, q, n))
			return false;
		if (q->status.flags & TT_CAPTURE_OVERFLOW) {
			if (!drain_flush())
				return false;
			if (atomic_load(&p->tail) == params->tail)
				return false; /* an empty ring did not take it */
			continue;
		}
		first += n;
		q->part = part++;
		q->final = first == count;
		q->read = true;
		if (!drain_add(q))
			return false;
	} while (first < count);
	return true;
}

static bool hand_over(struct capture *p, const struct pending *q)
{
	return options.overwrite == OVERWRITE_DROP_OLDEST ? flight_keep(p, q) : drain_add(q);
}

/* The epoch gets a record without contents. */
static void leave_out(struct capture *p, struct pending *q, uint32_t flag)
{
	session_set_next_epoch(q->epoch.number + 1);
	p->gap |= flag == TT_EPOCHF_REFUSED;
	q->refused = q->final = q->read = true;
	q->epoch.flags = flag;
	q->part = 0; /* of what was stored of it nothing is left */
	for (uint32_t i = 0; p->list && i < p->list->count; i++)
		p->list->regions[i]->touched = true;
	hand_over(p, q);
}

static void refuse(struct capture *p, struct pending *q, const char *why)
{
	session_warn("epochs were not captured: %s; their changes show in the next one", why);
	leave_out(p, q, TT_EPOCHF_REFUSED);
}

/* Drop-oldest: the oldest epochs make room. False: the ring holds nothing else to drop. */
static bool gather_over_oldest(struct capture *p, struct tt_capture_params *params, struct pending *q)
{
	while (flight_drop_group(p))
		if (!gather(p, params, q, q->status.count))
			return false;
		else if (!(q->status.flags & TT_CAPTURE_OVERFLOW))
			return flight_keep(p, q);
	return false;
}

static void discard(struct capture *p, struct tt_capture_params *params, const struct pending *q)
{
	params->flags = TT_CAPTURE_DISCARD;
	capture_status(p, q->slot)->sequence = 0;
	/* The next capture may have the slot: that is not its status. */
	if (!p->broken && (launch(p, p->gather, params, 1) != CUDA_SUCCESS || !capture_wait(p, q->slot, options.stall_ms)))
		never_ended(p, q->slot);
	choose_again(p);
}

/* Room for a snapshot, as far as its policy allows. */
static bool make_room(struct capture *p, uint64_t size)
{
	if (capture_fits(p, size, size))
		return true;
	if (options.overwrite == OVERWRITE_DROP_OLDEST)
		return flight_make_room(p, size);
	return options.overwrite == OVERWRITE_FAIL || size > p->ring.size || drain_make_room(p, size, size);
}

static bool submit(struct capture *p, struct tt_capture_params *params, bool full)
{
	return (p->staged || !p->list->count ||
		real.cuMemcpyHtoDAsync_v2(p->regions.device, p->staging, p->list->count * sizeof(*p->staging), p->stream) ==
			CUDA_SUCCESS) &&
	       launch(p, p->digest, params, p->blocks) == CUDA_SUCCESS &&
	       (full || launch(p, p->gather, params, p->blocks * 8) == CUDA_SUCCESS) &&
	       real.cuEventRecord(p->done[p->last_slot], p->stream) == CUDA_SUCCESS;
}

struct tt_capture_params capture_params(struct capture *p, const struct pending *q, CUdeviceptr regions, uint64_t blocks,
					uint64_t payload)
{
	return (struct tt_capture_params){
		.regions = regions,
		.control = p->control.device,
		.scratch = p->scratch.device,
		.ring = p->ring.device,
		.ring_size = p->ring.size,
		.tail = atomic_load(&p->tail),
		.status = capture_status_address(p, q->slot),
		.sequence = q->epoch.number + 1ull,
		.payload = payload,
		.region_count = q->list->count,
		.blocks = (uint32_t)blocks,
		.last = TT_CAPTURE_LAST,
		.epoch = q->epoch.number,
	};
}

/* Why the driver refuses something. */
static bool context_failed(struct capture *p)
{
	CUresult r = real.cuStreamQuery(p->stream);

	if (r == CUDA_SUCCESS || r == CUDA_ERROR_NOT_READY)
		return false;
	capture_failed(p, r, "cuStreamQuery");
	return true;
}

/* Within the gate and the lock. True: the program's streams have something to wait for. */
static bool cut(struct thread *t, struct capture *p, struct pending *q, bool full)
{
	struct tt_capture_params params;
	uint64_t worst;
	bool wait, idle;

	if (!capture_settled(p)) {
		refuse(p, q, "the capture before it did not end");
		return false;
	}
	capture_begins(p, q->epoch.number);
	full |= capture_needs_snapshot(p);
	q->epoch.flags |= p->gap ? TT_EPOCHF_GAP : 0;
	if (!capture_order(t, p, &idle) || q->epoch.flags & TT_EPOCHF_LOOSE) {
		/* A snapshot hashes what it copies; and the next starts from nothing that may be torn. */
		q->epoch.flags |= TT_EPOCHF_LOOSE;
		full = true;
	}
	if (idle)
		capture_free_outgrown(p);
	q->epoch.flags |= full ? TT_EPOCHF_FULL : controls.touched || controls.choice ? TT_EPOCHF_TOUCHED : 0;
	q->slot = p->last_slot = capture_slot(p);
	if (!choose_regions(p, q->epoch.number, full, &q->epoch.regions)) {
		if (context_failed(p))
			leave_out(p, q, TT_EPOCHF_REFUSED);
		else
			refuse(p, q, "no memory for its block list");
		return false;
	}
	q->list = region_list_hold(p->list);
	q->epoch.bytes_read = p->bytes;
	worst = tt_chunk_size(p->blocks, p->payload);
	if (full && !make_room(p, worst)) {
		refuse(p, q,
		       options.overwrite == OVERWRITE_DROP_OLDEST ? "the ring is smaller than a snapshot"
								  : "the drain stopped");
		return false;
	}
	wait = (!capture_fits(p, worst, worst) && !capture_begin_ring(p, worst)) || p->managed || !options.deps;
	params = capture_params(p, q, p->regions.device, p->blocks, p->payload);
	params.flags = full ? TT_CAPTURE_FULL : 0;
	p->base = full ? q->epoch.number : p->base;
	p->force_full = q->epoch.flags & TT_EPOCHF_LOOSE;
	p->gap = false;
	if (!submit(p, &params, full)) {
		p->broken = true;
		context_failed(p);
		session_fail("the driver refused a capture; the run ends before epoch %u", q->epoch.number);
		leave_out(p, q, TT_EPOCHF_REFUSED);
		return false;
	}
	p->staged = true;
	choose_captured(p);
	q->final = true;
	if (!wait) {
		capture_opened(p, q->slot, capture_span(p, worst, worst));
		p->open_stream = NULL;
		return hand_over(p, q);
	}
	if (!capture_wait(p, q->slot, options.stall_ms)) {
		never_ended(p, q->slot);
		return false;
	}
	q->status = *capture_status(p, q->slot);
	q->read = true;
	capture_account(p, &q->status);
	if (!(q->status.flags & TT_CAPTURE_OVERFLOW))
		return hand_over(p, q);
	if (options.overwrite == OVERWRITE_BACKPRESSURE && gather_parts(p, &params, q, q->status.count))
		return true;
	if (options.overwrite == OVERWRITE_DROP_OLDEST && gather_over_oldest(p, &params, q))
		return true;
	discard(p, &params, q);
	if (options.overwrite == OVERWRITE_DROP_OLDEST && !full) {
		/* Begin again with a snapshot, as an epoch of its own: regions came and went meanwhile. */
		struct pending next = {.capture = p, .number = q->number, .epoch = q->epoch};
		next.epoch.number++;
		next.epoch.flags &= ~(uint32_t)TT_EPOCHF_TOUCHED;
		leave_out(p, q, TT_EPOCHF_DROPPED);
		*q = next;
		return cut(t, p, q, true);
	}
	p->force_full |= full || options.overwrite == OVERWRITE_BACKPRESSURE; /* parts of it may have come */
	refuse(p, q, "the ring is full");
	return false;
}

static uint64_t interrupted; /* with the capture lock held: the program's call */

static CUstreamCaptureMode begin_own(struct thread *t)
{
	CUstreamCaptureMode mode = thread_own_begin(t);

	if (!t->holds) /* or it is at its end within a launch that holds it */
		pthread_mutex_lock(&capture_lock);
	interrupted = t->submits_for;
	t->submits_for = 0;
	return mode;
}

static void end_own(struct thread *t, CUstreamCaptureMode mode)
{
	t->submits_for = interrupted;
	if (!t->holds)
		pthread_mutex_unlock(&capture_lock);
	thread_own_end(t, mode);
}

static bool epochs_wanted(void)
{
	const struct occasions *o = &options.epoch;

	return o->sync || o->copy || o->graph || o->launch || o->kernel.count || o->nvtx.count || o->inside.count ||
	       options.replayable;
}

void capture_prepare(struct thread *t, struct context *c)
{
	CUcontext popped;

	/* A call within another is a tool's perhaps, while the driver makes the context. */
	if (c->capture || c->short_of_memory || !epochs_wanted() || t->busy || atomic_load(&t->calls) > 1 ||
	    atomic_load(&captures_active))
		return;
	CUstreamCaptureMode mode = begin_own(t);
	if (session_state == SESSION_ON && !c->capture && real.cuCtxPushCurrent_v2(c->handle) == CUDA_SUCCESS) {
		c->capture = capture_create(c, false);
		real.cuCtxPopCurrent_v2(&popped);
	}
	end_own(t, mode);
}

/* Whether there is to be one in the context, and it is ready for one. */
static bool is_due(struct context *c, uint32_t trigger)
{
	bool implied = (trigger == TT_TRIGGER_SYNC || trigger == TT_TRIGGER_FINAL) && !atomic_load(&regions_managed);

	if (!c->capture && !(c->capture = capture_create(c, c->short_of_memory)))
		return false;
	struct capture *p = c->capture;
	if (p->broken)
		return false;
	if (!capture_held_up(p) || capture_settled(p))
		return !implied || p->gap || !p->epochs || context_work(c) != c->work_captured;
	p->gap = true;
	session_lost("no epochs are captured while a capture is held up");
	return false;
}

/* Behind the closed gate; exact: nobody is inside. Its number where it was captured, else TT_NO_EPOCH. */
static uint32_t cut_epoch(struct thread *t, struct context *c, const struct tt_epoch *like, bool exact)
{
	struct capture *p = c->capture;
	uint32_t number = session_next_epoch();
	bool full = controls.snapshot_every && p->epochs % controls.snapshot_every == 0;
	struct pending q = {.capture = p, .epoch = *like};

	q.number = p->number = atomic_load(&c->captures) + 1;
	q.epoch.number = number;
	q.epoch.context = c->index;
	q.epoch.device = (uint32_t)c->device;
	q.epoch.flags = exact ? 0 : TT_EPOCHF_LOOSE;
	c->work_captured = context_work(c);
	p->regions_then = regions_version_now();
	p->last_exact = TT_NO_EPOCH;
	if (!cut(t, p, &q, full))
		return TT_NO_EPOCH;
	number = q.epoch.number;
	if (!(q.epoch.flags & TT_EPOCHF_LOOSE))
		p->last_exact = number;
	p->epochs++;
	capture_let_go_after(p, p->stream);
	return number;
}

/* What is asked for by name is of all devices: of each context with work since its last epoch. */
static unsigned find_others(const struct context *c, uint32_t trigger, struct context **others)
{
	unsigned n = 0;
	CUcontext popped;

	if (trigger != TT_TRIGGER_API && trigger != TT_TRIGGER_NVTX)
		return 0;
	for (struct context *o = context_first(); o && n < OTHERS; o = o->next) {
		bool news = o != c && o->alive && context_work(o) && !(o->capture && context_work(o) == o->work_captured);
		if (!news || real.cuCtxPushCurrent_v2(o->handle) != CUDA_SUCCESS)
			continue;
		if (is_due(o, trigger))
			others[n++] = o;
		real.cuCtxPopCurrent_v2(&popped);
	}
	return n;
}

/* That was submitted, with the gate closed; 0: not known. */
static uint64_t last_call(void)
{
	return atomic_load(&gate_ahead) ? 0 : session_last_seq();
}

void capture_epoch(struct thread *t, struct context *c, uint32_t trigger, uint32_t label, uint64_t seq, bool ahead)
{
	struct context *others[OTHERS];
	CUcontext popped;

	if (atomic_load(&captures_active) || t->busy)
		return; /* what a capturing program may submit is not ours to change */
	CUstreamCaptureMode mode = begin_own(t);
	if (session_state == SESSION_ON && is_due(c, trigger)) {
		unsigned n = find_others(c, trigger, others);
		bool exact = gate_close(GATE_MS);
		struct tt_epoch like = {.trigger = trigger,
					.seq = seq,
					.time_ns = clock_ns(),
					.label = label,
					.controls = controls.text,
					.cut = ahead ? 0 : last_call()};
		cut_epoch(t, c, &like, exact);
		for (unsigned i = 0; i < n; i++)
			if (real.cuCtxPushCurrent_v2(others[i]->handle) == CUDA_SUCCESS) {
				cut_epoch(t, others[i], &like, exact);
				real.cuCtxPopCurrent_v2(&popped);
			}
		gate_open();
	}
	end_own(t, mode);
}

/* Nothing happened in the context since its last epoch, and that one can be had. */
static bool is_as_captured(const struct context *c)
{
	const struct capture *p = c->capture;

	return p->epochs && p->last_exact != TT_NO_EPOCH && context_work(c) == c->work_captured &&
	       p->regions_then == regions_version_now() && !atomic_load(&regions_managed);
}

bool capture_hold(struct thread *t, struct context *c, uint32_t label, uint64_t *seq, uint32_t *before)
{
	*before = TT_NO_EPOCH;
	if (atomic_load(&captures_active) || t->busy)
		return false;
	CUstreamCaptureMode mode = begin_own(t);
	bool gate = session_state == SESSION_ON && is_due(c, TT_TRIGGER_KERNEL_BEFORE);
	bool exact = gate && gate_close(GATE_MS);
	*seq = session_next_seq(); /* who comes to the closed gate gets a later one */
	if (exact && is_as_captured(c)) {
		*before = c->capture->last_exact;
	} else if (gate) {
		struct tt_epoch like = {
			.trigger = TT_TRIGGER_KERNEL_BEFORE, .seq = *seq, .time_ns = clock_ns(), .label = label};
		*before = cut_epoch(t, c, &like, exact);
	}
	t->holds = *before != TT_NO_EPOCH;
	if (gate && !t->holds)
		gate_open();
	end_own(t, mode);
	t->busy += t->holds; /* calls within the driver's, as of a tool, must not wait for the gate */
	return t->holds;
}

uint32_t capture_after(struct thread *t, struct context *c, uint32_t label, uint64_t seq)
{
	struct tt_epoch like = {
		.trigger = TT_TRIGGER_KERNEL_AFTER, .seq = seq, .time_ns = clock_ns(), .label = label, .cut = last_call()};
	CUstreamCaptureMode mode = begin_own(t);
	uint32_t number = TT_NO_EPOCH;

	if (session_state == SESSION_ON && !atomic_load(&captures_active) && is_due(c, TT_TRIGGER_KERNEL_AFTER))
		number = cut_epoch(t, c, &like, true);
	end_own(t, mode);
	return number;
}

void capture_let_others(struct thread *t)
{
	gate_open();
	t->holds = false;
	t->busy--;
	pthread_mutex_unlock(&capture_lock);
}

void capture_settle(struct thread *t, struct context *c)
{
	CUstreamCaptureMode mode = begin_own(t);

	if (c->capture && !c->capture->broken)
		capture_settled(c->capture);
	end_own(t, mode);
}

/*
 * Nothing of the program's or of ours that may be asked about. To free device memory, or to load
 * kernels, waits for all that runs: for ever, where that waits for what this thread does next.
 */
static bool runs_nothing(const struct thread *t, const struct context *c)
{
	const struct capture *p = c->capture;

	for (struct stream *s = atomic_load(&c->streams); s && !atomic_load(&captures_active); s = s->next_of_context)
		if (atomic_load(&s->alive) && (stream_namable(s, t) ? real.cuStreamQuery(s->handle) == CUDA_ERROR_NOT_READY
								    : atomic_load(&s->host_bound)))
			return false;
	return !p || capture_is_idle(p);
}

static bool work_ends(const struct thread *t, const struct context *c)
{
	uint64_t deadline = clock_ns() + options.stall_ms * 1000000ull;

	while (!runs_nothing(t, c)) {
		if (clock_ns() > capture_deadline(deadline, false))
			return false;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	return true;
}

bool capture_give_back(struct thread *t, struct context *c)
{
	CUstreamCaptureMode mode = begin_own(t);
	bool gave = false;

	struct capture *p = c->capture;
	if (p && !p->broken && capture_settled(p)) {
		bool all = p->host_only; /* the kernels, too: the next epoch needs them again */
		flight_dump(p);
		if (!drain_flush())
			goto out;
		bool ended = gate_close(options.stall_ms) && work_ends(t, c);
		uint64_t expected = capture_left_without(p);
		if (ended)
			capture_destroy(p);
		gate_open();
		if (!ended) {
			session_warn("the program ran short of device memory: work of it did not end, so the recorder kept its "
				     "own");
			goto out;
		}
		capture_freed(c, expected);
		c->short_of_memory = true;
		if (session_state == SESSION_ON && !all) {
			session_warn("the program ran short of device memory: the recorder gave its own back");
			c->capture = capture_create(c, true);
		}
		gave = true;
	}
out:
	end_own(t, mode);
	return gave;
}

bool capture_control(const char *what, char *why, size_t size)
{
	pthread_mutex_lock(&capture_lock);
	bool ok = controls_set(what, why, size);
	if (ok)
		controls_note();
	pthread_mutex_unlock(&capture_lock);
	return ok;
}

void capture_dump(struct thread *t)
{
	CUstreamCaptureMode mode = begin_own(t);
	CUcontext popped;

	for (struct context *c = context_first(); c; c = c->next) {
		struct capture *p = c->capture;
		if (!c->alive || !p || p->broken || real.cuCtxPushCurrent_v2(c->handle) != CUDA_SUCCESS)
			continue;
		if (capture_settled(p)) {
			flight_dump(p);
			drain_flush(); /* before the ring's tail moves on by anyone else */
		}
		real.cuCtxPopCurrent_v2(&popped);
	}
	end_own(t, mode);
}

/* Whether a last epoch can be cut: one where there was none before needs what may wait for all that runs. */
static bool may_end(const struct thread *t, const struct context *c)
{
	if (atomic_load(&session_state) != SESSION_ON)
		return false;
	if (c->capture || !context_work(c))
		return c->capture;
	bool ended = work_ends(t, c);
	if (!ended)
		session_lost(NO_LAST_EPOCH);
	return ended;
}

void capture_end(struct thread *t, struct context *c, bool final_epoch, bool process_ends)
{
	if (final_epoch && (options.epoch.sync || options.epoch.launch) && may_end(t, c))
		capture_epoch(t, c, TT_TRIGGER_FINAL, TT_NO_ID, session_next_seq(), false);
	CUstreamCaptureMode mode = begin_own(t);
	struct capture *p = c->capture;
	bool settled = p && !p->broken && capture_settled(p);
	if (p && !p->broken)
		flight_dump(p);
	if (p && !p->broken && !settled && process_ends && !session_hurried()) {
		session_lost(NO_LAST_EPOCH);
		session_hurry();
	}
	/* What a process leaves behind at its end the system frees, and without a wait. */
	bool frees = p && drain_flush() && !p->broken && !session_hurried() && (process_ends || work_ends(t, c)) &&
		     gate_close(GATE_MS) && runs_nothing(t, c);
	if (frees)
		capture_destroy(p);
	else if (p && !process_ends)
		drain_leave(p);
	c->capture = NULL;
	gate_open();
	end_own(t, mode);
}
