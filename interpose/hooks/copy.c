/*
 * Wrappers of copies and sets, for the legacy and the per-thread default stream.
 */
#include <string.h>

#include "arena/arena.h"
#include "hooks/op.h"
#include "track/copy_sources.h"

struct span {
	CUdeviceptr dst, src;
	uint64_t bytes;
	uint32_t flags;
	uint32_t value; /* of sets, which have no src */
	uint32_t shared, grid[3], block[3], cluster[3]; /* as in tt_event */
};

/* Memory with rows is not watched. */
static void watch(const struct op *op, struct span s, bool waits)
{
	if (waits)
		copy_sources_complete(op->context, op->stream, op->seq);
	else if (!s.grid[0] && !(s.flags & TT_EVENTF_HOST_DST))
		copy_sources_watch(op->stream, op->seq, s.dst, s.src, s.bytes);
}

static void end_copy(struct op *op, CUresult r, uint32_t kind, struct span s, bool waits)
{
	struct tt_event *e = op_event(op, r);

	if (e) {
		e->dst = s.dst;
		e->src = s.src;
		e->bytes = s.bytes;
		e->flags |= s.flags | (waits ? TT_EVENTF_SYNC_COPY : 0);
		if (kind == TT_EVENT_SET)
			e->src = s.value;
		e->shared = s.shared;
		memcpy(e->grid, s.grid, sizeof(e->grid));
		memcpy(e->block, s.block, sizeof(e->block));
		memcpy(e->cluster, s.cluster, sizeof(e->cluster));
		events_publish(e, kind);
	}
	if (controls.touched && s.dst && !(s.flags & TT_EVENTF_HOST_DST))
		regions_touch(s.dst, s.bytes ? s.bytes : 1);
	op_end(op, r);
	if (r != CUDA_SUCCESS || op->capturing)
		return;
	if (unlikely(options.host_writes) && op->on && kind == TT_EVENT_COPY)
		watch(op, s, waits);
	if (options.epoch.copy && kind == TT_EVENT_COPY)
		op_epoch(op, TT_TRIGGER_COPY, TT_NO_ID);
	else if (options.epoch.sync && waits && (s.flags & TT_EVENTF_HOST_DST))
		op_epoch(op, TT_TRIGGER_SYNC, TT_NO_ID);
}

static struct span plain(CUdeviceptr dst, CUdeviceptr src, uint64_t bytes, uint32_t flags)
{
	return (struct span){.dst = dst, .src = src, .bytes = bytes, .flags = flags};
}

static struct span set(CUdeviceptr dst, uint32_t value, uint32_t item, uint64_t n)
{
	return (struct span){.dst = dst, .bytes = n * item, .value = value, .shared = item};
}

static struct span set_2d(CUdeviceptr dst, uint64_t pitch, uint32_t value, uint32_t item, uint64_t w, uint64_t h)
{
	bool fits = w <= UINT32_MAX && h <= UINT32_MAX;

	return (struct span){.dst = dst,
			     .bytes = pitch * h,
			     .value = value,
			     .shared = fits ? item : 0,
			     .grid = {fits ? (uint32_t)w : 0, fits ? (uint32_t)h : 0}};
}

/* Where a side of a 2-D or 3-D copy begins; 0: in an array. */
static CUdeviceptr begin_of(CUmemorytype type, const void *host, CUdeviceptr device, uint64_t skip)
{
	CUdeviceptr base = type == CU_MEMORYTYPE_HOST ? (uintptr_t)host : type == CU_MEMORYTYPE_ARRAY ? 0 : device;

	return base ? base + skip : 0;
}

static struct span copy_3d(const CUDA_MEMCPY3D *c)
{
	if (!c)
		return (struct span){0};
	bool host = c->dstMemoryType == CU_MEMORYTYPE_HOST;
	uint64_t to = c->dstXInBytes + (c->dstY + c->dstZ * c->dstHeight) * c->dstPitch;
	uint64_t from = c->srcXInBytes + (c->srcY + c->srcZ * c->srcHeight) * c->srcPitch;
	struct span s = plain(begin_of(c->dstMemoryType, c->dstHost, c->dstDevice, to),
			      begin_of(c->srcMemoryType, c->srcHost, c->srcDevice, from),
			      c->WidthInBytes * c->Height * c->Depth, host ? TT_EVENTF_HOST_DST : 0);
	const uint64_t shape[] = {c->WidthInBytes, c->Height, c->Depth, c->dstPitch, c->srcPitch, c->dstHeight, c->srcHeight};

	for (size_t i = 0; i < sizeof(shape) / sizeof(*shape); i++)
		if (shape[i] > UINT32_MAX)
			return s;
	for (size_t i = 0; i < 3; i++)
		s.grid[i] = (uint32_t)shape[i];
	for (size_t i = 0; i < 2; i++) {
		s.block[i] = (uint32_t)shape[3 + i];
		s.cluster[i] = (uint32_t)shape[5 + i];
	}
	return s;
}

static struct span copy_2d(const CUDA_MEMCPY2D *c)
{
	if (!c)
		return (struct span){0};
	return copy_3d(&(CUDA_MEMCPY3D){.srcXInBytes = c->srcXInBytes,
					.srcY = c->srcY,
					.srcMemoryType = c->srcMemoryType,
					.srcHost = c->srcHost,
					.srcDevice = c->srcDevice,
					.srcPitch = c->srcPitch,
					.dstXInBytes = c->dstXInBytes,
					.dstY = c->dstY,
					.dstMemoryType = c->dstMemoryType,
					.dstHost = c->dstHost,
					.dstDevice = c->dstDevice,
					.dstPitch = c->dstPitch,
					.WidthInBytes = c->WidthInBytes,
					.Height = c->Height,
					.Depth = 1});
}

/* Like the other, but it names contexts where that has reserved members. */
static struct span copy_3d_peer(const CUDA_MEMCPY3D_PEER *c)
{
	CUDA_MEMCPY3D same;

	_Static_assert(sizeof(same) == sizeof(*c) &&
			       offsetof(CUDA_MEMCPY3D, reserved1) == offsetof(CUDA_MEMCPY3D_PEER, dstContext),
		       "members are in the same places");
	if (!c)
		return (struct span){0};
	memcpy(&same, c, sizeof(same));
	struct span s = copy_3d(&same);
	s.flags |= TT_EVENTF_PEER;
	return s;
}

/* Host memory has no regions, except managed memory. */
static inline bool writes(struct span s)
{
	return !(s.flags & TT_EVENTF_HOST_DST) || atomic_load_explicit(&regions_managed, memory_order_relaxed);
}

/* The host waits for the copy, so the delay comes before the call. */
#define DELAYS_OF(waits, kind) ((waits) && (kind) == TT_EVENT_COPY ? TT_EVENTF_DELAYED : DELAYS)

/* A pitched destination spans more bytes than it moves. */
static void touch_pitched(const struct op *op)
{
	if (op->on && controls.touched)
		regions_touch_all(op->context);
}

/* Copies in any context can use any memory of the driver. False: this one must name the contexts. */
static bool reach(const struct op *op, struct span s)
{
	bool dst = arena_reach(op->context, s.dst), src = arena_reach(op->context, s.src);

	return dst && src;
}

/* The driver would refuse a set of memory that the program has not opened to the device. */
static inline bool is_refused(const struct op *op, uint32_t kind, struct span s)
{
	if (kind == TT_EVENT_SET)
		return !op->capturing && arena_holds(s.dst) && op->context && arena_is_closed(op->context->device, s.dst);
	reach(op, s);
	return false;
}

/* Fills in a copy between the host and memory of a device without peer access. */
static bool name_context(CUDA_MEMCPY3D_PEER *c, struct span s, bool to_host)
{
	CUcontext owner = arena_owner(to_host ? s.src : s.dst);

	*c = (CUDA_MEMCPY3D_PEER){
		.srcMemoryType = to_host ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
		.srcDevice = to_host ? s.src : 0,
		.srcHost = to_host ? NULL : (const void *)(uintptr_t)s.src,
		.srcContext = owner,
		.dstMemoryType = to_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
		.dstDevice = to_host ? 0 : s.dst,
		.dstHost = to_host ? (void *)(uintptr_t)s.dst : NULL,
		.dstContext = owner,
		.WidthInBytes = s.bytes,
		.Height = 1,
		.Depth = 1,
	};
	return owner;
}

/* Call before the copy is submitted: it may write memory of another context. */
static void order(struct op *op, struct span s)
{
	if (unlikely(contexts_several()) && op->on && op->writes && !op->capturing && s.dst)
		op_reaches_address(op, s.dst);
}

#define HOST_SRC(p) ((CUdeviceptr)(uintptr_t)(p))
#define SUBMITS(symbol, per_thread, stream_, waits, kind, span, params, before, call, after) \
	EXPORT CUresult CUDAAPI symbol params \
	{ \
		HOOK(op, symbol, if (waits) copy_sources_look(); \
		     op_begin_work(&op, stream_, per_thread, writes(span), DELAYS_OF(waits, kind))); \
		before; \
		order(&op, span); \
		if (waits) \
			op_waits(&op); \
		op_time(&op); \
		CUresult r = call; \
		after; \
		end_copy(&op, r, kind, span, waits); \
		return r; \
	}
#define COPY_OP(symbol, per_thread, stream_, waits, kind, span, params, args, after) \
	SUBMITS(symbol, per_thread, stream_, waits, kind, span, params, bool refused = is_refused(&op, kind, span), \
		refused ? CUDA_ERROR_INVALID_VALUE : real.symbol args, after)
#define SYNC_OP(symbol, per_thread, ...) COPY_OP(symbol, per_thread, NULL, true, __VA_ARGS__)
#define ASYNC_OP(symbol, per_thread, ...) COPY_OP(symbol, per_thread, stream, false, __VA_ARGS__)
/* Between devices, the arena's memory is copied by the call that names both contexts. */
#define DEVICE_OP(symbol, peer, per_thread, stream_, waits, params, args, peer_args) \
	SUBMITS(symbol, per_thread, stream_, waits, C, plain(dst, src, n, 0), params, \
		CUcontext dst_context; CUcontext src_context; \
		bool far = arena_far(dst, src, &dst_context, &src_context) && !op.capturing && real.peer; \
		if (!far) reach(&op, plain(dst, src, n, 0)), \
		far ? real.peer peer_args : real.symbol args, NOTHING)
/* The same for memory of a device without peer access. */
#define HOST_OP(symbol, peer, per_thread, stream_, waits, to_host, span, params, args, peer_args) \
	SUBMITS(symbol, per_thread, stream_, waits, C, span, params, \
		CUDA_MEMCPY3D_PEER named; \
		bool far = !reach(&op, span) && !op.capturing && real.peer && name_context(&named, span, to_host), \
		far ? real.peer peer_args : real.symbol args, \
		if (far && waits && r == CUDA_SUCCESS) \
			r = real.cuStreamSynchronize(per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY))
#define C TT_EVENT_COPY
#define M TT_EVENT_SET
#define NOTHING (void)0

#define SYNC_OPS(S, PT) \
	DEVICE_OP(cuMemcpy##S, cuMemcpyPeer##S, PT, NULL, true, (CUdeviceptr dst, CUdeviceptr src, size_t n), (dst, src, n), (dst, dst_context, src, src_context, n)) \
	SYNC_OP(cuMemcpyPeer##S, PT, C, plain(dst, src, n, TT_EVENTF_PEER), (CUdeviceptr dst, CUcontext dc, CUdeviceptr src, CUcontext sc, size_t n), (dst, dc, src, sc, n), touch_pitched(&op)) \
	SYNC_OP(cuMemcpy3DPeer##S, PT, C, copy_3d_peer(c), (const CUDA_MEMCPY3D_PEER *c), (c), touch_pitched(&op)) \
	HOST_OP(cuMemcpyHtoD_v2##S, cuMemcpy3DPeer##S, PT, NULL, true, false, plain(dst, HOST_SRC(src), n, TT_EVENTF_HOST_SRC), (CUdeviceptr dst, const void *src, size_t n), (dst, src, n), (&named)) \
	HOST_OP(cuMemcpyDtoH_v2##S, cuMemcpy3DPeer##S, PT, NULL, true, true, plain(HOST_SRC(dst), src, n, TT_EVENTF_HOST_DST), (void *dst, CUdeviceptr src, size_t n), (dst, src, n), (&named)) \
	DEVICE_OP(cuMemcpyDtoD_v2##S, cuMemcpyPeer##S, PT, NULL, true, (CUdeviceptr dst, CUdeviceptr src, size_t n), (dst, src, n), (dst, dst_context, src, src_context, n)) \
	SYNC_OP(cuMemcpyDtoA_v2##S, PT, C, plain(0, src, n, 0), (CUarray dst, size_t at, CUdeviceptr src, size_t n), (dst, at, src, n), NOTHING) \
	SYNC_OP(cuMemcpyAtoD_v2##S, PT, C, plain(dst, 0, n, 0), (CUdeviceptr dst, CUarray src, size_t at, size_t n), (dst, src, at, n), NOTHING) \
	SYNC_OP(cuMemcpyHtoA_v2##S, PT, C, plain(0, HOST_SRC(src), n, TT_EVENTF_HOST_SRC), (CUarray dst, size_t at, const void *src, size_t n), (dst, at, src, n), NOTHING) \
	SYNC_OP(cuMemcpyAtoH_v2##S, PT, C, plain(HOST_SRC(dst), 0, n, TT_EVENTF_HOST_DST), (void *dst, CUarray src, size_t at, size_t n), (dst, src, at, n), NOTHING) \
	SYNC_OP(cuMemcpyAtoA_v2##S, PT, C, plain(0, 0, n, 0), (CUarray dst, size_t to, CUarray src, size_t from, size_t n), (dst, to, src, from, n), NOTHING) \
	SYNC_OP(cuMemcpy2D_v2##S, PT, C, copy_2d(c), (const CUDA_MEMCPY2D *c), (c), touch_pitched(&op)) \
	SYNC_OP(cuMemcpy2DUnaligned_v2##S, PT, C, copy_2d(c), (const CUDA_MEMCPY2D *c), (c), touch_pitched(&op)) \
	SYNC_OP(cuMemcpy3D_v2##S, PT, C, copy_3d(c), (const CUDA_MEMCPY3D *c), (c), touch_pitched(&op)) \
	SYNC_OP(cuMemsetD8_v2##S, PT, M, set(dst, v, 1, n), (CUdeviceptr dst, unsigned char v, size_t n), (dst, v, n), NOTHING) \
	SYNC_OP(cuMemsetD16_v2##S, PT, M, set(dst, v, 2, n), (CUdeviceptr dst, unsigned short v, size_t n), (dst, v, n), NOTHING) \
	SYNC_OP(cuMemsetD32_v2##S, PT, M, set(dst, v, 4, n), (CUdeviceptr dst, unsigned int v, size_t n), (dst, v, n), NOTHING) \
	SYNC_OP(cuMemsetD2D8_v2##S, PT, M, set_2d(dst, pitch, v, 1, w, h), (CUdeviceptr dst, size_t pitch, unsigned char v, size_t w, size_t h), (dst, pitch, v, w, h), NOTHING) \
	SYNC_OP(cuMemsetD2D16_v2##S, PT, M, set_2d(dst, pitch, v, 2, w, h), (CUdeviceptr dst, size_t pitch, unsigned short v, size_t w, size_t h), (dst, pitch, v, w, h), NOTHING) \
	SYNC_OP(cuMemsetD2D32_v2##S, PT, M, set_2d(dst, pitch, v, 4, w, h), (CUdeviceptr dst, size_t pitch, unsigned int v, size_t w, size_t h), (dst, pitch, v, w, h), NOTHING)

#define ASYNC_OPS(S, PT) \
	DEVICE_OP(cuMemcpyAsync##S, cuMemcpyPeerAsync##S, PT, stream, false, (CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream stream), (dst, src, n, stream), (dst, dst_context, src, src_context, n, stream)) \
	ASYNC_OP(cuMemcpyPeerAsync##S, PT, C, plain(dst, src, n, TT_EVENTF_PEER), (CUdeviceptr dst, CUcontext dc, CUdeviceptr src, CUcontext sc, size_t n, CUstream stream), (dst, dc, src, sc, n, stream), touch_pitched(&op)) \
	ASYNC_OP(cuMemcpy3DPeerAsync##S, PT, C, copy_3d_peer(c), (const CUDA_MEMCPY3D_PEER *c, CUstream stream), (c, stream), touch_pitched(&op)) \
	HOST_OP(cuMemcpyHtoDAsync_v2##S, cuMemcpy3DPeerAsync##S, PT, stream, false, false, plain(dst, HOST_SRC(src), n, TT_EVENTF_HOST_SRC), (CUdeviceptr dst, const void *src, size_t n, CUstream stream), (dst, src, n, stream), (&named, stream)) \
	HOST_OP(cuMemcpyDtoHAsync_v2##S, cuMemcpy3DPeerAsync##S, PT, stream, false, true, plain(HOST_SRC(dst), src, n, TT_EVENTF_HOST_DST), (void *dst, CUdeviceptr src, size_t n, CUstream stream), (dst, src, n, stream), (&named, stream)) \
	DEVICE_OP(cuMemcpyDtoDAsync_v2##S, cuMemcpyPeerAsync##S, PT, stream, false, (CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream stream), (dst, src, n, stream), (dst, dst_context, src, src_context, n, stream)) \
	ASYNC_OP(cuMemcpyHtoAAsync_v2##S, PT, C, plain(0, HOST_SRC(src), n, TT_EVENTF_HOST_SRC), (CUarray dst, size_t at, const void *src, size_t n, CUstream stream), (dst, at, src, n, stream), NOTHING) \
	ASYNC_OP(cuMemcpyAtoHAsync_v2##S, PT, C, plain(HOST_SRC(dst), 0, n, TT_EVENTF_HOST_DST), (void *dst, CUarray src, size_t at, size_t n, CUstream stream), (dst, src, at, n, stream), NOTHING) \
	ASYNC_OP(cuMemcpy2DAsync_v2##S, PT, C, copy_2d(c), (const CUDA_MEMCPY2D *c, CUstream stream), (c, stream), touch_pitched(&op)) \
	ASYNC_OP(cuMemcpy3DAsync_v2##S, PT, C, copy_3d(c), (const CUDA_MEMCPY3D *c, CUstream stream), (c, stream), touch_pitched(&op)) \
	ASYNC_OP(cuMemcpyBatchAsync##S, PT, C, plain(0, 0, 0, 0), (CUdeviceptr *dst, CUdeviceptr *src, size_t *n, size_t count, CUmemcpyAttributes *a, size_t *ai, size_t na, size_t *fail, CUstream stream), (dst, src, n, count, a, ai, na, fail, stream), touch_pitched(&op)) \
	ASYNC_OP(cuMemcpyBatchAsync_v2##S, PT, C, plain(0, 0, 0, 0), (CUdeviceptr *dst, CUdeviceptr *src, size_t *n, size_t count, CUmemcpyAttributes *a, size_t *ai, size_t na, CUstream stream), (dst, src, n, count, a, ai, na, stream), touch_pitched(&op)) \
	ASYNC_OP(cuMemcpy3DBatchAsync##S, PT, C, plain(0, 0, 0, 0), (size_t count, CUDA_MEMCPY3D_BATCH_OP *list, size_t *fail, unsigned long long flags, CUstream stream), (count, list, fail, flags, stream), touch_pitched(&op)) \
	ASYNC_OP(cuMemcpy3DBatchAsync_v2##S, PT, C, plain(0, 0, 0, 0), (size_t count, CUDA_MEMCPY3D_BATCH_OP *list, unsigned long long flags, CUstream stream), (count, list, flags, stream), touch_pitched(&op)) \
	ASYNC_OP(cuMemBatchDecompressAsync##S, PT, C, plain(0, 0, 0, 0), (CUmemDecompressParams *list, size_t count, unsigned flags, size_t *fail, CUstream stream), (list, count, flags, fail, stream), touch_pitched(&op)) \
	ASYNC_OP(cuMemDiscardBatchAsync##S, PT, M, plain(0, 0, 0, 0), (CUdeviceptr *p, size_t *n, size_t count, unsigned long long flags, CUstream stream), (p, n, count, flags, stream), touch_pitched(&op)) \
	ASYNC_OP(cuMemDiscardAndPrefetchBatchAsync##S, PT, M, plain(0, 0, 0, 0), (CUdeviceptr *p, size_t *n, size_t count, CUmemLocation *to, size_t *ti, size_t nt, unsigned long long flags, CUstream stream), (p, n, count, to, ti, nt, flags, stream), touch_pitched(&op)) \
	ASYNC_OP(cuMemsetD8Async##S, PT, M, set(dst, v, 1, n), (CUdeviceptr dst, unsigned char v, size_t n, CUstream stream), (dst, v, n, stream), NOTHING) \
	ASYNC_OP(cuMemsetD16Async##S, PT, M, set(dst, v, 2, n), (CUdeviceptr dst, unsigned short v, size_t n, CUstream stream), (dst, v, n, stream), NOTHING) \
	ASYNC_OP(cuMemsetD32Async##S, PT, M, set(dst, v, 4, n), (CUdeviceptr dst, unsigned int v, size_t n, CUstream stream), (dst, v, n, stream), NOTHING) \
	ASYNC_OP(cuMemsetD2D8Async##S, PT, M, set_2d(dst, pitch, v, 1, w, h), (CUdeviceptr dst, size_t pitch, unsigned char v, size_t w, size_t h, CUstream stream), (dst, pitch, v, w, h, stream), NOTHING) \
	ASYNC_OP(cuMemsetD2D16Async##S, PT, M, set_2d(dst, pitch, v, 2, w, h), (CUdeviceptr dst, size_t pitch, unsigned short v, size_t w, size_t h, CUstream stream), (dst, pitch, v, w, h, stream), NOTHING) \
	ASYNC_OP(cuMemsetD2D32Async##S, PT, M, set_2d(dst, pitch, v, 4, w, h), (CUdeviceptr dst, size_t pitch, unsigned int v, size_t w, size_t h, CUstream stream), (dst, pitch, v, w, h, stream), NOTHING)

SYNC_OPS(, false)
SYNC_OPS(_ptds, true)
ASYNC_OPS(, false)
ASYNC_OPS(_ptsz, true)
