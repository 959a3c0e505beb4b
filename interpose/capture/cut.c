/*
 * Submits an epoch. See cut.h.
 */
#include "capture/arrays.h"
#include "capture/cut.h"

#include "capture/budget.h"
#include "capture/controls.h"
#include "options/options.h"
#include "session/session.h"
#include "util/clock.h"

static CUfunction digest_kernel(const struct capture *p)
{
	return tt_digest_small(p->blocks, p->payload, p->processors) ? p->digest_small : p->digest;
}

static CUresult launch(struct capture *p, CUfunction f, struct tt_capture_params *params, uint64_t work)
{
	void *args[] = {params};
	uint64_t most = (uint64_t)p->processors * (f == p->digest_small ? TT_DIGEST_SMALL_CTAS_PER_SM : TT_DIGEST_CTAS_PER_SM);
	unsigned grid = (unsigned)(work < 1 ? 1 : work < most ? work : most);

	return real.cuLaunchKernel(f, grid, 1, 1, TT_DIGEST_THREADS, 1, 1, 0, p->stream, args, NULL);
}

void capture_release_after(struct capture *p, CUstream stream)
{
	if (real.cuStreamWriteValue32_v2(stream, capture_word_address(p, p->number), p->number, 0) == CUDA_SUCCESS)
		atomic_store(&p->context->captures, p->number);
	else /* streams cannot wait for it, so wait here */
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
	session_fail("a capture did not end within %u ms: the program's work waits for later work", options.stall_ms);
	capture_cancel(p, slot);
}

static bool await_status(struct capture *p, struct pending *q)
{
	if (!capture_wait(p, q->slot, options.stall_ms)) {
		never_ended(p, q->slot);
		return false;
	}
	q->status = *capture_status(p, q->slot);
	capture_account(p, &q->status);
	return true;
}

/* Launches the gather of a range of the list, and waits for it. */
static bool gather(struct capture *p, struct tt_capture_params *params, struct pending *q, uint64_t blocks)
{
	params->flags &= TT_CAPTURE_DIGESTS;
	params->tail = atomic_load(&p->tail);
	q->slot = capture_slot(p);
	params->status = capture_status_address(p, q->slot);
	params->sequence++;
	return launch(p, p->gather, params, blocks * 8) == CUDA_SUCCESS &&
	       real.cuEventRecord(p->done[q->slot], p->stream) == CUDA_SUCCESS && await_status(p, q);
}

/*
 * The list did not fit: gathers it in parts, each as large as the drain has freed. The program's memory does not
 * change meanwhile. Part sizes assume full blocks, because entries may be of any size.
 */
static bool gather_parts(struct capture *p, struct tt_capture_params *params, struct pending *q, uint64_t count)
{
	uint64_t first = 0;
	uint32_t part = 0;

	do { /* at least once: a ring may be too full even for a chunk without blocks */
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
				return false; /* it does not fit into an empty ring */
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

/* Gives the epoch a record without contents. */
static void leave_out(struct capture *p, struct pending *q, uint32_t flag)
{
	session_set_next_epoch(q->epoch.number + 1);
	p->gap |= flag == TT_EPOCHF_REFUSED;
	q->refused = q->final = q->read = true;
	q->epoch.flags = flag;
	q->part = 0; /* stored parts were discarded */
	for (uint32_t i = 0; p->list && i < p->list->count; i++)
		p->list->regions[i]->touched = true;
	hand_over(p, q);
}

static void refuse(struct capture *p, struct pending *q, const char *why)
{
	session_warn("epochs were not captured: %s; the next epoch has their changes", why);
	leave_out(p, q, TT_EPOCHF_REFUSED);
}

/* Drop-oldest: drops the oldest epochs to make room. False: the ring has nothing else to drop. */
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
	/* The next capture may reuse the slot, and must not find this status. */
	if (!p->broken && (launch(p, p->gather, params, 1) != CUDA_SUCCESS || !capture_wait(p, q->slot, options.stall_ms)))
		never_ended(p, q->slot);
	choose_again(p);
}

/* Makes room for a snapshot, as far as the overwrite policy allows. */
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
	return (!options.max_overhead || real.cuEventRecord(p->begun[p->last_slot], p->stream) == CUDA_SUCCESS) &&
	       arrays_copy(p) &&
	       (p->staged || !p->list->count ||
		real.cuMemcpyHtoDAsync_v2(p->regions.device, p->staging, p->list->count * sizeof(*p->staging), p->stream) ==
			CUDA_SUCCESS) &&
	       launch(p, digest_kernel(p), params, p->blocks) == CUDA_SUCCESS &&
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
		.payload = q->digests ? 0 : payload,
		.region_count = q->list->count,
		.blocks = (uint32_t)blocks,
		.last = TT_CAPTURE_LAST,
		.flags = q->digests ? TT_CAPTURE_DIGESTS : 0,
		.epoch = q->epoch.number,
	};
}

/* Whether the driver refuses calls because the context failed. */
static bool context_failed(struct capture *p)
{
	CUresult r = real.cuStreamQuery(p->stream);

	if (r == CUDA_SUCCESS || r == CUDA_ERROR_NOT_READY)
		return false;
	capture_failed(p, r, "cuStreamQuery");
	return true;
}

/* Sets the flags of the record. Returns whether the epoch is a snapshot. */
static bool begin_epoch(struct thread *t, struct capture *p, struct pending *q, bool full)
{
	bool idle;

	capture_begins(p, q->epoch.number);
	full |= capture_needs_snapshot(p) || (p->contents_old && !q->digests);
	q->epoch.flags |= p->gap ? TT_EPOCHF_GAP : 0;
	if (!capture_order(t, p, &idle) || q->epoch.flags & TT_EPOCHF_LOOSE) {
		/*
		 * A snapshot stores the digests of what it copies, so the next epoch does not depend on torn
		 * contents.
		 */
		q->epoch.flags |= TT_EPOCHF_LOOSE;
		full = true;
	}
	if (idle)
		capture_free_outgrown(p);
	q->epoch.flags |= full ? TT_EPOCHF_FULL : controls.touched || controls.choice ? TT_EPOCHF_TOUCHED : 0;
	return full;
}

/* Chooses regions, and for a snapshot makes room in the ring. False: the epoch was refused. */
static bool prepare(struct capture *p, struct pending *q, bool full, uint64_t *worst)
{
	q->slot = p->last_slot = capture_slot(p);
	if (!choose_regions(p, q->epoch.number, full, &q->epoch.regions)) {
		if (context_failed(p))
			leave_out(p, q, TT_EPOCHF_REFUSED);
		else
			refuse(p, q, "no memory for the block list");
		return false;
	}
	q->list = region_list_hold(p->list);
	q->epoch.bytes_read = p->bytes;
	*worst = tt_chunk_size(p->blocks, q->digests ? 0 : p->payload);
	if (full && !make_room(p, *worst)) {
		refuse(p, q,
		       options.overwrite == OVERWRITE_DROP_OLDEST ? "the ring is smaller than a snapshot"
								  : "the drain stopped");
		return false;
	}
	return true;
}

/* Cuts a snapshot as another epoch: the dropped epoch had the changes of regions. */
static bool cut_snapshot_instead(struct thread *t, struct capture *p, struct pending *q)
{
	struct pending next = {.capture = p, .number = ++p->number, .epoch = q->epoch, .digests = q->digests};

	next.epoch.number++;
	next.epoch.flags &= ~(uint32_t)TT_EPOCHF_TOUCHED;
	leave_out(p, q, TT_EPOCHF_DROPPED);
	*q = next;
	return capture_cut(t, p, q, true);
}

/* The epoch was submitted and may not fit into the ring: waits for it. */
static bool finish(struct thread *t, struct capture *p, struct tt_capture_params *params, struct pending *q, bool full)
{
	if (!await_status(p, q))
		return false;
	q->read = true;
	if (!(q->status.flags & TT_CAPTURE_OVERFLOW))
		return hand_over(p, q);
	if (options.overwrite == OVERWRITE_BACKPRESSURE && gather_parts(p, params, q, q->status.count))
		return true;
	if (options.overwrite == OVERWRITE_DROP_OLDEST && gather_over_oldest(p, params, q))
		return true;
	discard(p, params, q);
	if (options.overwrite == OVERWRITE_DROP_OLDEST && !full)
		return cut_snapshot_instead(t, p, q);
	p->force_full |= full || options.overwrite == OVERWRITE_BACKPRESSURE; /* some parts may be stored */
	refuse(p, q, "the ring is full");
	return false;
}

bool capture_cut(struct thread *t, struct capture *p, struct pending *q, bool full)
{
	uint64_t worst;

	if (!capture_settled(p)) {
		refuse(p, q, "the capture before did not end");
		return false;
	}
	full = begin_epoch(t, p, q, full);
	if (!prepare(p, q, full, &worst))
		return false;
	bool wait = (!capture_fits(p, worst, worst) && !capture_begin_ring(p, worst)) || p->managed || !options.deps;
	struct tt_capture_params params = capture_params(p, q, p->regions.device, p->blocks, p->payload);
	params.flags |= full ? TT_CAPTURE_FULL : 0;
	params.released = capture_word_address(p, p->number);
	params.number = p->number;
	p->base = full ? q->epoch.number : p->base;
	p->contents_old = q->digests;
	p->force_full = q->epoch.flags & TT_EPOCHF_LOOSE;
	p->gap = false;
	if (!submit(p, &params, full)) {
		p->broken = true;
		context_failed(p);
		session_fail("the driver refused a capture; the run ends before epoch %u", q->epoch.number);
		leave_out(p, q, TT_EPOCHF_REFUSED);
		return false;
	}
	atomic_store(&p->context->captures, p->number); /* whatever becomes of it, the kernels release it */
	p->staged = true;
	choose_captured(p);
	q->final = true;
	if (wait)
		return finish(t, p, &params, q, full);
	capture_opened(p, q->slot, capture_span(p, worst, worst));
	p->open_stream = NULL;
	q->charged = budget_expect();
	return hand_over(p, q);
}
