/*
 * The arena's ranges: reserves them, maps memory in them, and opens them to devices.
 */
#include "arena/mapping.h"
#include "arena/parts.h"

#include <stdlib.h>

#define GUARDS 4 /* small allocations with guards take at most one part in so many of a device's memory */
#define KEPT 4   /* idle memory that stays mapped, with zones: one part in so many */

/* ---- ranges ---- */

/* Reserves `most`, or less if the driver or the process lacks addresses, but at least `least`. */
static uint64_t reserve_at(CUdeviceptr base, uint64_t most, uint64_t least)
{
	CUdeviceptr got;

	for (uint64_t size = most; size >= least && size > ARENA_GRANULE; size /= 2) {
		if (real.cuMemAddressReserve(&got, size, 0, base, 0) != CUDA_SUCCESS)
			continue;
		if (got == base)
			return size;
		real.cuMemAddressFree(got, size);
	}
	return 0;
}

/*
 * Maps memory before the first allocation. The driver has other memory there, so programs that read slightly before
 * an allocation do not fail.
 */
static void map_margin(struct range *range)
{
	struct mapping m = {.base = range->base, .size = ARENA_GRANULE};

	if (range->free_list.granule == ARENA_GRANULE && arena_map(range, &m, 0) == CUDA_SUCCESS)
		range->margin = m.size;
}

static void reserve(CUdevice device)
{
	struct range *range = &arena.ranges[device];
	CUdeviceptr base = ARENA_BASE + (uint64_t)device * ARENA_STRIDE;
	int rdma = 0, files = 0, ipc = 0;
	size_t granule = 0, total = 0;

	range->properties = mapping_properties(device);
	real.cuDeviceGetAttribute(&rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device);
	range->properties.allocFlags.gpuDirectRDMACapable = rdma != 0;
	/* The arena's memory can be shared where the driver's can. */
	real.cuDeviceGetAttribute(&ipc, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, device);
	real.cuDeviceGetAttribute(&files, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device);
	if (ipc && files && real.cuMemExportToShareableHandle && real.cuMemRetainAllocationHandle)
		range->properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	range->state = REFUSED;
	if (!mapping_supported(&range->properties, &granule) || granule < FREE_LIST_LARGE || granule % FREE_LIST_UNIT) {
		session_warn("device %d can't map memory at chosen addresses: its addresses may differ between runs", device);
		return;
	}
	real.cuDeviceTotalMem_v2(&total, device);
	uint64_t asked = options.address_space / granule * granule;
	uint64_t most = asked && asked < ARENA_STRIDE ? asked : ARENA_STRIDE;
	uint64_t size = reserve_at(base, most, asked ? most : 2 * total);
	if (!size) {
		session_warn("the addresses from 0x%llx on are in use: addresses on device %d may differ between runs",
			     (unsigned long long)base, device);
		return;
	}
	uint64_t lead = granule > ARENA_GRANULE ? granule : ARENA_GRANULE;
	range->base = base;
	free_list_begin(&range->free_list, base + lead, size - lead, granule, options.zones);
	if (options.guard)
		free_list_guard(&range->free_list, guard_bytes(options.guard), total / GUARDS);
	range->kept = options.zones ? total / KEPT : 0;
	range->state = RESERVED;
	map_margin(range);
	atomic_store(&arena_state.reserved[device], size);
	atomic_store_explicit(&arena_state.used, true, memory_order_release);
}

struct range *arena_range_for(CUdevice device)
{
	if (device < 0 || device >= ARENA_DEVICES)
		return NULL;
	if (arena.ranges[device].state == UNTRIED)
		reserve(device);
	return arena.ranges[device].state == RESERVED ? &arena.ranges[device] : NULL;
}

void arena_reserve_anew(CUdevice device)
{
	pthread_mutex_lock(&arena.lock);
	struct range *range = device >= 0 && device < ARENA_DEVICES ? &arena.ranges[device] : NULL;
	if (range && range->state == RESERVED && !range->free_list.mapping_count) {
		uint64_t size = atomic_exchange(&arena_state.reserved[device], 0);
		if (range->margin)
			real.cuMemUnmap(range->base, range->margin);
		range->margin = 0;
		real.cuMemAddressFree(range->base, size);
		free_list_end(&range->free_list);
		range->state = UNTRIED;
	}
	pthread_mutex_unlock(&arena.lock);
}

bool arena_exportable(uint64_t address)
{
	return arena_range_of(address)->properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
}

/* ---- mappings ---- */

CUresult arena_map(const struct range *range, const struct mapping *m, uint64_t users)
{
	CUmemAllocationProp properties = range->properties;
	CUstreamCaptureMode mode = capture_mode_relax();

	CUresult r = mapping_make(m->base, m->size, &properties, users);
	if (r != CUDA_SUCCESS && r != CUDA_ERROR_OUT_OF_MEMORY && properties.requestedHandleTypes) {
		properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE; /* the process may lack the permission */
		r = mapping_make(m->base, m->size, &properties, users);
	}
	capture_mode_restore(mode);
	return r;
}

static void unmap(const struct mapping *m)
{
	CUstreamCaptureMode mode = capture_mode_relax();

	real.cuMemUnmap(m->base, m->size);
	capture_mode_restore(mode);
}

static bool host_bound_elsewhere(const struct context *c)
{
	for (struct context *o = context_first(); o; o = atomic_load(&o->next))
		if (o != c && atomic_load(&o->alive) && atomic_load(&o->host_bound))
			return true;
	return false;
}

static bool retire_of(struct range *range, bool all)
{
	struct free_list *p = &range->free_list;
	struct mapping *m;
	bool any = false;

	pthread_mutex_lock(&arena.lock);
	while ((m = free_list_retire(p, all ? 0 : range->kept))) {
		pthread_mutex_unlock(&arena.lock);
		unmap(m);
		any = true;
		pthread_mutex_lock(&arena.lock);
		free_list_drop(p, m);
	}
	pthread_mutex_unlock(&arena.lock);
	return any;
}

bool arena_retire(const struct context *c, bool all)
{
	bool any = false;

	for (int i = 0; i < ARENA_DEVICES && !host_bound_elsewhere(c); i++)
		if (atomic_load(&arena_state.reserved[i]))
			any |= retire_of(&arena.ranges[i], all);
	return any;
}

bool arena_give_margins(const struct context *c)
{
	bool any = false;

	for (int i = 0; i < ARENA_DEVICES && !host_bound_elsewhere(c); i++) {
		pthread_mutex_lock(&arena.lock);
		struct mapping m = {.base = arena.ranges[i].base, .size = arena.ranges[i].margin};
		arena.ranges[i].margin = 0;
		pthread_mutex_unlock(&arena.lock);
		if (m.size)
			unmap(&m);
		any |= m.size != 0;
	}
	return any;
}

uint64_t arena_available(CUdevice device, uint64_t bytes)
{
	if (device >= 0 && device < ARENA_DEVICES && atomic_load(&arena_state.reserved[device])) {
		pthread_mutex_lock(&arena.lock);
		bytes += free_list_idle(&arena.ranges[device].free_list) + arena.ranges[device].margin;
		pthread_mutex_unlock(&arena.lock);
	}
	return bytes / ARENA_GRANULE * ARENA_GRANULE;
}

/* ---- devices ---- */

static bool is_pair(CUdevice device, CUdevice user)
{
	return device >= 0 && device < ARENA_DEVICES && user >= 0 && user < ARENA_DEVICES && device != user;
}

static bool is_open(const unsigned by[OPENERS])
{
	return by[BY_CONTEXT] || by[BY_POOL] || by[BY_COPY];
}

static void open_to(CUdevice device, CUdevice user, bool open, enum opener opener)
{
	struct {
		uint64_t base, size;
	} *list = NULL;
	CUmemAccessDesc access = {
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, user},
		.flags = open ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE,
	};
	size_t n = 0;

	pthread_mutex_lock(&arena.lock);
	struct range *range = &arena.ranges[device];
	unsigned *by = range->opened[user];
	bool was_open = is_open(by);
	if (open)
		by[opener]++;
	else if (by[opener])
		by[opener]--;
	if (is_open(by) != was_open) {
		const struct free_list *p = &range->free_list;
		range->users ^= 1ull << user;
		list = malloc((p->mapping_count + 1) * sizeof(*list));
		for (size_t i = 0; list && i < p->mapping_count; i++) {
			const struct mapping *m = p->mappings[i].mapping;
			if (m->ready) {
				list[n].base = m->base;
				list[n++].size = m->size;
			}
		}
	}
	pthread_mutex_unlock(&arena.lock);
	for (size_t i = 0; i < n; i++)
		real.cuMemSetAccess(list[i].base, list[i].size, &access, 1);
	free(list);
}

void arena_open(CUdevice device, CUdevice user, bool open)
{
	if (is_pair(device, user))
		open_to(device, user, open, BY_CONTEXT);
}

void arena_open_pools(CUdevice device, CUdevice user, bool open)
{
	if (is_pair(device, user))
		open_to(device, user, open, BY_POOL);
}

static CUdevice device_of(CUdeviceptr p)
{
	return arena_range_of(p)->properties.location.id;
}

bool arena_is_closed(CUdevice user, CUdeviceptr p)
{
	struct arena_allocation a;

	if (!is_pair(device_of(p), user))
		return false;
	if (arena_find(p, &a) && a.pool)
		return arena_pool_is_closed(a.pool, user);
	pthread_mutex_lock(&arena.lock);
	bool open = arena.ranges[device_of(p)].opened[user][BY_CONTEXT];
	pthread_mutex_unlock(&arena.lock);
	return !open;
}

/* An access between devices without a connection would fail every later mapping of the range. */
bool arena_bring_near(const struct context *c, CUdeviceptr p)
{
	CUdevice device = device_of(p);
	int can = 0;

	if (!is_pair(device, c->device))
		return true;
	pthread_mutex_lock(&arena.lock);
	bool open = is_open(arena.ranges[device].opened[c->device]);
	pthread_mutex_unlock(&arena.lock);
	if (open)
		return true;
	if (!real.cuDeviceCanAccessPeer || real.cuDeviceCanAccessPeer(&can, c->device, device) != CUDA_SUCCESS || !can)
		return false;
	open_to(device, c->device, true, BY_COPY);
	return true;
}
