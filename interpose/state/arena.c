/*
 * Memory at fixed addresses. See arena.h for the invariant.
 *
 * The lock is held while a place is chosen or given up, not while the driver maps, zeroes or
 * waits: what is on its way in (BLOCK_NEW, a mapping that is not ready) is in nobody else's way.
 */
#include "arena.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../capture/capture.h"
#include "../options.h"
#include "../recorder.h"
#include "clock.h"
#include "places.h"

struct range {
	enum { UNTRIED, RESERVED, REFUSED } state;
	struct places places;
	CUmemAllocationProp properties;
	uint64_t users; /* devices whose kernels may reach it, a bit each */
};

/* What we need in a context: zeroing must not wait for, or hold up, a stream of the program. */
struct helper {
	struct context *context;
	CUstream stream;
	uint64_t pitch;  /* the driver's of a row of one byte */
	CUdeviceptr row; /* that row, until a wait makes its free one without a wait */
	struct helper *next;
};

_Atomic uint64_t arena_reserved[ARENA_DEVICES];
_Atomic bool arena_used;
_Atomic uint64_t arena_serial;

static struct range ranges[ARENA_DEVICES];
static unsigned opened[ARENA_DEVICES][ARENA_DEVICES]; /* how often device i is open to device j */
static struct helper *helpers;
static uint64_t last_id = 1ull << 62; /* the driver's own buffer ids begin at 1 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct range *range_of(uint64_t address)
{
	return &ranges[(address - ARENA_BASE) / ARENA_STRIDE];
}

/* For calls of our own: a stream capture of the program forbids nothing. Called again, it undoes itself. */
static void exchange(CUstreamCaptureMode *mode)
{
	real.cuThreadExchangeStreamCaptureMode(mode);
}

static bool forbidden(CUresult r)
{
	return r >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && r <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

/* Whether a stream capture may forbid this thread to allocate and to free: the driver has to be asked. */
static bool capture_matters(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	if (!atomic_load_explicit(&captures_active, memory_order_relaxed))
		return false;
	exchange(&mode);
	CUstreamCaptureMode programs = mode;
	exchange(&mode);
	return programs != CU_STREAM_CAPTURE_MODE_RELAXED;
}

/* ---- ranges and mappings ---- */

static bool can_reserve(CUdevice device, size_t *granule, const CUmemAllocationProp *properties)
{
	int supported = 0;

	return real.cuMemAddressReserve && real.cuMemAddressFree && real.cuMemCreate && real.cuMemRelease &&
	       real.cuMemMap && real.cuMemUnmap && real.cuMemSetAccess && real.cuMemGetAllocationGranularity &&
	       real.cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device) ==
		       CUDA_SUCCESS && supported &&
	       real.cuMemGetAllocationGranularity(granule, properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) ==
		       CUDA_SUCCESS && *granule && PLACES_LARGE <= *granule && *granule % PLACES_UNIT == 0;
}

/* The whole stride; less of it where the driver or the process has not that much, but ample room for the device's memory. */
static uint64_t reserve_at(CUdeviceptr base, uint64_t least)
{
	CUdeviceptr got;

	for (uint64_t size = ARENA_STRIDE; size >= least && size >= ARENA_GRANULE; size /= 2) {
		if (real.cuMemAddressReserve(&got, size, 0, base, 0) != CUDA_SUCCESS)
			continue;
		if (got == base)
			return size;
		real.cuMemAddressFree(got, size);
	}
	return 0;
}

static void reserve(CUdevice device)
{
	struct range *range = &ranges[device];
	CUdeviceptr base = ARENA_BASE + (uint64_t)device * ARENA_STRIDE;
	int rdma = 0;
	size_t granule = 0, total = 0;

	range->properties = (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
	};
	real.cuDeviceGetAttribute(&rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device);
	range->properties.allocFlags.gpuDirectRDMACapable = rdma != 0;
	range->state = REFUSED;
	if (!can_reserve(device, &granule, &range->properties)) {
		recorder_warn("device %d can't map memory at chosen addresses: its addresses may differ between runs",
			      device);
		return;
	}
	real.cuDeviceTotalMem_v2(&total, device);
	uint64_t size = reserve_at(base, 2 * total);
	if (!size) {
		recorder_warn("the addresses from 0x%llx on are taken: those on device %d may differ between runs",
			      (unsigned long long)base, device);
		return;
	}
	range->places = (struct places){.base = base, .size = size, .granule = granule};
	range->state = RESERVED;
	atomic_store(&arena_reserved[device], size);
	atomic_store_explicit(&arena_used, true, memory_order_release);
}

/* Caller holds the lock. NULL: the device's memory is the driver's affair. */
static struct range *range_for(CUdevice device)
{
	if (device < 0 || device >= ARENA_DEVICES)
		return NULL;
	if (ranges[device].state == UNTRIED)
		reserve(device);
	return ranges[device].state == RESERVED ? &ranges[device] : NULL;
}

static CUresult set_access(uint64_t base, uint64_t size, CUdevice owner, uint64_t users)
{
	CUmemAccessDesc access[ARENA_DEVICES];
	size_t n = 0;

	users |= 1ull << owner;
	for (int i = 0; i < ARENA_DEVICES; i++)
		if (users >> i & 1)
			access[n++] = (CUmemAccessDesc){
				.location = {CU_MEM_LOCATION_TYPE_DEVICE, i}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	return real.cuMemSetAccess(base, size, access, n);
}

static void unmap(struct mapping *m)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	exchange(&mode);
	real.cuMemUnmap(m->base, m->size);
	exchange(&mode);
}

static CUresult map(struct range *range, struct mapping *m, uint64_t users)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUmemGenericAllocationHandle handle;

	exchange(&mode);
	CUresult r = real.cuMemCreate(&handle, m->size, &range->properties, 0);
	if (r == CUDA_SUCCESS) {
		r = real.cuMemMap(m->base, m->size, 0, handle, 0);
		real.cuMemRelease(handle); /* the mapping keeps it */
		if (r == CUDA_SUCCESS && (r = set_access(m->base, m->size, range->properties.location.id, users)))
			real.cuMemUnmap(m->base, m->size);
	}
	exchange(&mode);
	return r;
}

/* Takes the lock. Waiting may be part of unmapping: no work may be blocked by then. */
static bool retire_idle(struct range *range)
{
	struct mapping *m;
	bool any = false;

	pthread_mutex_lock(&lock);
	while ((m = places_retire(&range->places))) {
		pthread_mutex_unlock(&lock);
		unmap(m);
		any = true;
		pthread_mutex_lock(&lock);
		places_drop(&range->places, m);
	}
	pthread_mutex_unlock(&lock);
	return any;
}

static bool host_bound_elsewhere(const struct context *c)
{
	for (struct context *o = context_first(); o; o = atomic_load(&o->next))
		if (o != c && atomic_load(&o->alive) && atomic_load(&o->host_bound))
			return true;
	return false;
}

static void retire_all_idle(const struct context *c)
{
	for (int i = 0; i < ARENA_DEVICES && !host_bound_elsewhere(c); i++)
		if (atomic_load(&arena_reserved[i]))
			retire_idle(&ranges[i]);
}

/* ---- helpers ---- */

static uint64_t free_bytes(void)
{
	size_t bytes = 0, total;

	return real.cuMemGetInfo_v2(&bytes, &total) == CUDA_SUCCESS ? bytes : 0;
}

static struct helper *helper_find(const struct context *c)
{
	struct helper *h = helpers;

	while (h && h->context != c)
		h = h->next;
	return h;
}

/* In the current context, which is c. What it takes from the device counts as the recorder's. */
static struct helper *helper_new(struct context *c)
{
	struct helper *h = calloc(1, sizeof(*h));
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	if (!h)
		return NULL;
	h->context = c;
	exchange(&mode);
	uint64_t before = free_bytes();
	bool ok = real.cuStreamCreateWithPriority(&h->stream, CU_STREAM_NON_BLOCKING, -100) == CUDA_SUCCESS;
	atomic_fetch_add(&c->device_bytes, before - free_bytes());
	exchange(&mode);
	if (ok)
		return h;
	free(h);
	return NULL;
}

static struct helper *helper_for(struct context *c)
{
	pthread_mutex_lock(&lock);
	struct helper *h = helper_find(c);
	pthread_mutex_unlock(&lock);
	if (h)
		return h;
	struct helper *made = helper_new(c);
	if (!made)
		return NULL;
	pthread_mutex_lock(&lock);
	if (!(h = helper_find(c))) {
		made->next = helpers;
		h = helpers = made;
	}
	pthread_mutex_unlock(&lock);
	if (h != made) {
		real.cuStreamDestroy_v2(made->stream);
		free(made);
	}
	return h;
}

uint64_t arena_pitch(struct context *c, uint64_t width, unsigned element)
{
	struct helper *h = element == 4 || element == 8 || element == 16 ? helper_for(c) : NULL;
	size_t pitch = 0;
	CUdeviceptr row;

	if (!h || !width || width > ARENA_STRIDE)
		return 0;
	pthread_mutex_lock(&lock);
	pitch = h->pitch;
	pthread_mutex_unlock(&lock);
	if (!pitch) {
		if (capture_matters() || real.cuMemAllocPitch_v2(&row, &pitch, 1, 1, 4) != CUDA_SUCCESS || !pitch)
			return 0;
		pthread_mutex_lock(&lock);
		if (!h->pitch)
			h->row = row;
		h->pitch = pitch;
		atomic_fetch_add(&arena_serial, 1);
		pthread_mutex_unlock(&lock);
	}
	return (width + pitch - 1) / pitch * pitch;
}

/* After a wait for the context. */
static void drop_row(const struct context *c)
{
	CUdeviceptr row = 0;

	pthread_mutex_lock(&lock);
	struct helper *h = helper_find(c);
	if (h) {
		row = h->row;
		h->row = 0;
	}
	pthread_mutex_unlock(&lock);
	if (row)
		real.cuMemFree_v2(row);
}

/* ---- what was freed ---- */

static CUresult wait_for(const struct context *c)
{
	CUcontext popped;
	CUresult r = real.cuCtxPushCurrent_v2(c->handle);

	if (r != CUDA_SUCCESS)
		return r;
	r = real.cuCtxSynchronize();
	real.cuCtxPopCurrent_v2(&popped);
	return r;
}

static void reclaim(const struct context *c, const struct stream *s, uint64_t mark)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < ARENA_DEVICES; i++) {
		struct places *p = &ranges[i].places;
		for (size_t k = p->block_count; p->freed && k-- > 0;) {
			struct block *b = p->blocks[k];
			if (b->state == BLOCK_FREED && b->freed_in == c && b->freed_serial <= mark &&
			    (!s || (b->freed_on == s && b->freed_stream == s->id)))
				places_give(p, b);
		}
	}
	pthread_mutex_unlock(&lock);
}

void arena_waited_for(struct context *c, struct stream *s, uint64_t mark)
{
	reclaim(c, s, mark);
	if (s)
		return; /* other streams may wait for the host, and unmapping for them */
	retire_all_idle(c);
	drop_row(c);
}

/* The device is full: what the program freed, and what lies idle, can be had again. */
static bool make_room(struct context *c, struct range *range)
{
	uint64_t mark = arena_mark();

	if (atomic_load(&captures_active) || atomic_load(&c->host_bound) || host_bound_elsewhere(c))
		return false;
	if (mark && wait_for(c) == CUDA_SUCCESS) {
		reclaim(c, NULL, mark);
		drop_row(c);
	}
	return retire_idle(range);
}

/* Caller holds the lock. */
static void block_freed(struct places *p, struct block *b, struct context *c, struct stream *s)
{
	b->freed_in = c;
	b->freed_on = s;
	b->freed_stream = s ? s->id : 0;
	b->freed_serial = atomic_fetch_add(&arena_serial, 1) + 1;
	places_set_state(p, b, BLOCK_FREED);
}

/* ---- allocation ---- */

/* False, with *r: it did not come to its end within the time the recorder waits for anything. */
static bool zeroed(struct helper *h, const struct block *b, CUresult *r)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	uint64_t deadline = clock_ns() + options.stall_ms * 1000000ull;
	long pause = 0;

	exchange(&mode);
	*r = real.cuMemsetD8Async(b->base, 0, b->room, h->stream);
	while (*r == CUDA_SUCCESS && (*r = real.cuStreamQuery(h->stream)) == CUDA_ERROR_NOT_READY &&
	       clock_ns() < deadline) {
		if (pause)
			nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
		pause = pause ? (pause < 200000 ? pause * 2 : pause) : 1000;
		*r = CUDA_SUCCESS;
	}
	exchange(&mode);
	return *r != CUDA_ERROR_NOT_READY;
}

/* A block that is not handed out after all; work that was submitted may use it. */
static void take_back(struct block *b, struct context *c, struct stream *s)
{
	pthread_mutex_lock(&lock);
	block_freed(&range_of(b->base)->places, b, c, s);
	pthread_mutex_unlock(&lock);
}

/* A new block in mapped memory; ordered by s where it is not NULL, and then zero yet to be made. */
static enum arena_result place(struct context *c, struct stream *s, struct pool *pool, uint64_t size, struct block **out)
{
	for (bool again = false;; again = true) {
		struct mapping *fresh = NULL;
		struct block *b = NULL;

		pthread_mutex_lock(&lock);
		struct range *range = range_for(c->device);
		if (range && s)
			b = places_take_freed(&range->places, size, s, s->id);
		if (range && !b)
			b = places_take(&range->places, size, &fresh);
		uint64_t users = range ? range->users : 0;
		if (b) {
			b->context = c;
			b->pool = pool;
			b->stream_ordered = s != NULL;
			b->sync_memops = 0;
			b->id = ++last_id;
		}
		pthread_mutex_unlock(&lock);
		if (!b)
			return ARENA_NOT;
		*out = b;
		if (!fresh)
			return ARENA_SERVED;
		CUresult r = map(range, fresh, users);
		pthread_mutex_lock(&lock);
		if (r == CUDA_SUCCESS) {
			fresh->ready = true;
			users ^= range->users;
		} else {
			places_give(&range->places, b);
			places_drop(&range->places, fresh);
		}
		pthread_mutex_unlock(&lock);
		if (r == CUDA_SUCCESS) {
			if (users) /* devices came meanwhile */
				set_access(fresh->base, fresh->size, c->device, range->users);
			return ARENA_SERVED;
		}
		if (r != CUDA_ERROR_OUT_OF_MEMORY)
			return ARENA_NOT;
		if (again || !make_room(c, range))
			return ARENA_SHORT;
	}
}

static void hand_out(struct block *b, CUdeviceptr *out)
{
	pthread_mutex_lock(&lock);
	places_set_state(&range_of(b->base)->places, b, BLOCK_LIVE);
	*out = b->base;
	pthread_mutex_unlock(&lock);
}

enum arena_result arena_allocate(struct context *c, uint64_t size, CUdeviceptr *out)
{
	struct helper *h;
	struct block *b;
	CUdeviceptr none;
	CUresult r;

	if (!size || !out || !(h = helper_for(c)))
		return ARENA_NOT;
	/* More than there is: where allocating is allowed, it fails for that. */
	if (capture_matters() && forbidden(real.cuMemAlloc_v2(&none, (size_t)1 << 60)))
		return ARENA_NOT;
	enum arena_result result = place(c, NULL, NULL, size, &b);
	if (result != ARENA_SERVED)
		return result;
	if (!zeroed(h, b, &r))
		recorder_warn("the program's work holds the device up: an allocation's address may differ between runs");
	if (r != CUDA_SUCCESS) {
		take_back(b, c, NULL);
		return ARENA_NOT;
	}
	hand_out(b, out);
	return ARENA_SERVED;
}

enum arena_result arena_allocate_async(struct stream *s, CUmemoryPool handle, uint64_t size, CUdeviceptr *out)
{
	struct context *c = s->context;
	struct pool *pool;
	struct block *b;

	if (!size || !out || !(pool = arena_pool(c->device, handle)))
		return ARENA_NOT;
	enum arena_result result = place(c, s, pool, size, &b);
	if (result != ARENA_SERVED)
		return result;
	if (real.cuMemsetD8Async(b->base, 0, b->room, s->handle) != CUDA_SUCCESS) {
		take_back(b, c, s);
		return ARENA_NOT;
	}
	arena_pool_count(pool, b->room, 0);
	hand_out(b, out);
	return ARENA_SERVED;
}

/* ---- frees ---- */

/* The driver's own error for a pointer that is none, or what else keeps it from freeing. */
static CUresult refusal(void)
{
	CUresult r = real.cuMemFree_v2(ARENA_NOWHERE);

	return r == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : r;
}

CUresult arena_free_begin(struct context *c, CUdeviceptr p, struct arena_free *f)
{
	CUresult r;

	if (capture_matters() && forbidden(r = refusal()))
		return r;
	pthread_mutex_lock(&lock);
	struct places *places = &range_of(p)->places;
	struct block *b = places_find(places, p);
	bool good = b && b->base == p && b->state == BLOCK_LIVE;
	if (good) {
		f->waits_for = atomic_load(&b->context->alive) ? b->context : c;
		block_freed(places, b, f->waits_for, NULL);
		f->serial = b->freed_serial;
		if (b->pool)
			arena_pool_count(b->pool, 0, b->room);
	}
	pthread_mutex_unlock(&lock);
	return good ? CUDA_SUCCESS : refusal();
}

CUresult arena_free_end(const struct arena_free *f)
{
	if (atomic_load(&captures_active))
		return CUDA_SUCCESS; /* no context may be waited for now: a later wait ends it */
	CUresult r = wait_for(f->waits_for);
	if (r == CUDA_SUCCESS)
		arena_waited_for(f->waits_for, NULL, f->serial);
	return r;
}

CUresult arena_free_async(struct stream *s, bool capturing, CUdeviceptr p,
			  CUresult (*free_real)(CUdeviceptr, CUstream), CUstream handle)
{
	CUresult r = free_real(capturing ? p : ARENA_NOWHERE, handle); /* what it says of the stream and the context */

	if (r != CUDA_ERROR_INVALID_VALUE || !s || capturing)
		return r;
	pthread_mutex_lock(&lock);
	struct places *places = &range_of(p)->places;
	struct block *b = places_find(places, p);
	bool good = b && b->base == p && b->state == BLOCK_LIVE && b->stream_ordered;
	if (good) {
		block_freed(places, b, s->context, s);
		arena_pool_count(b->pool, 0, b->room);
	}
	pthread_mutex_unlock(&lock);
	return good ? CUDA_SUCCESS : r;
}

void arena_context_gone(struct context *c, bool primary)
{
	if (!c || !atomic_load(&arena_used))
		return;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < ARENA_DEVICES; i++) {
		struct places *p = &ranges[i].places;
		for (size_t k = p->block_count; k-- > 0;) {
			struct block *b = p->blocks[k];
			bool live = b->state == BLOCK_LIVE && b->context == c && (primary || !b->stream_ordered);
			if (live && b->pool)
				arena_pool_count(b->pool, 0, b->room);
			if (live || (b->state == BLOCK_FREED && b->freed_in == c))
				places_give(p, b);
		}
	}
	for (struct helper **h = &helpers; *h;) {
		struct helper *gone = *h;
		if (gone->context != c) {
			h = &gone->next;
			continue;
		}
		*h = gone->next;
		free(gone);
	}
	pthread_mutex_unlock(&lock);
	retire_all_idle(c);
	/* A reset may end the reservation as well: it is made anew. */
	pthread_mutex_lock(&lock);
	struct range *range = c->device >= 0 && c->device < ARENA_DEVICES ? &ranges[c->device] : NULL;
	if (primary && range && range->state == RESERVED && !range->places.mapping_count) {
		atomic_store(&arena_reserved[c->device], 0);
		real.cuMemAddressFree(range->places.base, range->places.size);
		free(range->places.mappings);
		free(range->places.blocks);
		range->places = (struct places){0};
		range->state = UNTRIED;
	}
	pthread_mutex_unlock(&lock);
}

/* ---- questions ---- */

bool arena_find(uint64_t address, struct arena_allocation *found)
{
	pthread_mutex_lock(&lock);
	const struct block *b = places_find(&range_of(address)->places, address);
	bool live = b && b->state == BLOCK_LIVE;
	if (live)
		*found = (struct arena_allocation){
			.base = b->base, .size = b->size, .id = b->id,
			.context = b->stream_ordered ? NULL : b->context->handle,
			.pool = b->pool ? b->pool->handle : NULL, .sync_memops = b->sync_memops,
		};
	pthread_mutex_unlock(&lock);
	return live;
}

bool arena_set_sync_memops(CUdeviceptr base, unsigned value)
{
	pthread_mutex_lock(&lock);
	struct block *b = places_find(&range_of(base)->places, base);
	bool good = b && b->base == base && b->state == BLOCK_LIVE;
	if (good)
		b->sync_memops = value != 0;
	pthread_mutex_unlock(&lock);
	return good;
}

uint64_t arena_available(CUdevice device, uint64_t bytes)
{
	if (device >= 0 && device < ARENA_DEVICES && atomic_load(&arena_reserved[device])) {
		pthread_mutex_lock(&lock);
		const struct places *p = &ranges[device].places;
		for (size_t i = 0; i < p->mapping_count; i++)
			if (mapping_is_idle(p->mappings[i]))
				bytes += p->mappings[i]->size;
		pthread_mutex_unlock(&lock);
	}
	return bytes / ARENA_GRANULE * ARENA_GRANULE;
}

void arena_open(CUdevice device, CUdevice user, bool open)
{
	struct {
		uint64_t base, size;
	} *list = NULL;
	CUmemAccessDesc access = {
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, user},
		.flags = open ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE,
	};
	size_t n = 0;

	if (device < 0 || device >= ARENA_DEVICES || user < 0 || user >= ARENA_DEVICES || device == user)
		return;
	pthread_mutex_lock(&lock);
	struct range *range = &ranges[device];
	unsigned *times = &opened[device][user];
	bool changes = open ? !(*times)++ : *times && !--*times;
	if (changes) {
		const struct places *p = &range->places;
		range->users ^= 1ull << user;
		list = malloc((p->mapping_count + 1) * sizeof(*list));
		for (size_t i = 0; list && i < p->mapping_count; i++)
			if (p->mappings[i]->ready) {
				list[n].base = p->mappings[i]->base;
				list[n++].size = p->mappings[i]->size;
			}
	}
	pthread_mutex_unlock(&lock);
	for (size_t i = 0; i < n; i++)
		real.cuMemSetAccess(list[i].base, list[i].size, &access, 1);
	free(list);
}

bool arena_contexts(CUdeviceptr a, CUdeviceptr b, CUcontext *of_a, CUcontext *of_b)
{
	if (range_of(a) == range_of(b))
		return false;
	pthread_mutex_lock(&lock);
	const struct block *x = places_find(&range_of(a)->places, a), *y = places_find(&range_of(b)->places, b);
	bool far = x && y && atomic_load(&x->context->alive) && atomic_load(&y->context->alive);
	*of_a = far ? x->context->handle : NULL;
	*of_b = far ? y->context->handle : NULL;
	pthread_mutex_unlock(&lock);
	return far;
}

void arena_bring_near(struct context *c, CUdeviceptr p)
{
	CUdevice device = range_of(p)->properties.location.id;

	if (device == c->device)
		return;
	pthread_mutex_lock(&lock);
	bool open = c->device < 0 || c->device >= ARENA_DEVICES || opened[device][c->device];
	pthread_mutex_unlock(&lock);
	if (!open)
		arena_open(device, c->device, true);
}

void arena_forget(void)
{
	pthread_mutex_init(&lock, NULL);
	atomic_store(&arena_used, false);
	atomic_store(&arena_serial, 0);
}
