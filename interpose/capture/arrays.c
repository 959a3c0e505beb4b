/*
 * Copies arrays. See arrays.h for the invariant.
 */
#include "capture/arrays.h"

#include <pthread.h>
#include <stdlib.h>

#include "array_items.h"
#include "session/session.h"

#define SPARSE 0x40u /* flags of arrays without memory of their own */
#define DEFERRED 0x80u

struct array {
	CUarray handle; /* NULL: spare memory */
	const struct context *context;
	struct memory memory;
	CUDA_MEMCPY3D copy;
	uint64_t size;
	bool dead; /* its region may live on */
	struct array *next;
};

static struct {
	struct array *list;
	pthread_mutex_t lock;
} arrays = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool describe(CUarray handle, CUDA_MEMCPY3D *copy, uint64_t *size)
{
	CUDA_ARRAY3D_DESCRIPTOR d;

	if (real.cuArray3DGetDescriptor_v2(&d, handle) != CUDA_SUCCESS || d.Flags & (SPARSE | DEFERRED))
		return false;
	size_t row = d.Width * d.NumChannels * array_channel_bytes(d.Format);
	size_t height = d.Height ? d.Height : 1, depth = d.Depth ? d.Depth : 1;
	*copy = (CUDA_MEMCPY3D){
		.srcMemoryType = CU_MEMORYTYPE_ARRAY,
		.srcArray = handle,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstPitch = row,
		.dstHeight = height,
		.WidthInBytes = row,
		.Height = height,
		.Depth = depth,
	};
	*size = (uint64_t)row * height * depth;
	return *size != 0;
}

/* A spare of this size, or a new one with memory; NULL: no memory. Caller holds the lock. */
static struct array *with_memory(struct context *c, uint64_t size)
{
	struct array *a = arrays.list;

	while (a && (a->handle || a->dead || a->context != c || a->size != size))
		a = a->next;
	if (a || !(a = calloc(1, sizeof(*a))))
		return a;
	if (!capture_memory_of(c, &a->memory, size, false)) {
		free(a);
		return NULL;
	}
	a->context = c;
	a->size = size;
	a->next = arrays.list;
	arrays.list = a;
	return a;
}

bool array_born(struct thread *t, struct context *c, CUarray handle, uint64_t *base, uint64_t *size)
{
	CUDA_MEMCPY3D copy;
	struct array *a = NULL;
	uint64_t bytes;

	CUstreamCaptureMode mode = recorder_work_begin(t);
	if (describe(handle, &copy, &bytes)) {
		pthread_mutex_lock(&arrays.lock);
		if ((a = with_memory(c, bytes))) {
			copy.dstDevice = a->memory.device;
			a->copy = copy;
			a->handle = handle;
			*base = a->memory.device;
			*size = bytes;
		}
		pthread_mutex_unlock(&arrays.lock);
	}
	recorder_work_end(t, mode);
	if (!a)
		session_lost("the contents of an array are not captured: its format is unknown, or there is no memory");
	return a;
}

uint64_t array_dies(CUarray handle)
{
	uint64_t base = 0;

	pthread_mutex_lock(&arrays.lock);
	for (struct array *a = arrays.list; a && !base; a = a->next)
		if (a->handle == handle) {
			a->handle = NULL;
			a->dead = true;
			base = a->memory.device;
		}
	pthread_mutex_unlock(&arrays.lock);
	return base;
}

void array_died(uint64_t base)
{
	pthread_mutex_lock(&arrays.lock);
	for (struct array *a = arrays.list; a; a = a->next)
		a->dead &= a->memory.device != base;
	pthread_mutex_unlock(&arrays.lock);
}

bool arrays_copy(const struct capture *p)
{
	bool good = true;

	pthread_mutex_lock(&arrays.lock);
	for (const struct array *a = arrays.list; a && good; a = a->next)
		if (a->handle && a->context == p->context)
			good = real.cuMemcpy3DAsync_v2(&a->copy, p->stream) == CUDA_SUCCESS;
	pthread_mutex_unlock(&arrays.lock);
	return good;
}

void arrays_context_gone(const struct context *c)
{
	pthread_mutex_lock(&arrays.lock);
	for (struct array **at = &arrays.list, *a; (a = *at);) {
		if (a->context == c) {
			*at = a->next;
			free(a); /* its memory goes with the context */
		} else {
			at = &a->next;
		}
	}
	pthread_mutex_unlock(&arrays.lock);
}

void arrays_forget(void)
{
	pthread_mutex_init(&arrays.lock, NULL);
	arrays.list = NULL;
}
