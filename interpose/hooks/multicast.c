/*
 * Finds the handles of multicast objects. See multicast.h for the invariant.
 *
 * The handle of an object of another process is imported like any other. But each process adds a
 * device to it before it binds memory or maps it, which identifies it.
 */
#include "hooks/multicast.h"

#include <pthread.h>

#include "util/vector.h"

static struct {
	pthread_mutex_t lock;
	CUmemGenericAllocationHandle *handles;
	size_t count, capacity;
} multicast = {.lock = PTHREAD_MUTEX_INITIALIZER};

static size_t find(CUmemGenericAllocationHandle h)
{
	size_t i = 0;

	while (i < multicast.count && multicast.handles[i] != h)
		i++;
	return i;
}

bool multicast_is(CUmemGenericAllocationHandle h)
{
	pthread_mutex_lock(&multicast.lock);
	bool found = find(h) < multicast.count;
	pthread_mutex_unlock(&multicast.lock);
	return found;
}

void multicast_is_not(CUmemGenericAllocationHandle h)
{
	pthread_mutex_lock(&multicast.lock);
	size_t i = find(h);
	if (i < multicast.count)
		multicast.handles[i] = multicast.handles[--multicast.count];
	pthread_mutex_unlock(&multicast.lock);
}

static void note(CUmemGenericAllocationHandle h)
{
	bool noted = true;

	if (!recording())
		return;
	pthread_mutex_lock(&multicast.lock);
	if (find(h) == multicast.count &&
	    (noted = make_room(&multicast.handles, &multicast.capacity, multicast.count, 1, sizeof(*multicast.handles))))
		multicast.handles[multicast.count++] = h;
	pthread_mutex_unlock(&multicast.lock);
	if (!noted)
		session_fail("no host memory for a multicast object");
}

AFTER(cuMulticastCreate, (CUmemGenericAllocationHandle *object, const CUmulticastObjectProp *prop), (object, prop), note(*object))
AFTER(cuMulticastAddDevice, (CUmemGenericAllocationHandle object, CUdevice d), (object, d), note(object))
AFTER(cuMulticastBindMem, (CUmemGenericAllocationHandle object, size_t at, CUmemGenericAllocationHandle h, size_t o, size_t n, unsigned long long flags), (object, at, h, o, n, flags), note(object))
AFTER(cuMulticastBindAddr, (CUmemGenericAllocationHandle object, size_t at, CUdeviceptr p, size_t n, unsigned long long flags), (object, at, p, n, flags), note(object))
AFTER(cuMemImportFromShareableHandle, (CUmemGenericAllocationHandle *h, void *from, CUmemAllocationHandleType type), (h, from, type), multicast_is_not(*h))
