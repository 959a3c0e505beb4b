/*
 * Allocates and frees device memory at fixed addresses. See arena.h for the invariant.
 */
#include "arena/fill.h"
#include "arena/mapping.h"
#include "arena/parts.h"

#include "arena/share.h"
#include "track/thread.h"

struct arena_state arena_state;
struct arena arena = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool forbidden(CUresult r)
{
	return r >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && r <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

bool arena_capture_matters(void)
{
	if (!atomic_load_explicit(&captures_active, memory_order_relaxed))
		return false;
	CUstreamCaptureMode mode = capture_mode_relax();
	capture_mode_restore(mode);
	return mode != CU_STREAM_CAPTURE_MODE_RELAXED;
}

/* Another stream's capture may forbid the call, or the context is lost. */
static bool driver_must_say(const struct context *c)
{
	return atomic_load_explicit(&c->lost, memory_order_relaxed) || arena_capture_matters();
}

static struct free_list *free_list_of(uint64_t address)
{
	return &arena_range_of(address)->free_list;
}

/* ---- freed memory ---- */

CUresult arena_wait_for(const struct context *c)
{
	CUresult r = real.cuCtxPushCurrent_v2(c->handle);

	if (r != CUDA_SUCCESS)
		return r;
	r = real.cuCtxSynchronize();
	context_pop();
	return r;
}

/* Frees blocks up to the mark, of the context or of one stream; those with zones go to zones_take. */
static void reclaim(struct context *c, const struct stream *s, uint64_t mark)
{
	struct blocks zoned = TAILQ_HEAD_INITIALIZER(zoned);
	bool concern = zones_concern();

	pthread_mutex_lock(&arena.lock);
	for (int i = 0; i < ARENA_DEVICES; i++) {
		struct free_list *p = &arena.ranges[i].free_list;
		for (struct block *b = TAILQ_FIRST(&p->freed), *next; b; b = next) {
			next = TAILQ_NEXT(b, freed);
			if (b->freed_in == c && b->freed_serial <= mark &&
			    (!s || (b->freed_on == s && b->freed_stream == s->id))) {
				if (!concern) {
					free_list_give(p, b);
					continue;
				}
				free_list_set_state(p, b, BLOCK_NEW);
				TAILQ_INSERT_TAIL(&zoned, b, freed);
			}
		}
	}
	pthread_mutex_unlock(&arena.lock);
	zones_take(c, &zoned);
}

void arena_context_waited_for(struct context *c, uint64_t mark)
{
	reclaim(c, NULL, mark);
	arena_retire(c, false);
	arena_drop_row(c);
}

/* Unmaps nothing: an unmap may wait for other streams, which may wait for the host. */
void arena_stream_waited_for(struct stream *s, uint64_t mark)
{
	reclaim(s->context, s, mark);
}

static void wait_and_reclaim(struct context *c)
{
	uint64_t mark = arena_mark();

	if (mark && arena_wait_for(c) == CUDA_SUCCESS) {
		reclaim(c, NULL, mark);
		arena_drop_row(c);
	}
}

bool arena_give_back(struct context *c, bool (*epochs_end)(struct thread *t, struct context *c))
{
	if (!atomic_load(&arena_state.used) || atomic_load(&c->host_bound))
		return false;
	bool waits = !atomic_load(&captures_active);
	if (waits)
		wait_and_reclaim(c);
	if (zones_let_go(true) && (waits ? arena_wait_for(c) == CUDA_SUCCESS : epochs_end(thread_current(), c)))
		zones_let_go(true);
	bool margins = arena_give_margins(c);
	return arena_retire(c, true) || margins;
}

uint64_t arena_block_freed(struct block *b, struct context *c, struct stream *s)
{
	struct free_list *p = free_list_of(b->base);
	uint64_t serial = atomic_fetch_add(&arena_state.serial, 1) + 1;

	b->freed_in = c;
	b->freed_on = s;
	b->freed_stream = s ? s->id : 0;
	b->freed_serial = serial;
	free_list_set_state(p, b, BLOCK_FREED);
	if (!atomic_load(&c->alive)) /* nothing will wait for it */
		free_list_give(p, b);
	return serial;
}

/* ---- allocation ---- */

/* Discards a block that the program did not get; submitted work may still use it. */
static void take_back(struct block *b, struct context *c, struct stream *s)
{
	pthread_mutex_lock(&arena.lock);
	arena_block_freed(b, c, s);
	pthread_mutex_unlock(&arena.lock);
}

/*
 * A new block in mapped memory, not filled yet; s, if not NULL, orders it. guarded: with a guard, if guards are on.
 * ARENA_RENEWED: there is nothing to fill, and it is the program's.
 */
static enum arena_result place(struct context *c, struct stream *s, struct pool *pool, uint64_t size, bool guarded,
			       struct block **out)
{
	struct mapping *fresh = NULL;
	struct block *b = NULL;

	pthread_mutex_lock(&arena.lock);
	struct range *range = arena_range_for(c->device);
	if (range)
		b = free_list_take_freed(&range->free_list, size, c, s, s ? s->id : 0);
	if (range && !b)
		b = free_list_take(&range->free_list, size, guarded, &fresh);
	uint64_t users = range ? range->users : 0;
	if (b) {
		b->context = c;
		b->pool = pool;
		b->stream_ordered = s != NULL;
		b->sync_memops = 0;
		b->id = (1ull << 62) + ++arena.ids; /* the driver's ids begin at 1 */
	}
	bool renewed = b && b->has_zones && options.fill.kind == FILL_KEEP;
	if (renewed)
		free_list_set_state(&range->free_list, b, BLOCK_LIVE);
	pthread_mutex_unlock(&arena.lock);
	*out = b;
	if (renewed)
		return ARENA_RENEWED;
	if (b && options.guard && !free_list_has_guard(&range->free_list, b))
		session_warn("device %d has no memory for more guards: some allocations have none", c->device);
	if (!b || !fresh)
		return b ? ARENA_SERVED : ARENA_NOT;
	CUresult r = arena_map(range, fresh, users);
	pthread_mutex_lock(&arena.lock);
	if (r == CUDA_SUCCESS) {
		fresh->ready = true;
		users ^= range->users;
	} else {
		free_list_give(&range->free_list, b);
		free_list_drop(&range->free_list, fresh);
	}
	pthread_mutex_unlock(&arena.lock);
	if (r == CUDA_ERROR_OUT_OF_MEMORY) /* a guard may be what it has no room for */
		return options.guard && guarded ? place(c, s, pool, size, false, out) : ARENA_SHORT;
	if (r != CUDA_SUCCESS) {
		session_warn("device %d could not map memory at a chosen address: an allocation's address may differ between "
			     "runs",
			     c->device);
		return ARENA_NOT;
	}
	if (users) /* the program gave more devices access meanwhile */
		mapping_set_access(fresh->base, fresh->size, c->device, range->users);
	return ARENA_SERVED;
}

/* Where a block is, and the region that goes on there. */
static struct arena_place place_of(const struct block *b)
{
	return (struct arena_place){b->base, b->has_region ? b->region : TT_NO_ID};
}

static void hand_out(struct block *b, struct arena_place *out)
{
	pthread_mutex_lock(&arena.lock);
	free_list_set_state(free_list_of(b->base), b, BLOCK_LIVE);
	*out = (struct arena_place){b->base, TT_NO_ID};
	pthread_mutex_unlock(&arena.lock);
}

enum arena_result arena_allocate(struct context *c, uint64_t size, struct arena_place *out, CUresult *refused)
{
	struct tt_fill_range ranges[3];
	struct arena_resources *h;
	struct block *b;
	CUdeviceptr none;
	CUresult r;

	if (atomic_load(&c->lost) || !size || !(h = arena_resources_of(c)))
		return ARENA_NOT;
	/* Larger than any device: out of memory where the thread may allocate, else the error of the capture. */
	if (arena_capture_matters() && forbidden(r = real.cuMemAlloc_v2(&none, (size_t)1 << 60))) {
		*refused = r;
		return ARENA_REFUSED;
	}
	enum arena_result result = place(c, NULL, NULL, size, true, &b);
	if (result == ARENA_RENEWED)
		*out = place_of(b);
	if (result != ARENA_SERVED)
		return result;
	if (arena_fill(h, ranges, zones_ranges(b, ranges)) != CUDA_SUCCESS) {
		take_back(b, c, NULL);
		return ARENA_NOT;
	}
	hand_out(b, out);
	return ARENA_SERVED;
}

enum arena_result arena_allocate_async(struct stream *s, CUmemoryPool handle, uint64_t size, struct arena_place *out)
{
	struct context *c = s->context;
	struct tt_fill_range ranges[3];
	struct pool *pool;
	struct block *b;

	if (driver_must_say(c) || !size || !(pool = arena_pool(c->device, handle)))
		return ARENA_NOT;
	enum arena_result result = place(c, s, pool, size, true, &b);
	if (result != ARENA_SERVED && result != ARENA_RENEWED)
		return result;
	arena_pool_took(pool, b->size, b->room);
	if (result == ARENA_RENEWED) {
		*out = place_of(b);
	} else if (arena_fill_in_stream(c, s->handle, ranges, zones_ranges(b, ranges)) == CUDA_SUCCESS) {
		hand_out(b, out);
	} else {
		arena_pool_gave(pool, b->size, b->room);
		take_back(b, c, s);
		result = ARENA_NOT;
	}
	return result;
}

/* ---- frees ---- */

/* Takes a block from the program; no other allocation gets it yet. NULL: no live block begins at p. */
static struct block *withdraw(CUdeviceptr p)
{
	pthread_mutex_lock(&arena.lock);
	struct free_list *list = free_list_of(p);
	struct block *b = free_list_find(list, p);
	if (b && (b->base != p || b->state != BLOCK_LIVE))
		b = NULL;
	if (b)
		free_list_set_state(list, b, BLOCK_NEW);
	pthread_mutex_unlock(&arena.lock);
	if (b && b->pool)
		arena_pool_gave(b->pool, b->size, b->room);
	return b;
}

/* The driver's error for an invalid pointer, or for a thread that may not free. */
static CUresult refusal(void)
{
	CUresult r = real.cuMemFree_v2(ARENA_NOWHERE);

	return r == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : r;
}

CUresult arena_free_begin(CUdeviceptr p, struct block **b)
{
	CUresult r;

	if (arena_capture_matters() && forbidden(r = refusal()))
		return r;
	*b = withdraw(p);
	return *b ? CUDA_SUCCESS : refusal();
}

CUresult arena_free_end(struct context *c, struct block *b)
{
	pthread_mutex_lock(&arena.lock);
	if (atomic_load(&b->context->alive))
		c = b->context;
	uint64_t serial = arena_block_freed(b, c, NULL);
	pthread_mutex_unlock(&arena.lock);
	if (atomic_load(&captures_active))
		return CUDA_SUCCESS; /* no context may be waited for now: a later wait frees the block */
	CUresult r = arena_wait_for(c);
	if (r == CUDA_SUCCESS)
		arena_context_waited_for(c, serial);
	return r;
}

/* A free of nothing gives the driver's error, if any. */
CUresult arena_free_async_begin(struct stream *s, CUdeviceptr p, CUresult (*free_real)(CUdeviceptr, CUstream), CUstream handle,
				struct block **b)
{
	CUresult r = driver_must_say(s->context) ? free_real(0, handle) : CUDA_SUCCESS;

	if (r != CUDA_SUCCESS && r != CUDA_ERROR_INVALID_VALUE)
		return r;
	*b = withdraw(p);
	return *b ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void arena_free_async_end(struct stream *s, struct block *b)
{
	take_back(b, s->context, s);
}

void arena_context_gone(struct context *c, bool primary)
{
	bool used = atomic_load(&arena_state.used);

	if (!c)
		return;
	pthread_mutex_lock(&arena.lock);
	for (int i = 0; used && i < ARENA_DEVICES; i++) {
		struct free_list *p = &arena.ranges[i].free_list;
		for (struct block *b = free_list_next(p, 0), *next; b; b = next) {
			next = free_list_next(p, block_end(b));
			bool live = b->state == BLOCK_LIVE && b->context == c && (primary || !b->stream_ordered);
			if (live && b->pool)
				arena_pool_gave(b->pool, b->size, b->room);
			bool kept = block_is_kept(b->state) && b->context == c;
			if (live || kept || (b->state == BLOCK_FREED && b->freed_in == c))
				free_list_give(p, b);
		}
	}
	arena_resources_gone(c);
	pthread_mutex_unlock(&arena.lock);
	if (!used)
		return;
	arena_retire(c, true);
	if (primary) {
		arena_pool_reset(c->device);
		arena_reserve_anew(c->device);
	}
}

/* ---- queries ---- */

bool arena_find(uint64_t address, struct arena_allocation *found)
{
	pthread_mutex_lock(&arena.lock);
	const struct block *b = free_list_find(free_list_of(address), address);
	bool live = b && b->state == BLOCK_LIVE;
	if (live)
		*found = (struct arena_allocation){
			.base = b->base,
			.size = b->size,
			.id = b->id,
			.mapping = b->mapping->base,
			.mapped = b->mapping->size,
			.context = b->stream_ordered ? NULL : b->context->handle,
			.pool = b->pool ? b->pool->handle : NULL,
			.sync_memops = b->sync_memops,
		};
	pthread_mutex_unlock(&arena.lock);
	return live;
}

bool arena_has_guard(CUdeviceptr base)
{
	pthread_mutex_lock(&arena.lock);
	const struct free_list *list = free_list_of(base);
	const struct block *b = free_list_find(list, base);
	bool has = b && free_list_has_guard(list, b);
	pthread_mutex_unlock(&arena.lock);
	return has;
}

bool arena_set_sync_memops(CUdeviceptr base, unsigned value)
{
	pthread_mutex_lock(&arena.lock);
	struct block *b = free_list_find(free_list_of(base), base);
	bool good = b && b->base == base && b->state == BLOCK_LIVE;
	if (good)
		b->sync_memops = value != 0;
	pthread_mutex_unlock(&arena.lock);
	return good;
}

bool arena_apart(CUdeviceptr a, CUdeviceptr b)
{
	return arena_range_of(a) != arena_range_of(b);
}

CUcontext arena_owner(CUdeviceptr p)
{
	pthread_mutex_lock(&arena.lock);
	const struct block *b = free_list_find(free_list_of(p), p);
	CUcontext owner = b && atomic_load(&b->context->alive) ? b->context->handle : NULL;
	pthread_mutex_unlock(&arena.lock);
	return owner;
}

void arena_forget(void)
{
	pthread_mutex_init(&arena.lock, NULL);
	arena_pool_forget();
	arena_share_forget();
	atomic_store(&arena.held, 0);
	atomic_store(&arena_state.used, false);
	atomic_store(&arena_state.serial, 0);
}
