/*
 * Streams, events, stream capture, waits of the host, and stream-ordered allocation.
 */
#include "lifecycle/inflight.h"
#include "arena/arena.h"
#include "hooks/op.h"

static void end_with(struct op *op, CUresult r, uint32_t kind, uint64_t dst, uint64_t src)
{
	struct tt_event *e = op_event(op, r);

	if (e) {
		e->dst = dst;
		e->src = src;
		events_publish(e, kind);
	}
	op_end(op, r);
}

/* event: NULL where the wait was for a stream. */
static void end_wait(struct op *op, CUresult r, CUevent event)
{
	struct tt_event *e = op_event(op, r);

	if (e) {
		e->src = (uintptr_t)event;
		events_publish(e, TT_EVENT_SYNC);
	}
	if (r == CUDA_SUCCESS && options.epoch.sync)
		op_epoch(op, TT_TRIGGER_SYNC, TT_NO_ID);
}

/* One that neither reads nor writes memory of regions: no gate, no wait for captures. */
#define QUIET(symbol, per_thread, stream, kind, what, params, args) \
	EXPORT CUresult CUDAAPI symbol params \
	{ \
		OP(op); \
		if (!REAL(symbol)) \
			return CUDA_ERROR_NOT_SUPPORTED; \
		op_begin_stream(&op, CALL_##symbol, stream, per_thread, false); \
		CUresult r = real.symbol args; \
		struct tt_event *e = op_event(&op, r); \
		if (e) { \
			e->src = (uint64_t)(uintptr_t)(what); \
			events_publish(e, kind); \
		} \
		return r; \
	}

#define WAITS_FOR_VALUE(symbol, per_thread, type) \
	EXPORT CUresult CUDAAPI symbol(CUstream stream, CUdeviceptr a, type v, unsigned flags) \
	{ \
		OP(op); \
		if (!REAL(symbol)) \
			return CUDA_ERROR_NOT_SUPPORTED; \
		op_begin_stream(&op, CALL_##symbol, stream, per_thread, false); \
		CUresult r = real.symbol(stream, a, v, flags); \
		struct tt_event *e = op_event(&op, r); \
		if (e) { \
			e->src = a; \
			events_publish(e, TT_EVENT_MEM_OP); \
		} \
		op_host_bound(&op, r); \
		return r; \
	}

/* Whoever signals the semaphores, another process or interface, may wait for the host. */
#define WAITS_FOR_OTHERS(symbol, per_thread) \
	EXPORT CUresult CUDAAPI symbol(const CUexternalSemaphore *list, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params, \
				       unsigned n, CUstream stream) \
	{ \
		OP(op); \
		if (!REAL(symbol)) \
			return CUDA_ERROR_NOT_SUPPORTED; \
		op_begin_stream(&op, CALL_##symbol, stream, per_thread, false); \
		CUresult r = real.symbol(list, params, n, stream); \
		struct tt_event *e = op_event(&op, r); \
		if (e) \
			events_publish(e, TT_EVENT_MEM_OP); \
		op_host_bound(&op, r); \
		return r; \
	}

#define WRITES_VALUE(symbol, per_thread, type) \
	EXPORT CUresult CUDAAPI symbol(CUstream stream, CUdeviceptr a, type v, unsigned flags) \
	{ \
		OP(op); \
		if (!REAL(symbol)) \
			return CUDA_ERROR_NOT_SUPPORTED; \
		op_begin_stream(&op, CALL_##symbol, stream, per_thread, true); \
		CUresult r = real.symbol(stream, a, v, flags); \
		if (op.on && controls.touched) \
			regions_touch_all(op.context); \
		struct tt_event *e = op_event(&op, r); \
		if (e) { \
			e->dst = a; \
			e->src = v; \
			e->shared = sizeof(v); \
			events_publish(e, TT_EVENT_MEM_OP); \
		} \
		op_end(&op, r); \
		return r; \
	}

/* Waits may be among it. */
#define BATCH(symbol, per_thread) \
	EXPORT CUresult CUDAAPI symbol(CUstream stream, unsigned n, CUstreamBatchMemOpParams *list, unsigned flags) \
	{ \
		OP(op); \
		if (!REAL(symbol)) \
			return CUDA_ERROR_NOT_SUPPORTED; \
		op_begin_stream(&op, CALL_##symbol, stream, per_thread, true); \
		CUresult r = real.symbol(stream, n, list, flags); \
		if (op.on && controls.touched) \
			regions_touch_all(op.context); \
		op_host_bound(&op, r); \
		end_with(&op, r, TT_EVENT_MEM_OP, 0, 0); \
		return r; \
	}

/* The stream that a call works on, whether or not the call is recorded. */
static struct stream *stream_at(const struct op *op, CUstream handle, bool per_thread)
{
	return op->on ? op->stream : stream_of(thread_current(), handle, per_thread);
}

/* The same in a process that is or was recorded, else NULL. */
static struct stream *stream_followed(const struct op *op, CUstream handle, bool per_thread)
{
	return recording_or_stopped() ? stream_at(op, handle, per_thread) : NULL;
}

#define BEGINS_CAPTURE(symbol, per_thread, params, args) \
	EXPORT CUresult CUDAAPI symbol params \
	{ \
		OP(op); \
		if (!REAL(symbol)) \
			return CUDA_ERROR_NOT_SUPPORTED; \
		op_begin_stream(&op, CALL_##symbol, stream, per_thread, false); \
		atomic_fetch_add(&captures_active, 1); \
		CUresult r = real.symbol args; \
		if (r == CUDA_SUCCESS) \
			capture_stream_began(stream_followed(&op, stream, per_thread)); \
		else \
			atomic_fetch_sub(&captures_active, 1); \
		struct tt_event *e = op_event(&op, r); \
		if (e) \
			events_publish(e, TT_EVENT_CAPTURE_BEGIN); \
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

/* The program ran short of device memory: whether it was given some of ours, and is to try again. */
static bool given_back(struct op *op, CUresult r)
{
	if (r != CUDA_ERROR_OUT_OF_MEMORY || !op->on || op->capturing)
		return false;
	gate_leave(op->t); /* what gives back may wait for an epoch, and that for the gate */
	bool more = arena_give_back(op->context) || capture_give_back(op->t, op->context);
	gate_enter(op->t);
	op_number(op); /* it comes after the epochs that were cut meanwhile */
	op_catch_up(op, 0);
	return more;
}

static bool from_arena(struct op *op, CUmemoryPool pool, size_t n, CUdeviceptr *p)
{
	enum arena_result result;

	if (!op->on || op->capturing || !options.deterministic || !p || !n)
		return false;
	do {
		result = arena_allocate_async(op->stream, pool, n, p);
	} while (result == ARENA_SHORT && given_back(op, CUDA_ERROR_OUT_OF_MEMORY));
	return result == ARENA_SERVED;
}

static void born(struct op *op, CUresult r, bool ours, CUdeviceptr *p, size_t n)
{
	struct tt_event *e;
	uint32_t id = TT_NO_ID;

	if (!op->on)
		return;
	if (r == CUDA_SUCCESS && !op->capturing && p && n && *p) {
		struct region_origin origin = op_origin(op);
		id = region_born(op->context, ours ? TT_REGION_ARENA : TT_REGION_ASYNC, *p, n, TT_NO_ID, &origin);
	}
	if ((e = op_event(op, r))) {
		e->dst = p && r == CUDA_SUCCESS ? *p : 0;
		e->bytes = n;
		e->id = id;
		events_publish(e, TT_EVENT_ALLOC);
	}
	op_end(op, r);
	if (r == CUDA_SUCCESS)
		capture_prepare(op->t, op->context);
}

/* While its stream is captured a free is a node of a graph, and none for memory of ours. */
static CUresult free_in_arena(struct op *op, CUdeviceptr p, CUresult (*free_real)(CUdeviceptr, CUstream), CUstream handle,
			      bool per_thread)
{
	struct stream *s = op->capturing ? NULL : stream_at(op, handle, per_thread);
	struct block *b;

	if (!s)
		return free_real(p, handle);
	CUresult r = arena_free_async_begin(p, free_real, handle, &b);
	if (r != CUDA_SUCCESS)
		return r;
	if (op->on) {
		struct region_origin origin = op_origin(op);
		region_died(p, &origin);
	}
	arena_free_async_end(s, b);
	return r;
}

/* The region that a free ends, or NULL: known before the call, after which the memory may be another thread's. */
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
		OP(op); \
		if (!REAL(cuStreamSynchronize##S)) \
			return CUDA_ERROR_NOT_SUPPORTED; \
		op_begin_stream(&op, CALL_cuStreamSynchronize##S, stream, PT, false); \
		uint64_t submitted = op_submitted(&op), mark = arena_mark(); \
		op_waits(&op); \
		CUresult r = real.cuStreamSynchronize##S(stream); \
		if (r == CUDA_SUCCESS) \
			op_settled(&op, submitted); \
		if (unlikely(mark)) \
			freed_is_free(&op, r, stream, PT, mark); \
		end_wait(&op, r, NULL); \
		return r; \
	} \
	QUIET(cuStreamWaitEvent##S, PT, stream, TT_EVENT_EVENT_WAIT, event, (CUstream stream, CUevent event, unsigned flags), \
	      (stream, event, flags)) \
	QUIET(cuEventRecord##S, PT, stream, TT_EVENT_EVENT_RECORD, event, (CUevent event, CUstream stream), (event, stream)) \
	QUIET(cuEventRecordWithFlags##S, PT, stream, TT_EVENT_EVENT_RECORD, event, \
	      (CUevent event, CUstream stream, unsigned flags), (event, stream, flags)) \
	BEGINS_CAPTURE(cuStreamBeginCapture##S, PT, (CUstream stream), (stream)) \
	BEGINS_CAPTURE(cuStreamBeginCapture_v2##S, PT, (CUstream stream, CUstreamCaptureMode mode), (stream, mode)) \
	BEGINS_CAPTURE(cuStreamBeginCaptureToGraph##S, PT, (CUstream stream, CUgraph g, const CUgraphNode *d, const CUgraphEdgeData *x, size_t n, CUstreamCaptureMode mode), (stream, g, d, x, n, mode)) \
	EXPORT CUresult CUDAAPI cuStreamEndCapture##S(CUstream stream, CUgraph *g) \
	{ \
		OP(op); \
		if (!REAL(cuStreamEndCapture##S)) \
			return CUDA_ERROR_NOT_SUPPORTED; \
		op_begin_stream(&op, CALL_cuStreamEndCapture##S, stream, PT, false); \
		struct stream *s = stream_followed(&op, stream, PT); \
		CUresult r = real.cuStreamEndCapture##S(stream, g); \
		if (s && s->captured && capture_status_of(s->handle) == CU_STREAM_CAPTURE_STATUS_NONE) \
			capture_stream_ended(s); /* also where the call failed */ \
		struct tt_event *e = op_event(&op, r); \
		if (e) \
			events_publish(e, TT_EVENT_CAPTURE_END); \
		return r; \
	} \
	WAITS_FOR_OTHERS(cuWaitExternalSemaphoresAsync##S, PT) \
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
	EXPORT CUresult CUDAAPI cuMemAllocAsync##S(CUdeviceptr *p, size_t n, CUstream stream) \
	{ \
		OP(op); \
		if (!REAL(cuMemAllocAsync##S)) \
			return CUDA_ERROR_NOT_SUPPORTED; \
		op_begin_stream(&op, CALL_cuMemAllocAsync##S, stream, PT, true); \
		bool ours = from_arena(&op, NULL, n, p); \
		CUresult r = ours ? CUDA_SUCCESS : real.cuMemAllocAsync##S(p, n, stream); \
		while (given_back(&op, r)) \
			r = real.cuMemAllocAsync##S(p, n, stream); \
		born(&op, r, ours, p, n); \
		return r; \
	} \
	EXPORT CUresult CUDAAPI cuMemAllocFromPoolAsync##S(CUdeviceptr *p, size_t n, CUmemoryPool pool, CUstream stream) \
	{ \
		OP(op); \
		if (!REAL(cuMemAllocFromPoolAsync##S)) \
			return CUDA_ERROR_NOT_SUPPORTED; \
		op_begin_stream(&op, CALL_cuMemAllocFromPoolAsync##S, stream, PT, true); \
		bool ours = pool && from_arena(&op, pool, n, p); \
		CUresult r = ours ? CUDA_SUCCESS : real.cuMemAllocFromPoolAsync##S(p, n, pool, stream); \
		while (given_back(&op, r)) \
			r = real.cuMemAllocFromPoolAsync##S(p, n, pool, stream); \
		born(&op, r, ours, p, n); \
		return r; \
	} \
	EXPORT CUresult CUDAAPI cuMemFreeAsync##S(CUdeviceptr p, CUstream stream) \
	{ \
		OP(op); \
		if (!REAL(cuMemFreeAsync##S)) \
			return CUDA_ERROR_NOT_SUPPORTED; \
		op_begin_free(&op, CALL_cuMemFreeAsync##S, stream, PT); \
		bool ours = arena_holds(p); \
		struct region *region = ours ? NULL : freed(&op, p); \
		CUresult r = ours ? free_in_arena(&op, p, real.cuMemFreeAsync##S, stream, PT) \
				  : real.cuMemFreeAsync##S(p, stream); \
		end_freed(&op, region, r == CUDA_SUCCESS && region && region->base == p); \
		end_with(&op, r, TT_EVENT_FREE, p, 0); \
		return r; \
	}

STREAMS(, false)
STREAMS(_ptsz, true)

EXPORT CUresult CUDAAPI cuEventSynchronize(CUevent event)
{
	OP(op);

	if (!REAL(cuEventSynchronize))
		return CUDA_ERROR_NOT_SUPPORTED;
	op_begin(&op, CALL_cuEventSynchronize);
	op_waits(&op);
	CUresult r = real.cuEventSynchronize(event);
	end_wait(&op, r, event);
	return r;
}

#define ENDS_EVENT(symbol) \
	EXPORT CUresult CUDAAPI symbol(CUevent event) \
	{ \
		if (!REAL(symbol)) \
			return CUDA_ERROR_NOT_SUPPORTED; \
		inflight_event_ends(event); \
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
	struct tt_event *e = op_event(op, r);
	if (e) {
		e->bytes = flags;
		events_publish(e, TT_EVENT_STREAM_CREATE);
	}
}

EXPORT CUresult CUDAAPI cuStreamCreate(CUstream *stream, unsigned flags)
{
	OP(op);

	if (!REAL(cuStreamCreate))
		return CUDA_ERROR_NOT_SUPPORTED;
	op_begin(&op, CALL_cuStreamCreate);
	CUresult r = real.cuStreamCreate(stream, flags);
	created(&op, r, stream, flags);
	return r;
}

EXPORT CUresult CUDAAPI cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
	OP(op);

	if (!REAL(cuStreamCreateWithPriority))
		return CUDA_ERROR_NOT_SUPPORTED;
	op_begin(&op, CALL_cuStreamCreateWithPriority);
	CUresult r = real.cuStreamCreateWithPriority(stream, flags, priority);
	created(&op, r, stream, flags);
	return r;
}

static CUresult destroy(uint32_t call, CUstream stream, CUresult (*destroy_real)(CUstream))
{
	OP(op);
	uint64_t id = 0;

	op_begin_stream(&op, call, stream, false, false);
	/* before the call: the handle may come back to another thread at once */
	capture_stream_ended(stream_followed(&op, stream, false));
	if (op.on) {
		id = op.stream->id;
		op.stream = NULL; /* its place too */
		stream_destroyed(stream);
	}
	inflight_handle_ends();
	CUresult r = destroy_real(stream);
	struct tt_event *e = op_event(&op, r);
	if (e) {
		e->stream = id;
		events_publish(e, TT_EVENT_STREAM_DESTROY);
	}
	return r;
}

EXPORT CUresult CUDAAPI cuStreamDestroy(CUstream stream)
{
	return REAL(cuStreamDestroy) ? destroy(CALL_cuStreamDestroy, stream, real.cuStreamDestroy) : CUDA_ERROR_NOT_SUPPORTED;
}

EXPORT CUresult CUDAAPI cuStreamDestroy_v2(CUstream stream)
{
	return REAL(cuStreamDestroy_v2) ? destroy(CALL_cuStreamDestroy_v2, stream, real.cuStreamDestroy_v2)
					: CUDA_ERROR_NOT_SUPPORTED;
}
