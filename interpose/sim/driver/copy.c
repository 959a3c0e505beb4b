/*
 * The calls that copy: each gives a box of bytes between two ends, which copy_work.c checks and executes in stream
 * order.
 *
 * Invariant: a pageable source is read during the call, and a pageable destination is written before the call
 * returns; so is any host destination with a host source. Everything else is accessed in stream order.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "sim/driver/driver.h"

/* ---- submission ---- */

enum manner {
	WAITS,     /* the call returns when host memory may be reused */
	DEFERS,    /* all in stream order, except pageable memory */
	READS_NOW, /* the source is read during the call */
};

/* Registered and pinned memory too, by host or device address; not managed memory. */
static bool on_host(const struct copy_end *end)
{
	const struct region *r = end->type == CU_MEMORYTYPE_DEVICE ? region_find(end->device) : NULL;

	return end->type == CU_MEMORYTYPE_HOST || (r && (r->kind == REGION_HOST || r->kind == REGION_REGISTERED));
}

static CUresult submit(struct copy c, CUstream handle, enum manner manner)
{
	CUcontext ctx;
	CUstream stream;
	struct sim_op *op;
	bool pageable_src, pageable_dst;
	CUresult result = sim_enter(&ctx);

	if (result)
		return result;
	result = stream_get(ctx, handle, &stream);
	if (result)
		return sim_leave(result);
	if (!c.width || !c.height || !c.depth)
		return sim_leave(CUDA_SUCCESS);
	ctx = stream->ctx;
	result = copy_check(ctx, &c, &pageable_src, &pageable_dst);
	if (!result && manner == WAITS) {
		result = stream_check_legacy(stream);
		if (!result && stream->capture) {
			capture_invalidate(stream->capture);
			result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	}
	if (result)
		return sim_leave(result);
	struct sim_work *work = copy_work(ctx, &c);
	if (!stream->capture && (pageable_src || manner == READS_NOW))
		work->copy.staged = copy_stage(ctx, &c);
	/* Copies from host to host are always synchronous. */
	bool source = on_host(&c.src), destination = on_host(&c.dst);
	bool now = manner == WAITS ? source || destination : source && destination;
	result = stream_submit(stream, work, &op);
	if (!result && op && (pageable_dst || now)) {
		op_wait(op);
		result = ctx->fault;
	}
	return sim_leave(result);
}

static struct copy_end host_end(const void *p)
{
	return (struct copy_end){.type = CU_MEMORYTYPE_HOST, .host = (unsigned char *)(uintptr_t)p};
}

static struct copy_end device_end(CUdeviceptr address)
{
	return (struct copy_end){.type = CU_MEMORYTYPE_DEVICE, .device = address};
}

static struct copy_end unified_end(CUdeviceptr address)
{
	return (struct copy_end){.type = CU_MEMORYTYPE_UNIFIED, .device = address};
}

static struct copy_end array_end(CUarray array, size_t offset)
{
	return (struct copy_end){.type = CU_MEMORYTYPE_ARRAY, .array = array, .x = offset};
}

static struct copy linear(struct copy_end dst, struct copy_end src, size_t size)
{
	return (struct copy){.dst = dst, .src = src, .width = size, .height = 1, .depth = 1};
}

/* Ends of type 0 are refused when the copy is checked. */
static struct copy from_2d(const CUDA_MEMCPY2D *p)
{
	if (!p)
		return (struct copy){.width = 1, .height = 1, .depth = 1};
	return (struct copy){
		.src = {p->srcMemoryType, (unsigned char *)(uintptr_t)p->srcHost, p->srcDevice, p->srcArray, p->srcXInBytes,
			p->srcY, 0, p->srcPitch, 0},
		.dst = {p->dstMemoryType, p->dstHost, p->dstDevice, p->dstArray, p->dstXInBytes, p->dstY, 0, p->dstPitch, 0},
		.width = p->WidthInBytes,
		.height = p->Height,
		.depth = 1,
	};
}

struct copy copy_from_3d(const CUDA_MEMCPY3D *p)
{
	if (!p || p->srcLOD || p->dstLOD)
		return (struct copy){.width = 1, .height = 1, .depth = 1};
	return (struct copy){
		.src = {p->srcMemoryType, (unsigned char *)(uintptr_t)p->srcHost, p->srcDevice, p->srcArray, p->srcXInBytes,
			p->srcY, p->srcZ, p->srcPitch, p->srcHeight},
		.dst = {p->dstMemoryType, p->dstHost, p->dstDevice, p->dstArray, p->dstXInBytes, p->dstY, p->dstZ, p->dstPitch,
			p->dstHeight},
		.width = p->WidthInBytes,
		.height = p->Height,
		.depth = p->Depth,
	};
}

CUDA_MEMCPY3D copy_to_3d(const struct copy *c)
{
	return (CUDA_MEMCPY3D){
		.srcXInBytes = c->src.x,
		.srcY = c->src.y,
		.srcZ = c->src.z,
		.srcMemoryType = c->src.type,
		.srcHost = c->src.host,
		.srcDevice = c->src.device,
		.srcArray = c->src.array,
		.srcPitch = c->src.pitch,
		.srcHeight = c->src.height,
		.dstXInBytes = c->dst.x,
		.dstY = c->dst.y,
		.dstZ = c->dst.z,
		.dstMemoryType = c->dst.type,
		.dstHost = c->dst.host,
		.dstDevice = c->dst.device,
		.dstArray = c->dst.array,
		.dstPitch = c->dst.pitch,
		.dstHeight = c->dst.height,
		.WidthInBytes = c->width,
		.Height = c->height,
		.Depth = c->depth,
	};
}

/* The peer form has contexts in place of reserved members, and the same meaning. */
static struct copy from_peer(const CUDA_MEMCPY3D_PEER *p)
{
	CUDA_MEMCPY3D plain;

	_Static_assert(sizeof plain == sizeof *p, "same members in the same places");
	if (!p)
		return copy_from_3d(NULL);
	memcpy(&plain, p, sizeof plain);
	return copy_from_3d(&plain);
}

CUstream own_stream(CUstream handle)
{
	return handle ? handle : CU_STREAM_PER_THREAD;
}

/* ---- calls: each in the legacy default stream and, by suffix, in the thread's own ---- */

#define WAITING(name, parameters, copy) \
	CUresult name parameters \
	{ \
		return submit(copy, CU_STREAM_LEGACY, WAITS); \
	} \
	CUresult name##_ptds parameters \
	{ \
		return submit(copy, CU_STREAM_PER_THREAD, WAITS); \
	}
#define DEFERRED(name, parameters, copy) \
	CUresult name parameters \
	{ \
		return submit(copy, stream, DEFERS); \
	} \
	CUresult name##_ptsz parameters \
	{ \
		return submit(copy, own_stream(stream), DEFERS); \
	}

WAITING(cuMemcpy, (CUdeviceptr dst, CUdeviceptr src, size_t size),
	linear(unified_end(dst), unified_end(src), size))
WAITING(cuMemcpyHtoD_v2, (CUdeviceptr dst, const void *src, size_t size),
	linear(device_end(dst), host_end(src), size))
WAITING(cuMemcpyDtoH_v2, (void *dst, CUdeviceptr src, size_t size),
	linear(host_end(dst), device_end(src), size))
WAITING(cuMemcpyDtoD_v2, (CUdeviceptr dst, CUdeviceptr src, size_t size),
	linear(device_end(dst), device_end(src), size))
WAITING(cuMemcpyDtoA_v2, (CUarray dst, size_t offset, CUdeviceptr src, size_t size),
	linear(array_end(dst, offset), device_end(src), size))
WAITING(cuMemcpyAtoD_v2, (CUdeviceptr dst, CUarray src, size_t offset, size_t size),
	linear(device_end(dst), array_end(src, offset), size))
WAITING(cuMemcpyHtoA_v2, (CUarray dst, size_t offset, const void *src, size_t size),
	linear(array_end(dst, offset), host_end(src), size))
WAITING(cuMemcpyAtoH_v2, (void *dst, CUarray src, size_t offset, size_t size),
	linear(host_end(dst), array_end(src, offset), size))
WAITING(cuMemcpyAtoA_v2, (CUarray dst, size_t dst_offset, CUarray src, size_t src_offset, size_t size),
	linear(array_end(dst, dst_offset), array_end(src, src_offset), size))
WAITING(cuMemcpy2D_v2, (const CUDA_MEMCPY2D *p), from_2d(p))
WAITING(cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D *p), from_2d(p))
WAITING(cuMemcpy3D_v2, (const CUDA_MEMCPY3D *p), copy_from_3d(p))

DEFERRED(cuMemcpyAsync, (CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream),
	linear(unified_end(dst), unified_end(src), size))
DEFERRED(cuMemcpyHtoDAsync_v2, (CUdeviceptr dst, const void *src, size_t size, CUstream stream),
	linear(device_end(dst), host_end(src), size))
DEFERRED(cuMemcpyDtoHAsync_v2, (void *dst, CUdeviceptr src, size_t size, CUstream stream),
	linear(host_end(dst), device_end(src), size))
DEFERRED(cuMemcpyDtoDAsync_v2, (CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream),
	linear(device_end(dst), device_end(src), size))
DEFERRED(cuMemcpyHtoAAsync_v2, (CUarray dst, size_t offset, const void *src, size_t size, CUstream stream),
	linear(array_end(dst, offset), host_end(src), size))
DEFERRED(cuMemcpyAtoHAsync_v2, (void *dst, CUarray src, size_t offset, size_t size, CUstream stream),
	linear(host_end(dst), array_end(src, offset), size))
DEFERRED(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *p, CUstream stream), from_2d(p))
DEFERRED(cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D *p, CUstream stream), copy_from_3d(p))

/* ---- between contexts ---- */

static CUresult submit_peer(struct copy c, CUcontext dst, CUcontext src, CUstream stream, enum manner manner)
{
	CUcontext ctx;

	ENTER(sim_enter(&ctx));
	bool alive = context_alive(dst) && context_alive(src);
	c.peers = true;
	sim_leave(CUDA_SUCCESS);
	return alive ? submit(c, stream, manner) : CUDA_ERROR_INVALID_CONTEXT;
}

#define PEERS(call, parameters, copy, dst, src) \
	CUresult call parameters \
	{ \
		return submit_peer(copy, dst, src, CU_STREAM_LEGACY, WAITS); \
	} \
	CUresult call##_ptds parameters \
	{ \
		return submit_peer(copy, dst, src, CU_STREAM_PER_THREAD, WAITS); \
	}
#define PEERS_DEFERRED(call, parameters, copy, dst, src) \
	CUresult call parameters \
	{ \
		return submit_peer(copy, dst, src, stream, DEFERS); \
	} \
	CUresult call##_ptsz parameters \
	{ \
		return submit_peer(copy, dst, src, own_stream(stream), DEFERS); \
	}

PEERS(cuMemcpyPeer, (CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx, size_t size),
	linear(device_end(dst), device_end(src), size), dst_ctx, src_ctx)
PEERS_DEFERRED(cuMemcpyPeerAsync,
	(CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx, size_t size, CUstream stream),
	linear(device_end(dst), device_end(src), size), dst_ctx, src_ctx)
PEERS(cuMemcpy3DPeer, (const CUDA_MEMCPY3D_PEER *p), from_peer(p), p ? p->dstContext : NULL,
	p ? p->srcContext : NULL)
PEERS_DEFERRED(cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D_PEER *p, CUstream stream), from_peer(p),
	p ? p->dstContext : NULL, p ? p->srcContext : NULL)

/* ---- batches ---- */

static bool manner_of(CUmemcpySrcAccessOrder order, enum manner *manner)
{
	*manner = order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL ? READS_NOW : DEFERS;
	return order == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM || order == CU_MEMCPY_SRC_ACCESS_ORDER_ANY ||
	       order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
}

/* *failed gets the index of the refused copy, or SIZE_MAX if no single copy was refused. */
static CUresult batch(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attributes,
		      size_t *first, size_t attribute_count, size_t *failed, CUstream stream)
{
	enum manner manner = DEFERS;
	size_t next = 0;

	*failed = SIZE_MAX;
	if (!dsts || !srcs || !sizes || !count || !attributes || !first || !attribute_count || attribute_count > count ||
	    first[0] || !stream || stream == CU_STREAM_LEGACY)
		return sim_life() ? sim_life() : CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		if (next < attribute_count && first[next] == i && !manner_of(attributes[next++].srcAccessOrder, &manner))
			return CUDA_ERROR_INVALID_VALUE;
		CUresult result = submit(linear(unified_end(dsts[i]), unified_end(srcs[i]), sizes[i]), stream, manner);
		if (result) {
			*failed = i;
			return result;
		}
	}
	return CUDA_SUCCESS;
}

CUresult cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attributes,
			    size_t *first, size_t attribute_count, size_t *failed, CUstream stream)
{
	size_t unused;

	return batch(dsts, srcs, sizes, count, attributes, first, attribute_count, failed ? failed : &unused, stream);
}

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
			       CUmemcpyAttributes *attributes, size_t *first, size_t attribute_count, CUstream stream)
{
	size_t unused;

	return batch(dsts, srcs, sizes, count, attributes, first, attribute_count, &unused, stream);
}

static struct copy_end operand_end(const CUmemcpy3DOperand *operand, const CUextent3D *extent, size_t *element)
{
	struct copy_end end = {0};

	if (operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER) {
		end = unified_end(operand->op.ptr.ptr);
		end.pitch = operand->op.ptr.rowLength;
		end.height = operand->op.ptr.layerHeight ? operand->op.ptr.layerHeight : extent->height;
	} else if (operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
		CUDA_ARRAY3D_DESCRIPTOR known;
		end = array_end(operand->op.array.array, operand->op.array.offset.x);
		end.y = operand->op.array.offset.y;
		end.z = operand->op.array.offset.z;
		if (cuArray3DGetDescriptor_v2(&known, end.array) == CUDA_SUCCESS)
			*element = end.array->element;
	}
	return end;
}

static CUresult batch_3d(size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, size_t *failed, unsigned long long flags, CUstream stream)
{
	*failed = SIZE_MAX;
	if (!count || !ops || flags || !stream || stream == CU_STREAM_LEGACY)
		return sim_life() ? sim_life() : CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		enum manner manner;
		size_t element = 1;
		struct copy c = {.dst = operand_end(&ops[i].dst, &ops[i].extent, &element),
				 .src = operand_end(&ops[i].src, &ops[i].extent, &element),
				 .height = ops[i].extent.height,
				 .depth = ops[i].extent.depth};
		CUresult result = CUDA_ERROR_INVALID_VALUE;
		struct copy_end *ends[] = {&c.dst, &c.src};
		/* Widths and offsets count elements of the array if there is one, else bytes. */
		c.width = ops[i].extent.width * element;
		for (int e = 0; e < 2; e++) {
			ends[e]->x *= element;
			ends[e]->pitch = ends[e]->pitch ? ends[e]->pitch * element : c.width;
		}
		if (manner_of(ops[i].srcAccessOrder, &manner))
			result = submit(c, stream, manner);
		if (result) {
			*failed = i;
			return result;
		}
	}
	return CUDA_SUCCESS;
}

CUresult cuMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, size_t *failed, unsigned long long flags,
			      CUstream stream)
{
	size_t unused;

	return batch_3d(count, ops, failed ? failed : &unused, flags, stream);
}

CUresult cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, unsigned long long flags, CUstream stream)
{
	size_t unused;

	return batch_3d(count, ops, &unused, flags, stream);
}
