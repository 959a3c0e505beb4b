/*
 * Copies in all their forms: each is a box of bytes between two ends, checked at the call and executed in stream
 * order.
 *
 * Invariant: a pageable source is read during the call, and a pageable destination is written before the call
 * returns; so is any host destination with a host source. Everything else is accessed in stream order.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/driver/driver.h"

/* ---- checks ---- */

/* Bytes from the beginning to the end of a box with these strides. */
static bool box_span(size_t width, size_t height, size_t depth, size_t pitch, size_t plane, size_t *span)
{
	size_t rows, planes;

	return !__builtin_mul_overflow(height - 1, pitch, &rows) && !__builtin_mul_overflow(depth - 1, plane, &planes) &&
	       !__builtin_add_overflow(rows, planes, &rows) && !__builtin_add_overflow(rows, width, span);
}

static bool end_offset(const struct copy_end *end, size_t *plane, size_t *offset)
{
	size_t z, y;

	return !__builtin_mul_overflow(end->pitch, end->height, plane) && !__builtin_mul_overflow(end->z, *plane, &z) &&
	       !__builtin_mul_overflow(end->y, end->pitch, &y) && !__builtin_add_overflow(z, y, offset) &&
	       !__builtin_add_overflow(*offset, end->x, offset);
}

static void settle_type(struct copy_end *end)
{
	if (end->type != CU_MEMORYTYPE_UNIFIED)
		return;
	end->type = region_find(end->device) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
	end->host = (unsigned char *)(uintptr_t)end->device;
}

static CUresult check_end(CUcontext ctx, const struct copy *c, struct copy_end *end, bool *pageable)
{
	size_t plane, offset, span;
	struct region *r;

	*pageable = false;
	settle_type(end);
	if (end->type == CU_MEMORYTYPE_ARRAY) {
		if (!handle_is(end->array, HANDLE_ARRAY))
			return CUDA_ERROR_INVALID_HANDLE;
		const struct CUarray_st *a = end->array;
		bool inside = end->x <= a->pitch && c->width <= a->pitch - end->x && end->y <= a->rows &&
			      c->height <= a->rows - end->y && end->z <= a->layers && c->depth <= a->layers - end->z;
		return inside ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	}
	/* Unused strides may be zero. */
	if (c->height == 1 && c->depth == 1 && !end->y && !end->z)
		end->pitch = end->pitch ? end->pitch : c->width;
	if (c->depth == 1 && !end->z && !end->height)
		end->height = end->y + c->height;
	if (end->pitch < c->width || end->x > end->pitch - c->width || (c->depth > 1 && end->height < c->height) ||
	    !end_offset(end, &plane, &offset) || !box_span(c->width, c->height, c->depth, end->pitch, plane, &span))
		return CUDA_ERROR_INVALID_VALUE;
	if (end->type == CU_MEMORYTYPE_DEVICE) {
		if (offset > UINT64_MAX - end->device || !region_span(end->device + offset, span, &r) || !region_usable(r))
			return CUDA_ERROR_INVALID_VALUE;
		/* Mapped memory needs access, unless the copy names its context. */
		return r->kind == REGION_VMM && !c->peers && !access_flags(r, ctx) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	}
	if (end->type != CU_MEMORYTYPE_HOST || !end->host)
		return CUDA_ERROR_INVALID_VALUE;
	r = region_find((uint64_t)(uintptr_t)end->host + offset);
	*pageable = !r;
	if (r && r->kind != REGION_HOST && r->kind != REGION_REGISTERED && r->kind != REGION_MANAGED)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUresult copy_check(CUcontext ctx, struct copy *c, bool *pageable_src, bool *pageable_dst)
{
	CUresult result = check_end(ctx, c, &c->src, pageable_src);

	return result ? result : check_end(ctx, c, &c->dst, pageable_dst);
}

/* ---- execution ---- */

struct box {
	unsigned char *start;
	size_t pitch, plane;
};

static bool box_of(CUcontext ctx, const struct copy *c, const struct copy_end *end, bool write, struct box *box)
{
	struct region_access access = {c->peers ? -1 : ctx->device, UINT64_MAX, write, false, false};
	size_t offset, span;

	if (end->type == CU_MEMORYTYPE_ARRAY) {
		const struct CUarray_st *a = end->array;
		box->pitch = a->pitch;
		box->plane = a->pitch * a->rows;
		box->start = a->memory + end->z * box->plane + end->y * box->pitch + end->x;
		return true;
	}
	box->pitch = end->pitch;
	if (!end_offset(end, &box->plane, &offset) || !box_span(c->width, c->height, c->depth, box->pitch, box->plane, &span))
		return false;
	if (end->type == CU_MEMORYTYPE_HOST)
		box->start = end->host + offset;
	else
		box->start = region_resolve(end->device + offset, span, &access);
	return box->start != NULL;
}

static void move(const struct copy *c, struct box dst, struct box src)
{
	for (size_t z = 0; z < c->depth; z++) {
		for (size_t y = 0; y < c->height; y++)
			memmove(dst.start + z * dst.plane + y * dst.pitch, src.start + z * src.plane + y * src.pitch, c->width);
	}
}

static struct box packed(const struct copy *c, const unsigned char *start)
{
	return (struct box){(unsigned char *)start, c->width, c->width * c->height};
}

CUresult copy_run(CUcontext ctx, const struct copy *c, const unsigned char *staged)
{
	struct box src = packed(c, staged), dst;

	if (sim_settings.slow_copy_us)
		usleep((useconds_t)sim_settings.slow_copy_us);
	if ((!staged && !box_of(ctx, c, &c->src, false, &src)) || !box_of(ctx, c, &c->dst, true, &dst))
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	move(c, dst, src);
	return CUDA_SUCCESS;
}

static unsigned char *stage(CUcontext ctx, const struct copy *c)
{
	unsigned char *staged = sim_alloc(c->width * c->height * c->depth);
	struct box src;

	box_of(ctx, c, &c->src, false, &src);
	move(c, packed(c, staged), src);
	return staged;
}

static void keep_array(struct copy_end *end)
{
	if (end->type == CU_MEMORYTYPE_ARRAY)
		end->array->refs++;
	else
		end->array = NULL;
}

struct sim_work *copy_work(CUcontext ctx, const struct copy *c)
{
	struct sim_work *work = work_new(WORK_COPY, ctx);

	work->copy.copy = *c;
	keep_array(&work->copy.copy.src);
	keep_array(&work->copy.copy.dst);
	return work;
}

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
		work->copy.staged = stage(ctx, &c);
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
