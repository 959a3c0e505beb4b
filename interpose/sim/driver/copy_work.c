/*
 * Copies: checked at the call, executed in stream order.
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

unsigned char *copy_stage(CUcontext ctx, const struct copy *c)
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
