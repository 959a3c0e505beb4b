/*
 * Memory pools whose allocations the arena serves.
 *
 * Invariant: a pool stays a valid pointer, because blocks refer to it. A destroyed pool is reused
 * when it has no blocks left.
 */
#include "arena/arena.h"

#include <pthread.h>
#include <stdlib.h>

#include "arena/free_list.h"

static struct pool *pools;
static struct pool *_Atomic defaults[ARENA_DEVICES]; /* of the devices; NULL: not known */
static _Atomic bool chosen; /* another pool may be a device's current one */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct pool *find(CUmemoryPool handle)
{
	struct pool *p = pools;

	while (p && p->handle != handle)
		p = p->next;
	return p;
}

static struct pool *add(CUmemoryPool handle, CUdevice device)
{
	struct pool *p = find(handle), *gone = pools;

	if (p)
		return p;
	while (gone && (gone->handle || gone->used))
		gone = gone->next;
	if (gone) {
		*gone = (struct pool){.handle = handle, .device = device, .next = gone->next};
		return gone;
	}
	if (!(p = calloc(1, sizeof(*p))))
		return NULL;
	*p = (struct pool){.handle = handle, .device = device, .next = pools};
	return pools = p;
}

struct pool *arena_pool(CUdevice device, CUmemoryPool handle)
{
	struct pool *known = device < ARENA_DEVICES ? atomic_load(&defaults[device]) : NULL;
	CUmemoryPool standard = NULL;

	if (known && (handle ? handle == known->handle : !atomic_load(&chosen)))
		return known;
	if (!handle && (!real.cuDeviceGetMemPool || real.cuDeviceGetMemPool(&handle, device) != CUDA_SUCCESS))
		return NULL;
	bool is_standard = real.cuDeviceGetDefaultMemPool &&
			   real.cuDeviceGetDefaultMemPool(&standard, device) == CUDA_SUCCESS && standard == handle;
	pthread_mutex_lock(&lock);
	struct pool *p = is_standard ? add(handle, device) : find(handle);
	pthread_mutex_unlock(&lock);
	if (is_standard && p && device < ARENA_DEVICES)
		atomic_store(&defaults[device], p);
	return p && p->device == device ? p : NULL;
}

/* The driver serves pools that are exported, limited or not in device memory. */
void arena_pool_made(CUmemoryPool handle, const CUmemPoolProps *properties)
{
	if (properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED || properties->handleTypes ||
	    properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE || properties->maxSize || properties->usage)
		return;
	pthread_mutex_lock(&lock);
	add(handle, properties->location.id);
	pthread_mutex_unlock(&lock);
}

void arena_pool_gone(CUmemoryPool handle)
{
	pthread_mutex_lock(&lock);
	struct pool *p = find(handle);
	if (p)
		p->handle = NULL;
	pthread_mutex_unlock(&lock);
}

void arena_pool_chosen(void)
{
	atomic_store(&chosen, true);
}

void arena_pool_reset(CUdevice device)
{
	if (device < ARENA_DEVICES)
		atomic_store(&defaults[device], NULL);
}

void arena_pool_open(CUmemoryPool handle, CUdevice user, bool open)
{
	uint64_t bit = user >= 0 && user < 64 ? 1ull << user : 0;
	CUdevice device = -1;

	pthread_mutex_lock(&lock);
	struct pool *p = handle ? find(handle) : NULL;
	if (p && !(p->users & bit) == open) {
		p->users ^= bit;
		device = p->device;
	}
	pthread_mutex_unlock(&lock);
	if (device >= 0 && bit)
		arena_open_pools(device, user, open);
}

bool arena_pool_is_closed(CUmemoryPool handle, CUdevice user)
{
	pthread_mutex_lock(&lock);
	const struct pool *p = handle ? find(handle) : NULL;
	bool closed = p && p->device != user && !(user >= 0 && user < 64 && p->users >> user & 1);
	pthread_mutex_unlock(&lock);
	return closed;
}

void arena_pool_took(struct pool *p, uint64_t size, uint64_t room)
{
	pthread_mutex_lock(&lock);
	p->used += size;
	p->reserved += room;
	if (p->used > p->used_high)
		p->used_high = p->used;
	if (p->reserved > p->reserved_high)
		p->reserved_high = p->reserved;
	pthread_mutex_unlock(&lock);
}

void arena_pool_gave(struct pool *p, uint64_t size, uint64_t room)
{
	pthread_mutex_lock(&lock);
	p->used -= size;
	p->reserved -= room;
	pthread_mutex_unlock(&lock);
}

uint64_t arena_pool_usage(CUmemoryPool handle, CUmemPool_attribute attribute)
{
	uint64_t bytes = 0;

	pthread_mutex_lock(&lock);
	const struct pool *p = handle ? find(handle) : NULL;
	if (p && attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
		bytes = p->used;
	else if (p && attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
		bytes = p->used_high;
	else if (p && attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
		bytes = p->reserved;
	else if (p && attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
		bytes = p->reserved_high;
	pthread_mutex_unlock(&lock);
	return bytes;
}

void arena_pool_lower(CUmemoryPool handle, CUmemPool_attribute attribute)
{
	pthread_mutex_lock(&lock);
	struct pool *p = handle ? find(handle) : NULL;
	if (p && attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
		p->used_high = p->used;
	else if (p && attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
		p->reserved_high = p->reserved;
	pthread_mutex_unlock(&lock);
}

void arena_pool_forget(void)
{
	pthread_mutex_init(&lock, NULL);
}
