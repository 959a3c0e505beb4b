/*
 * Wrappers of streams, events, stream capture, waits of the host and stream-ordered allocation.
 */
#include "lifecycle/inflight.h"
#include "arena/arena.h"
#include "arena/fill.h"
#include "hooks/memory.h"
#include "track/copy_sources.h"

/* The host knows that work is complete: up to an event, or of the op's stream (NULL). */
static void learned(const struct op *op, CUresult r, CUevent event)
{
	if (r != CUDA_SUCCESS || !op->on)
		return;
	if (event)
		copy_sources_event_complete(event);
	else
		copy_sources_complete(op->context, op->stream, op->seq);
}

/* event: NULL for a wait for a stream. */
static void end_wait(struct op *op, CUresult r, CUevent event)
{
	learned(op, r, event);
	RECORD(op, r, TT_EVENT_SYNC, e->src = (uintptr_t)event);
	if (r == CUDA_SUCCESS && options.epoch.sync)
		op_epoch(op, TT_TRIGGER_SYNC, TT_NO_ID);
}

/*
 * Queries by which the program learned that work is complete. The event's number is taken after the answer, because
 * other threads may submit work meanwhile. Negative answers are not recorded.
 */
#define ANSWERS(symbol, params, args, begins, asked) \
	EXPORT CUresult CUDAAPI symbol params \
	{ \
		HOOK(op, symbol); \
		CUresult r = real.symbol args; \
		if (r == CUDA_SUCCESS) \
			copy_sources_look(); \
		if (r == CUDA_SUCCESS && options.events && begins) { \
			learned(&op, r, asked); \
			RECORD(&op, r, TT_EVENT_QUERY, e->src = (uintptr_t)(asked)); \
		} \
		return r; \
	}

/* Work of a call in a stream that is neither a kernel nor a copy. */
struct item {
	uint32_t kind; /* of its event */
	uint64_t dst, src;
	uint32_t shared; /* as in tt_event */
	bool writes;     /* to memory of regions; else it needs no gate and no wait for captures */
	bool waits;      /* it may complete only by a later action of the host, or of work that waits for the host */
};

static void end_item(struct op *op, CUresult r, const struct item *item)
{
	if (op->on && item->writes && controls.touched)
		regions_touch_all(op->context);
	if (item->waits)
		op_host_bound(op, r);
	if (item->kind == TT_EVENT_EVENT_RECORD && op->on && !op->capturing && r == CUDA_SUCCESS)
		copy_sources_recorded(op->stream, (const void *)(uintptr_t)item->src, op->seq);
	RECORD(op, r, item->kind, e->dst = item->dst, e->src = item->src, e->shared = item->shared);
	op_end(op, r);
}

/* The remaining arguments are members of its item. */
#define ON_STREAM(symbol, per_thread, params, args, ...) \
	EXPORT CUresult CUDAAPI symbol params \
	{ \
		const struct item item = {__VA_ARGS__}; \
		HOOK(op, symbol, op_begin_stream(&op, stream, per_thread, item.writes)); \
		CUresult r = real.symbol args; \
		end_item(&op, r, &item); \
		return r; \
	}
#define WAITS_FOR_VALUE(symbol, per_thread, type) \
	ON_STREAM(symbol, per_thread, (CUstream stream, CUdeviceptr a, type v, unsigned flags), (stream, a, v, flags), \
		  .kind = TT_EVENT_MEM_OP, .src = a, .waits = true)
#define WRITES_VALUE(symbol, per_thread, type) \
	ON_STREAM(symbol, per_thread, (CUstream stream, CUdeviceptr a, type v, unsigned flags), (stream, a, v, flags), \
		  .kind = TT_EVENT_MEM_OP, .dst = a, .src = v, .shared = sizeof(v), .writes = true)
#define BATCH(symbol, per_thread) \
	ON_STREAM(symbol, per_thread, (CUstream stream, unsigned n, CUstreamBatchMemOpParams *list, unsigned flags), \
		  (stream, n, list, flags), .kind = TT_EVENT_MEM_OP, .writes = true, .waits = true)

/* The stream of a call, recorded or not. */
static struct stream *stream_at(const struct op *op, CUstream handle, bool per_thread)
{
	return op->on ? op->stream : stream_of(thread_current(), handle, per_thread);
}

/* The same, but NULL in a process that was never recorded. */
static struct stream *stream_followed(const struct op *op, CUstream handle, bool per_thread)
{
	return recording_or_stopped() ? stream_at(op, handle, per_thread) : NULL;
}

#define BEGINS_CAPTURE(symbol, per_thread, params, args) \
	EXPORT CUresult CUDAAPI symbol params \
	{ \
		HOOK(op, symbol, op_begin_stream(&op, stream, per_thread, false)); \
		atomic_fetch_add(&captures_active, 1); \
		CUresult r = real.symbol args; \
		if (r == CUDA_SUCCESS) \
			capture_stream_began(stream_followed(&op, stream, per_thread)); \
		else \
			atomic_fetch_sub(&captures_active, 1); \
		RECORD(&op, r, TT_EVENT_CAPTURE_BEGIN); \
		return r; \
	}

static CUstreamCaptureStatus capture_status_of(CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	real.cuStreamIsCapturing(stream, &status);
	return status;
}

static void freed_is_free(const struct op *op, CUresult r, CUstream handle, bool per_thread, uint64_t mark)
{
	struct stream *s = r == CUDA_SUCCESS ? stream_at(op, handle, per_thread) : NULL;

	if (s)
		arena_stream_waited_for(s, mark);
}

/* The program is out of device memory. True: the recorder freed some of its own, so the call is tried again. */
static bool given_back(struct op *op, CUresult r)
{
	if (r != CUDA_ERROR_OUT_OF_MEMORY || !op->on || op->capturing)
		return false;
	gate_leave(op->t); /* giving back may wait for an epoch, which waits for the gate */
	bool more = memory_give_back(op);
	gate_enter(op->t);
	op_number(op); /* epochs that were cut meanwhile do not include it */
	op_catch_up(op, 0);
	return more;
}

/* Without a kind, the arena does not serve it. */
static struct served from_arena(struct op *op, CUmemoryPool pool, size_t n, CUdeviceptr *p)
{
	enum arena_result result;
	struct arena_place at;

	if (!op->on || op->capturing || !options.deterministic || !p || !n)
		return NOT_SERVED;
	do {
		result = arena_allocate_async(op->stream, pool, n, &at);
	} while (result == ARENA_SHORT && given_back(op, CUDA_ERROR_OUT_OF_MEMORY));
	return arena_served(result, at, p);
}

/*
 * If the stream's device cannot access the pool, kernels of an epoch or a fill would destroy the context. Then the
 * memory is no region.
 */
static bool reaches(const struct op *op, CUmemoryPool pool)
{
	CUmemAccess_flags flags = 0;

	return !pool || !op->on || !real.cuMemPoolGetAccess ||
	       (real.cuMemPoolGetAccess(&flags, pool, &(CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, op->context->device}) ==
			CUDA_SUCCESS &&
		flags);
}

#define ALLOCATES_ASYNC(symbol, per_thread, any, pool_, params, args) \
	EXPORT CUresult CUDAAPI symbol params \
	{ \
		HOOK(op, symbol, op_begin_stream(&op, stream, per_thread, true)); \
		struct served in_arena = NOT_SERVED; \
		if (any) \
			in_arena = from_arena(&op, pool_, n, p); \
		CUresult r = in_arena.kind ? CUDA_SUCCESS : real.symbol args; \
		while (given_back(&op, r)) \
			r = real.symbol args; \
		bool near = in_arena.kind || reaches(&op, pool_); \
		if (fill_asked() && !in_arena.kind && near) \
			memory_fill_async(&op, r, r == CUDA_SUCCESS && p ? *p : 0, n); \
		memory_served(&op, r, in_arena, TT_REGION_ASYNC, r == CUDA_SUCCESS && p ? *p : 0, near ? n : 0); \
		return r; \
	}

/* While its stream is captured, a free is a graph node; memory of the arena cannot be freed so. */
static CUresult free_in_arena(struct op *op, CUdeviceptr p, CUresult (*free_real)(CUdeviceptr, CUstream), CUstream handle,
			      bool per_thread)
{
	struct stream *s = op->capturing ? NULL : stream_at(op, handle, per_thread);
	struct block *b;

	if (!s)
		return free_real(p, handle);
	CUresult r = arena_free_async_begin(s, p, free_real, handle, &b);
	if (r != CUDA_SUCCESS)
		return r;
	if (op->on && !arena_region_goes_on(b)) {
		struct region_origin origin = op_origin(op);
		region_died(p, &origin);
	}
	arena_free_async_end(s, b);
	return r;
}

/*
 * The region that a free ends, or NULL. Found before the call, because another thread may get the memory
 * afterwards.
 */
static struct region *freed(const struct op *op, CUdeviceptr p)
{
	return op->on && !op->capturing ? region_find(p) : NULL;
}

static void end_freed(const struct op *op, struct region *r, bool gone)
{
	struct region_origin origin = op_origin(op);

	if (!r)
		return;
	if (gone)
		region_ended(r, &origin);
	region_release(r);
}

#define STREAMS(S, PT) \
	EXPORT CUresult CUDAAPI cuStreamSynchronize##S(CUstream stream) \
	{ \
		HOOK(op, cuStreamSynchronize##S, copy_sources_look(), op_begin_stream(&op, stream, PT, false)); \
		uint64_t submitted = op_submitted(&op), mark = arena_mark(); \
		uint64_t since = op_only_waits(&op); \
		CUresult r = real.cuStreamSynchronize##S(stream); \
		op_waited(&op, since); \
		if (r == CUDA_SUCCESS) \
			op_settled(&op, submitted); \
		if (unlikely(mark)) \
			freed_is_free(&op, r, stream, PT, mark); \
		end_wait(&op, r, NULL); \
		return r; \
	} \
	ANSWERS(cuStreamQuery##S, (CUstream stream), (stream), op_begin_stream(&op, stream, PT, false), NULL) \
	ON_STREAM(cuStreamWaitEvent##S, PT, (CUstream stream, CUevent event, unsigned flags), (stream, event, flags), .kind = TT_EVENT_EVENT_WAIT, .src = (uintptr_t)event) \
	ON_STREAM(cuEventRecord##S, PT, (CUevent event, CUstream stream), (event, stream), .kind = TT_EVENT_EVENT_RECORD, .src = (uintptr_t)event) \
	ON_STREAM(cuEventRecordWithFlags##S, PT, (CUevent event, CUstream stream, unsigned flags), (event, stream, flags), .kind = TT_EVENT_EVENT_RECORD, .src = (uintptr_t)event) \
	BEGINS_CAPTURE(cuStreamBeginCapture##S, PT, (CUstream stream), (stream)) \
	BEGINS_CAPTURE(cuStreamBeginCapture_v2##S, PT, (CUstream stream, CUstreamCaptureMode mode), (stream, mode)) \
	BEGINS_CAPTURE(cuStreamBeginCaptureToGraph##S, PT, (CUstream stream, CUgraph g, const CUgraphNode *d, const CUgraphEdgeData *x, size_t n, CUstreamCaptureMode mode), (stream, g, d, x, n, mode)) \
	EXPORT CUresult CUDAAPI cuStreamEndCapture##S(CUstream stream, CUgraph *g) \
	{ \
		HOOK(op, cuStreamEndCapture##S, op_begin_stream(&op, stream, PT, false)); \
		struct stream *s = stream_followed(&op, stream, PT); \
		CUresult r = real.cuStreamEndCapture##S(stream, g); \
		if (s && s->captured && capture_status_of(s->handle) == CU_STREAM_CAPTURE_STATUS_NONE) \
			capture_stream_ended(s); /* also after a failed call */ \
		RECORD(&op, r, TT_EVENT_CAPTURE_END); \
		return r; \
	} \
	ON_STREAM(cuWaitExternalSemaphoresAsync##S, PT, (const CUexternalSemaphore *list, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *how, unsigned n, CUstream stream), (list, how, n, stream), .kind = TT_EVENT_MEM_OP, .waits = true) \
	WAITS_FOR_VALUE(cuStreamWaitValue32##S, PT, cuuint32_t) \
	WAITS_FOR_VALUE(cuStreamWaitValue64##S, PT, cuuint64_t) \
	WAITS_FOR_VALUE(cuStreamWaitValue32_v2##S, PT, cuuint32_t) \
	WAITS_FOR_VALUE(cuStreamWaitValue64_v2##S, PT, cuuint64_t) \
	WRITES_VALUE(cuStreamWriteValue32##S, PT, cuuint32_t) \
	WRITES_VALUE(cuStreamWriteValue64##S, PT, cuuint64_t) \
	WRITES_VALUE(cuStreamWriteValue32_v2##S, PT, cuuint32_t) \
	WRITES_VALUE(cuStreamWriteValue64_v2##S, PT, cuuint64_t) \
	BATCH(cuStreamBatchMemOp##S, PT) \
	BATCH(cuStreamBatchMemOp_v2##S, PT) \
	ALLOCATES_ASYNC(cuMemAllocAsync##S, PT, true, NULL, (CUdeviceptr *p, size_t n, CUstream stream), (p, n, stream)) \
	ALLOCATES_ASYNC(cuMemAllocFromPoolAsync##S, PT, pool, pool, (CUdeviceptr *p, size_t n, CUmemoryPool pool, CUstream stream), (p, n, pool, stream)) \
	EXPORT CUresult CUDAAPI cuMemFreeAsync##S(CUdeviceptr p, CUstream stream) \
	{ \
		HOOK(op, cuMemFreeAsync##S, op_begin_free(&op, stream, PT)); \
		bool in_arena = arena_holds(p); \
		struct region *region = in_arena ? NULL : freed(&op, p); \
		CUresult r = in_arena ? free_in_arena(&op, p, real.cuMemFreeAsync##S, stream, PT) \
				      : real.cuMemFreeAsync##S(p, stream); \
		end_freed(&op, region, r == CUDA_SUCCESS && region && region->base == p); \
		RECORD(&op, r, TT_EVENT_FREE, e->dst = p); \
		op_end(&op, r); \
		return r; \
	}

STREAMS(, false)
STREAMS(_ptsz, true)

EXPORT CUresult CUDAAPI cuEventSynchronize(CUevent event)
{
	HOOK(op, cuEventSynchronize, copy_sources_look(), op_begin(&op));
	uint64_t since = op_only_waits(&op);
	CUresult r = real.cuEventSynchronize(event);
	op_waited(&op, since);
	end_wait(&op, r, event);
	return r;
}

ANSWERS(cuEventQuery, (CUevent event), (event), op_begin(&op), event)

#define ENDS_EVENT(symbol) \
	EXPORT CUresult CUDAAPI symbol(CUevent event) \
	{ \
		HOOK(op, symbol, inflight_event_ends(event)); \
		return real.symbol(event); \
	}
ENDS_EVENT(cuEventDestroy)
ENDS_EVENT(cuEventDestroy_v2)

static void created(struct op *op, CUresult r, CUstream *stream, unsigned flags)
{
	if (!op->on)
		return;
	if (r == CUDA_SUCCESS) {
		stream_created(op->context, *stream);
		op->stream = stream_of(op->t, *stream, false);
	}
	RECORD(op, r, TT_EVENT_STREAM_CREATE, e->bytes = flags);
}

#define CREATES(symbol, params, args) \
	EXPORT CUresult CUDAAPI symbol params \
	{ \
		HOOK(op, symbol, op_begin(&op)); \
		CUresult r = real.symbol args; \
		created(&op, r, stream, flags); \
		return r; \
	}
CREATES(cuStreamCreate, (CUstream *stream, unsigned flags), (stream, flags))
CREATES(cuStreamCreateWithPriority, (CUstream *stream, unsigned flags, int priority), (stream, flags, priority))

static CUresult destroy(struct op *op, CUstream stream, CUresult (*destroy_real)(CUstream))
{
	uint64_t id = 0;

	/* before the call: another thread may get the handle at once */
	capture_stream_ended(stream_followed(op, stream, false));
	if (op->on) {
		id = op->stream->id;
		op->stream = NULL; /* its struct may be reused too */
		stream_destroyed(stream);
	}
	inflight_handle_ends();
	CUresult r = destroy_real(stream);
	RECORD(op, r, TT_EVENT_STREAM_DESTROY, e->stream = id);
	return r;
}

#define DESTROYS(symbol) \
	EXPORT CUresult CUDAAPI symbol(CUstream stream) \
	{ \
		HOOK(op, symbol, op_begin_stream(&op, stream, false, false)); \
		return destroy(&op, stream, real.symbol); \
	}
DESTROYS(cuStreamDestroy)
DESTROYS(cuStreamDestroy_v2)
