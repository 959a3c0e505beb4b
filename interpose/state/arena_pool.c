/*
 * Memory pools, as far as the arena serves allocations from them.
 *
 * Invariant: a pool once known stays a valid pointer, since blocks refer to it.
 */
#include "arena.h"

#include <pthread.h>
#include <stdlib.h>

static struct pool *pools;
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
	struct pool *p = find(handle);

	if (p || !(p = calloc(1, sizeof(*p))))
		return p;
	p->handle = handle;
	p->device = device;
	p->next = pools;
	return pools = p;
}

struct pool *arena_pool(CUdevice device, CUmemoryPool handle)
{
	CUmemoryPool standard = NULL;

	if (!handle && (!real.cuDeviceGetMemPool || real.cuDeviceGetMemPool(&handle, device) != CUDA_SUCCESS))
		return NULL;
	bool is_standard = real.cuDeviceGetDefaultMemPool &&
			   real.cuDeviceGetDefaultMemPool(&standard, device) == CUDA_SUCCESS && standard == handle;
	pthread_mutex_lock(&lock);
	struct pool *p = is_standard ? add(handle, device) : find(handle);
	pthread_mutex_unlock(&lock);
	return p && p->device == device ? p : NULL;
}

/* Memory that is exported, limited or elsewhere stays the driver's. */
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
		arena_open(device, user, open);
}

void arena_pool_count(struct pool *p, uint64_t taken, uint64_t given)
{
	pthread_mutex_lock(&lock);
	p->used += taken - given;
	if (p->used > p->used_high)
		p->used_high = p->used;
	pthread_mutex_unlock(&lock);
}

bool arena_pool_usage(CUmemoryPool handle, uint64_t *used, uint64_t *high)
{
	pthread_mutex_lock(&lock);
	const struct pool *p = handle ? find(handle) : NULL;
	*used = p ? p->used : 0;
	*high = p ? p->used_high : 0;
	pthread_mutex_unlock(&lock);
	return p != NULL;
}

void arena_pool_forget_high(CUmemoryPool handle)
{
	pthread_mutex_lock(&lock);
	struct pool *p = handle ? find(handle) : NULL;
	if (p)
		p->used_high = p->used;
	pthread_mutex_unlock(&lock);
}
