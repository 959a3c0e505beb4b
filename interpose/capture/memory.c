/*
 * Allocates the recorder's own memory. See memory.h for the invariant.
 *
 * Each context has one range of addresses. Small memory is a part of a slab there, large memory has
 * its own mapping, and an unmapped page follows each mapping.
 */
#include "capture/memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "arena/mapping.h"
#include "session/session.h"
#include "util/vector.h"
#include "track/streams.h"
#include "capture/free_ranges.h"

#define UNIT ((uint64_t)512)            /* alignment, as in the driver */
#define PAGE ((uint64_t)2 << 20)
#define LARGE ((uint64_t)1 << 20)       /* larger memory has its own mapping */
#define GUARD ((uint64_t)1 << 30)       /* unused addresses at both ends of the range */
#define SMALLEST ((uint64_t)64 << 20)   /* smallest range */
#define RANGES_AT 0x240000000000ull     /* a hint: far from addresses that drivers give to programs */
#define RANGES_APART ((uint64_t)1 << 40)
#define RANGES 64

struct area {
	uint64_t base, size;
	bool twice; /* each half is the same memory */
	CUdeviceptr allocation; /* of the driver's allocation that it is a part of; 0: mapped */
};

struct owner {
	const struct context *context;
	uint64_t reserved, reserved_size; /* the range; 0: none */
	bool maps;                        /* areas are in the range; else at addresses of the driver */
	struct free_ranges unmapped;      /* free parts of the range */
	struct free_ranges unused;        /* free parts of the slabs */
	struct area *areas;
	size_t count, room;
	struct owner *next;
};

static struct {
	struct owner *list;
	pthread_mutex_t lock;
} owners = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- ranges ---- */

static bool can_map(const struct owner *o)
{
	CUmemAllocationProp properties = mapping_properties(o->context->device);
	size_t granule;

	return mapping_supported(&properties, &granule) && PAGE % granule == 0;
}

/* Reserves twice the device's memory, or less if the process lacks addresses. */
static void reserve(struct owner *o)
{
	CUdeviceptr wish = RANGES_AT + o->context->index % RANGES * RANGES_APART, got;
	uint64_t size = (2 * (uint64_t)o->context->device_memory + PAGE - 1) / PAGE * PAGE;

	if (size < SMALLEST)
		size = SMALLEST;
	for (; size >= SMALLEST; size = size / 2 / PAGE * PAGE) {
		if (real.cuMemAddressReserve(&got, size + 2 * GUARD, PAGE, wish, 0) != CUDA_SUCCESS)
			continue;
		o->reserved = got;
		o->reserved_size = size + 2 * GUARD;
		o->maps = free_ranges_add(&o->unmapped, got + GUARD, size);
		return;
	}
}

static void do_without(struct owner *o)
{
	o->maps = false;
	session_warn("device %d can't map memory at chosen addresses: the recorder's memory lies between the program's",
		     o->context->device);
}

static struct owner *owner_of(const struct context *c, bool make)
{
	struct owner *o = owners.list;

	while (o && o->context != c)
		o = o->next;
	if (o || !make || !(o = calloc(1, sizeof(*o))))
		return o;
	o->context = c;
	o->next = owners.list;
	owners.list = o;
	if (can_map(o))
		reserve(o);
	if (!o->maps)
		do_without(o);
	return o;
}

/* ---- areas ---- */

static bool area_in_range(struct owner *o, struct area *a)
{
	CUmemAllocationProp properties = mapping_properties(o->context->device);
	CUresult r;

	if (!free_ranges_take(&o->unmapped, a->size + PAGE, &a->base))
		return false;
	r = a->twice ? mapping_make_twice(a->base, a->size / 2, &properties) : mapping_make(a->base, a->size, &properties, 0);
	if (r == CUDA_SUCCESS)
		return true;
	free_ranges_add(&o->unmapped, a->base, a->size + PAGE);
	if (r != CUDA_ERROR_OUT_OF_MEMORY)
		do_without(o);
	return false;
}

/* Has unused pages before and after it. */
static bool area_of_driver(struct area *a)
{
	if (real.cuMemAlloc_v2(&a->allocation, a->size + 2 * PAGE) != CUDA_SUCCESS)
		return false;
	a->base = a->allocation + PAGE;
	return true;
}

static struct area *area_new(struct owner *o, uint64_t size, bool twice)
{
	struct area a = {.size = (size + PAGE - 1) / PAGE * PAGE, .twice = twice};

	if (!make_room(&o->areas, &o->room, o->count, 1, sizeof(*o->areas)) ||
	    ((!o->maps || !area_in_range(o, &a)) && (o->maps || twice || !area_of_driver(&a))))
		return NULL;
	o->areas[o->count] = a;
	return &o->areas[o->count++];
}

static void unmap(const struct area *a)
{
	uint64_t size = a->twice ? a->size / 2 : a->size;

	for (uint64_t at = 0; at < a->size; at += size)
		real.cuMemUnmap(a->base + at, size);
}

static void area_free(struct owner *o, struct area *a)
{
	if (a->allocation) {
		real.cuMemFree_v2(a->allocation);
	} else {
		unmap(a);
		free_ranges_add(&o->unmapped, a->base, a->size + PAGE);
	}
	*a = o->areas[--o->count];
}

static struct area *area_of(const struct owner *o, uint64_t address)
{
	struct area *a = o->areas;

	while (address - a->base >= a->size)
		a++;
	return a;
}

/* ---- memory ---- */

static uint64_t take(struct owner *o, uint64_t size)
{
	struct area *a;
	uint64_t address;

	if (size > LARGE)
		return (a = area_new(o, size, false)) ? a->base : 0;
	size = (size + UNIT - 1) / UNIT * UNIT;
	while (!free_ranges_take(&o->unused, size, &address))
		if (!(a = area_new(o, PAGE, false)) || !free_ranges_add(&o->unused, a->base, a->size))
			return 0;
	return address;
}

static void give(struct owner *o, uint64_t size, CUdeviceptr address)
{
	struct area *a = area_of(o, address);

	if (size <= LARGE) {
		free_ranges_add(&o->unused, address, (size + UNIT - 1) / UNIT * UNIT);
		if (!free_ranges_remove(&o->unused, a->base, a->size))
			return;
	}
	area_free(o, a);
}

bool memory_on_device(struct context *c, struct memory *m, uint64_t size)
{
	pthread_mutex_lock(&owners.lock);
	struct owner *o = owner_of(c, true);
	uint64_t address = o ? take(o, size) : 0;
	pthread_mutex_unlock(&owners.lock);
	*m = (struct memory){.device = address, .size = address ? size : 0};
	return address;
}

bool memory_mirrored(struct context *c, struct memory *m, uint64_t size)
{
	pthread_mutex_lock(&owners.lock);
	struct owner *o = owner_of(c, true);
	struct area *a = o ? area_new(o, 2 * size, true) : NULL;
	*m = a ? (struct memory){.device = a->base, .size = 2 * size} : (struct memory){0};
	pthread_mutex_unlock(&owners.lock);
	return m->device;
}

/*
 * Pages between two inaccessible ones. They are shared, because they must keep their physical address after a fork.
 */
static void *pages_on_host(uint64_t size, uint64_t *mapped)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), inner = (size + page - 1) / page * page;
	char *map = mmap(NULL, inner + 2 * page, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (map == MAP_FAILED)
		return NULL;
	if (!mprotect(map + page, inner, PROT_READ | PROT_WRITE) && real.cuMemHostRegister_v2 &&
	    real.cuMemHostRegister_v2(map + page, inner, CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE) ==
		    CUDA_SUCCESS) {
		*mapped = inner;
		return map + page;
	}
	munmap(map, inner + 2 * page);
	return NULL;
}

static void free_on_host(const struct memory *m)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	if (!m->mapped) {
		real.cuMemFreeHost(m->host);
		return;
	}
	real.cuMemHostUnregister(m->host);
	munmap((char *)m->host - page, m->mapped + 2 * page);
}

bool memory_on_host(struct memory *m, uint64_t size)
{
	*m = (struct memory){.size = size};
	m->host = pages_on_host(size, &m->mapped);
	if (!m->host &&
	    real.cuMemHostAlloc(&m->host, size, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE) != CUDA_SUCCESS) {
		*m = (struct memory){0};
		return false;
	}
	if (real.cuMemHostGetDevicePointer_v2(&m->device, m->host, 0) != CUDA_SUCCESS) {
		free_on_host(m);
		*m = (struct memory){0};
		return false;
	}
	return true;
}

bool memory_anywhere(struct context *c, struct memory *m, uint64_t size, bool host)
{
	return (!host && memory_on_device(c, m, size)) || memory_on_host(m, size);
}

void memory_free(struct context *c, struct memory *m)
{
	if (m->host && !m->lent) {
		free_on_host(m);
	} else if (m->device && !m->lent) {
		pthread_mutex_lock(&owners.lock);
		give(owner_of(c, false), m->size, m->device);
		pthread_mutex_unlock(&owners.lock);
	}
	*m = (struct memory){0};
}

void memory_context_gone(const struct context *c)
{
	pthread_mutex_lock(&owners.lock);
	struct owner **at = &owners.list, *o;
	while ((o = *at) && o->context != c)
		at = &o->next;
	if (o)
		*at = o->next;
	pthread_mutex_unlock(&owners.lock);
	if (!o)
		return;
	for (size_t i = 0; i < o->count; i++)
		if (!o->areas[i].allocation) /* the driver's own were freed with the context */
			unmap(&o->areas[i]);
	if (o->reserved)
		real.cuMemAddressFree(o->reserved, o->reserved_size);
	free_ranges_end(&o->unmapped);
	free_ranges_end(&o->unused);
	free(o->areas);
	free(o);
}

void memory_forget(void)
{
	pthread_mutex_init(&owners.lock, NULL);
	owners.list = NULL;
}
