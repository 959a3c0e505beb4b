/*
 * Wrappers of allocations and of queries about memory.
 */
#include "hooks/memory.h"

#include "arena/arena.h"
#include "capture/arrays.h"
#include "hooks/multicast.h"
#include "track/copy_sources.h"

static void zones_born(struct context *c, uint64_t base, uint64_t size, uint32_t id, const struct region_origin *origin)
{
	uint64_t start, end;

	if (!options.zones || !arena_zones(base, id, &start, &end))
		return;
	region_born(c, TT_REGION_ZONE, start, base - start, TT_NO_ID, origin);
	region_born(c, TT_REGION_ZONE, base + size, end - base - size, TT_NO_ID, origin);
}

#define NOT_MEMORY 0x80000000u /* added to the kind: reads may have effects */

/* Captures read memory of the host at the program's address. */
static bool device_reads(uint32_t kind, uint64_t base)
{
	CUdeviceptr same;

	return options.host_memory && (kind == TT_REGION_HOST || kind == TT_REGION_HOST_REGISTERED) &&
	       real.cuMemHostGetDevicePointer_v2(&same, (void *)(uintptr_t)base, 0) == CUDA_SUCCESS && same == base;
}

/* The region of new memory. */
static uint32_t region_of(const struct op *op, struct served in_arena, uint32_t kind, uint64_t base, uint64_t size)
{
	struct region_origin origin = op_origin(op);
	bool memory = !(kind & NOT_MEMORY);

	if (in_arena.region != TT_NO_ID)
		return in_arena.region;
	kind = in_arena.kind ? in_arena.kind : kind & ~NOT_MEMORY;
	if (in_arena.kind && options.guard && arena_has_guard(base))
		origin.flags |= TT_REGIONF_GUARDED;
	uint32_t id = region_born(op->context, kind, base, size, TT_NO_ID, &origin);
	if (in_arena.kind && (!in_arena.has_zones || options.regions == REGIONS_ZONES))
		zones_born(op->context, base, size, id, &origin);
	if (memory && device_reads(kind, base))
		regions_set_readable(base, size, true);
	return id;
}

void memory_served(struct op *op, CUresult r, struct served in_arena, uint32_t kind, uint64_t base, uint64_t size)
{
	uint32_t id = TT_NO_ID;

	if (!op->on)
		return;
	if (r == CUDA_SUCCESS && base && size && !op->capturing)
		id = region_of(op, in_arena, kind, base, size);
	RECORD(op, r, TT_EVENT_ALLOC, e->dst = base, e->bytes = size, e->id = id);
	op_end(op, r);
	if (r == CUDA_SUCCESS)
		capture_prepare(op->t, op->context);
}

void memory_born(struct op *op, CUresult r, uint32_t kind, uint64_t base, uint64_t size)
{
	memory_served(op, r, NOT_SERVED, kind, base, size);
}

/* Inside the gate no epoch is being cut: later epochs leave the regions out, and earlier ones are waited for. */
static struct region *die(struct op *op, uint64_t base, uint64_t size, bool (*which)(const struct region *, uint64_t))
{
	struct region_origin origin = op_origin(op);
	struct region *r, *ended = NULL;
	uint64_t contexts = 0;

	if (!op->on)
		return NULL;
	gate_enter(op->t);
	for (uint64_t at = base; at < base + size && (r = region_find(at));) {
		at = r->base + r->size;
		if (!which(r, base) || !region_ended(r, &origin)) {
			region_release(r);
			continue;
		}
		contexts |= context_bit(r->context);
		r->next = ended;
		ended = r;
	}
	gate_leave(op->t);
	op_settle(op->t, contexts);
	return ended;
}

static bool starts_at(const struct region *r, uint64_t base)
{
	return r->base == base;
}

static bool is_mapping(const struct region *r, uint64_t base)
{
	(void)base;
	return r->kind == TT_REGION_VMM;
}

struct region *memory_dies(struct op *op, uint64_t base)
{
	return die(op, base, 1, starts_at);
}

/* The driver did nothing, whatever the memory is. */
static bool refused(CUresult r)
{
	return r == CUDA_ERROR_INVALID_CONTEXT || r == CUDA_ERROR_CONTEXT_IS_DESTROYED ||
	       r == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED || r == CUDA_ERROR_NOT_PERMITTED;
}

/* The memory was not freed, but its region has ended: it becomes another region. */
static void live_on(struct op *op, const struct region *r)
{
	struct region_origin origin = op_origin(op);

	origin.label = r->label;
	region_born(r->context, r->kind, r->base, r->size, r->module, &origin);
	if (r->readable)
		regions_set_readable(r->base, r->size, true);
}

bool memory_give_back(struct op *op)
{
	return arena_give_back(op->context, capture_settle) || capture_give_back(op->t, op->context);
}

bool memory_given_back(struct op *op, CUresult r)
{
	return r == CUDA_ERROR_OUT_OF_MEMORY && (op->on || op_begin_always(op)) && memory_give_back(op);
}

void memory_died(struct op *op, CUresult r, uint64_t base, struct region *ended)
{
	RECORD(op, r, TT_EVENT_FREE, e->dst = base);
	for (struct region *next; ended; ended = next) {
		next = ended->next;
		if (refused(r))
			live_on(op, ended);
		region_release(ended);
	}
}

/* base and size are used only after success. fills: whether --fill applies. */
#define ALLOCATES(symbol, kind, base, size, params, args, fills) \
	EXPORT CUresult CUDAAPI symbol params \
	{ \
		HOOK(op, symbol, op_begin(&op)); \
		CUresult r = real.symbol args; \
		while (memory_given_back(&op, r) || ((fills) && memory_fill(&op, r, r == CUDA_SUCCESS ? (uint64_t)(base) : 0, \
									    r == CUDA_SUCCESS ? (uint64_t)(size) : 0))) \
			r = real.symbol args; \
		memory_born(&op, r, kind, r == CUDA_SUCCESS ? (uint64_t)(base) : 0, r == CUDA_SUCCESS ? (uint64_t)(size) : 0); \
		return r; \
	}

#define REGISTERED(flags) (TT_REGION_HOST_REGISTERED | ((flags) & CU_MEMHOSTREGISTER_IOMEMORY ? NOT_MEMORY : 0))

#define FREES(symbol, type) \
	EXPORT CUresult CUDAAPI symbol(type p) \
	{ \
		HOOK(op, symbol, op_begin_at(&op, (uintptr_t)p)); \
		struct region *ended = memory_dies(&op, (uintptr_t)p); \
		copy_sources_freed((uintptr_t)p); \
		CUresult r = real.symbol(p); \
		memory_died(&op, r, (uintptr_t)p, ended); \
		return r; \
	}

uint64_t memory_range_size(CUdeviceptr p)
{
	CUdeviceptr base;
	size_t size = 0;

	return real.cuMemGetAddressRange_v2(&base, &size, p) == CUDA_SUCCESS ? base + size - p : 0;
}

ALLOCATES(cuMemAllocManaged, TT_REGION_MANAGED, *p, n, (CUdeviceptr *p, size_t n, unsigned flags), (p, n, flags), memory_managed_fills(&op, flags))
ALLOCATES(cuMemAllocHost_v2, TT_REGION_HOST, (uintptr_t)*p, n, (void **p, size_t n), (p, n), false)
ALLOCATES(cuMemHostAlloc, TT_REGION_HOST, (uintptr_t)*p, n, (void **p, size_t n, unsigned flags), (p, n, flags), false)
ALLOCATES(cuMemHostRegister, REGISTERED(flags), (uintptr_t)p, n, (void *p, size_t n, unsigned flags), (p, n, flags), false)
ALLOCATES(cuMemHostRegister_v2, REGISTERED(flags), (uintptr_t)p, n, (void *p, size_t n, unsigned flags), (p, n, flags), false)
ALLOCATES(cuMipmappedArrayCreate, TT_REGION_ARRAY, (uintptr_t)*a, 1, (CUmipmappedArray *a, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned n), (a, d, n), false)
ALLOCATES(cuMemPoolImportPointer, TT_REGION_IPC, *p, memory_range_size(*p), (CUdeviceptr *p, CUmemoryPool pool, CUmemPoolPtrExportData *d), (p, pool, d), false)
ALLOCATES(cuExternalMemoryGetMappedBuffer, TT_REGION_IPC, *p, d->size, (CUdeviceptr *p, CUexternalMemory m, const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *d), (p, m, d), false)
FREES(cuMemFreeHost, void *)
FREES(cuMemHostUnregister, void *)
FREES(cuMipmappedArrayDestroy, CUmipmappedArray)

/* ---- arrays ---- */

/* With --arrays, the region of an array is the recorder's copy of it. */
static void array_made(struct op *op, CUresult r, CUarray *a)
{
	uint64_t base = r == CUDA_SUCCESS ? (uintptr_t)*a : 0, size = 1;
	bool copied = base && op->on && options.arrays && !op->capturing && array_born(op->t, op->context, *a, &base, &size);

	memory_born(op, r, TT_REGION_ARRAY, base, size);
	if (copied)
		regions_set_readable(base, size, true);
}

#define CREATES_ARRAY(symbol, descriptor) \
	EXPORT CUresult CUDAAPI symbol(CUarray *a, const descriptor *d) \
	{ \
		HOOK(op, symbol, op_begin(&op)); \
		CUresult r = real.symbol(a, d); \
		while (memory_given_back(&op, r)) \
			r = real.symbol(a, d); \
		array_made(&op, r, a); \
		return r; \
	}
CREATES_ARRAY(cuArrayCreate_v2, CUDA_ARRAY_DESCRIPTOR)
CREATES_ARRAY(cuArray3DCreate_v2, CUDA_ARRAY3D_DESCRIPTOR)

EXPORT CUresult CUDAAPI cuArrayDestroy(CUarray a)
{
	uint64_t copy = array_dies(a), base = copy ? copy : (uintptr_t)a;

	HOOK(op, cuArrayDestroy, op_begin_at(&op, base));
	struct region *ended = memory_dies(&op, base);
	copy_sources_freed(base);
	CUresult r = real.cuArrayDestroy(a);
	memory_died(&op, r, base, ended);
	if (copy && op.on && r == CUDA_SUCCESS)
		array_died(copy);
	return r;
}

/* The driver would refuse these calls for memory that it allocated itself, so the arena does too. */
#define REFUSED_IN_ARENA(p) \
	if (arena_holds(p)) \
		return CUDA_ERROR_INVALID_VALUE;

EXPORT CUresult CUDAAPI cuMemMap(CUdeviceptr p, size_t n, size_t o, CUmemGenericAllocationHandle h, unsigned long long flags)
{
	REFUSED_IN_ARENA(p)
	HOOK(op, cuMemMap, op_begin(&op));
	CUresult r = real.cuMemMap(p, n, o, h, flags);
	memory_born(&op, r, TT_REGION_VMM, p, multicast_is(h) ? 0 : n);
	return r;
}

EXPORT CUresult CUDAAPI cuMemUnmap(CUdeviceptr p, size_t n)
{
	REFUSED_IN_ARENA(p)
	HOOK(op, cuMemUnmap, op_begin_at(&op, p));
	struct region *ended = die(&op, p, n, is_mapping);
	CUresult r = real.cuMemUnmap(p, n);
	memory_died(&op, r, p, ended);
	return r;
}

/* Access that the call gives to the device of the region: 1 access, 0 none, -1 not named. */
static int access_asked(const struct context *c, const CUmemAccessDesc *d, size_t count)
{
	int asked = -1;

	for (size_t i = 0; c && d && i < count; i++)
		if (d[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE && d[i].location.id == c->device)
			asked = d[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return asked;
}

EXPORT CUresult CUDAAPI cuMemSetAccess(CUdeviceptr p, size_t n, const CUmemAccessDesc *d, size_t count)
{
	REFUSED_IN_ARENA(p)
	HOOK(op, cuMemSetAccess, op_begin_at(&op, p));
	struct context *c = op.on ? region_context(p) : NULL;
	int asked = access_asked(c, d, count);
	if (asked == 0) {
		gate_enter(op.t);
		regions_set_readable(p, n, false);
		gate_leave(op.t);
		capture_settle(op.t, c);
	}
	CUresult r = real.cuMemSetAccess(p, n, d, count);
	if (asked >= 0 && (asked == 1) == (r == CUDA_SUCCESS))
		regions_set_readable(p, n, true);
	return r;
}

#define OUTSIDE_ARENA(symbol, p, params, args) \
	EXPORT CUresult CUDAAPI symbol params \
	{ \
		REFUSED_IN_ARENA(p) \
		HOOK(op, symbol); \
		return real.symbol args; \
	}
OUTSIDE_ARENA(cuMemGetAccess, p, (unsigned long long *flags, const CUmemLocation *l, CUdeviceptr p), (flags, l, p))
OUTSIDE_ARENA(cuMemRetainAllocationHandle, (uintptr_t)p, (CUmemGenericAllocationHandle *h, void *p), (h, p))
OUTSIDE_ARENA(cuMemAddressFree, p, (CUdeviceptr p, size_t n), (p, n))

EXPORT CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *h, size_t n, const CUmemAllocationProp *prop,
				    unsigned long long flags)
{
	HOOK(op, cuMemCreate, op_begin(&op));
	CUresult r = real.cuMemCreate(h, n, prop, flags);
	while (memory_given_back(&op, r) || memory_fill_created(&op, r, r == CUDA_SUCCESS ? *h : 0, n, prop))
		r = real.cuMemCreate(h, n, prop, flags);
	if (r == CUDA_SUCCESS)
		multicast_is_not(*h);
	return r;
}

/* Reports the memory that the program would have without the recorder. */
EXPORT CUresult CUDAAPI cuMemGetInfo_v2(size_t *available, size_t *total)
{
	HOOK(op, cuMemGetInfo_v2);
	CUresult r = real.cuMemGetInfo_v2(available, total);
	if (r == CUDA_SUCCESS && available && total && op_begin_always(&op)) {
		*available += capture_device_bytes(op.context);
		if (*available > *total)
			*available = *total;
		if (options.deterministic)
			*available = arena_available(op.context->device, *available);
	}
	return r;
}
