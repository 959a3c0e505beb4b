/*
 * Device address space: which allocation contains an address, and who may access it.
 *
 * Invariants: regions do not overlap. Device addresses lie in ranges that the process has reserved without
 * access, so host code that dereferences one faults; the simulator accesses each region through its own
 * mapping. The table changes under both the lock and the table lock, so either is enough to read it. A
 * region is removed only while no work runs.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "sim/driver/driver.h"

#define POOL_BASE 0x302000000ull /* where a real driver puts stream-ordered memory */
#define NEAR_BYTES (1u << 20)      /* an address this close after an allocation probably belongs to it */

struct hole {
	uint64_t start, size;
};

/* Reserved addresses. Holes are sorted and never adjacent. */
struct range {
	uint64_t base, size;
	struct hole *holes;
	size_t count, room;
	unsigned char *inside; /* lenient bounds: all its memory, contiguous */
};

static struct range device_ranges[SIM_MAX_DEVICES], pool_ranges[SIM_MAX_DEVICES];
static pthread_rwlock_t table_lock = PTHREAD_RWLOCK_INITIALIZER;
static struct region **table; /* by address */
static size_t table_count, table_room;
static _Atomic uint64_t table_changes = 1;
static unsigned long long last_id;

/* ---- ranges ---- */

static void hole_insert(struct range *range, size_t at, struct hole hole)
{
	if (range->count == range->room) {
		range->room = range->room ? range->room * 2 : 16;
		range->holes = realloc(range->holes, range->room * sizeof *range->holes);
		if (!range->holes)
			abort();
	}
	memmove(range->holes + at + 1, range->holes + at, (range->count - at) * sizeof hole);
	range->holes[at] = hole;
	range->count++;
}

static void hole_remove(struct range *range, size_t at)
{
	range->count--;
	memmove(range->holes + at, range->holes + at + 1, (range->count - at) * sizeof *range->holes);
}

static uint64_t range_take(struct range *range, uint64_t size, uint64_t align)
{
	for (size_t i = 0; i < range->count; i++) {
		struct hole hole = range->holes[i];
		uint64_t start = ROUND_UP(hole.start, align), end = start + size;
		if (end > hole.start + hole.size)
			continue;
		struct hole before = {hole.start, start - hole.start};
		struct hole after = {end, hole.start + hole.size - end};
		hole_remove(range, i);
		if (after.size)
			hole_insert(range, i, after);
		if (before.size)
			hole_insert(range, i, before);
		return start;
	}
	return 0;
}

static void range_give(struct range *range, uint64_t start, uint64_t size)
{
	size_t at = 0;

	while (at < range->count && range->holes[at].start < start)
		at++;
	hole_insert(range, at, (struct hole){start, size});
	if (at + 1 < range->count && start + size == range->holes[at + 1].start) {
		range->holes[at].size += range->holes[at + 1].size;
		hole_remove(range, at + 1);
	}
	if (at > 0 && range->holes[at - 1].start + range->holes[at - 1].size == start) {
		range->holes[at - 1].size += range->holes[at].size;
		hole_remove(range, at);
	}
}

static bool range_setup(struct range *range, uint64_t wanted, uint64_t size)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	void *map = MAP_FAILED;

	if (wanted)
		map = mmap((void *)(uintptr_t)wanted, size, PROT_NONE, flags | MAP_FIXED_NOREPLACE, -1, 0);
	if (map == MAP_FAILED)
		map = mmap(NULL, size, PROT_NONE, flags, -1, 0);
	if (map == MAP_FAILED)
		return false;
	range->base = (uint64_t)(uintptr_t)map;
	range->size = size;
	/* The first bytes of a range stay unused, so that the rest is aligned to 2 MiB. */
	uint64_t start = ROUND_UP(range->base, SIM_GRANULARITY);
	hole_insert(range, 0, (struct hole){start, range->base + size - start});
	return true;
}

static bool range_setup_inside(struct range *range)
{
	void *map = mmap(NULL, range->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	range->inside = map == MAP_FAILED ? NULL : map;
	return range->inside;
}

bool region_setup(void)
{
	uint64_t size = ROUND_UP(4 * sim_settings.memory, SIM_GRANULARITY) + (8ull << 30);

	for (unsigned i = 0; i < sim_settings.devices; i++) {
		uint64_t wanted = 0;
		if (sim_settings.seeded)
			wanted = 0x700000000000 + i * (1ull << 42) + (sim_mix(sim_settings.seed) & 0xffffe00000);
		if (!range_setup(&device_ranges[i], wanted, size) ||
		    !range_setup(&pool_ranges[i], POOL_BASE + i * size, size) ||
		    (sim_settings.lenient_bounds && !range_setup_inside(&device_ranges[i])))
			return false;
	}
	return true;
}

static struct range *range_of(enum region_kind kind, int device)
{
	/* Modules lie apart from allocations, which matters where bounds are lenient. */
	bool apart = kind == REGION_POOL || (kind == REGION_GLOBAL && sim_settings.lenient_bounds);

	return apart ? &pool_ranges[device] : &device_ranges[device];
}

/* ---- table ---- */

/* Index of the first region that ends after address. */
static size_t table_after(uint64_t address)
{
	size_t low = 0, high = table_count;

	while (low < high) {
		size_t middle = (low + high) / 2;
		if (table[middle]->base + table[middle]->size <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct region *region_from(uint64_t address)
{
	size_t at = table_after(address);

	return at < table_count ? table[at] : NULL;
}

struct region *region_find(uint64_t address)
{
	struct region *r = region_from(address);

	return r && r->base <= address ? r : NULL;
}

struct region *region_next(const struct region *r)
{
	return region_find(r->base + r->size);
}

struct region *region_of(uint64_t base, enum region_kind kind, CUcontext ctx)
{
	struct region *r = region_find(base);

	return r && r->base == base && r->kind == kind && (!ctx || r->ctx == ctx) ? r : NULL;
}

/* Mappings that are adjacent in addresses and in the simulator's memory count as one. */
static unsigned char *span(uint64_t address, size_t size, struct region **first,
			   bool (*usable)(const struct region *, const void *), const void *argument)
{
	struct region *r = region_find(address), *next;

	if (!r || size > UINT64_MAX - address || (usable && !usable(r, argument)))
		return NULL;
	*first = r;
	unsigned char *memory = r->memory + (address - r->base);
	while (address + size > r->base + r->size) {
		next = region_next(r);
		if (r->kind != REGION_VMM || !next || next->kind != REGION_VMM || next->memory != r->memory + r->size ||
		    (usable && !usable(next, argument)))
			return NULL;
		r = next;
	}
	return memory;
}

unsigned char *region_span(uint64_t address, size_t size, struct region **first)
{
	return span(address, size, first, NULL, NULL);
}

static bool accessible(const struct region *r, const void *argument)
{
	const struct region_access *access = argument;
	uint64_t users = access->write ? r->writers : r->readers;

	if (access->write && access->kernel && r->read_only)
		return false;
	switch (r->kind) {
	case REGION_MANAGED:
	case REGION_HOST:
	case REGION_REGISTERED:
		return true;
	case REGION_DEVICE:
	case REGION_GLOBAL:
		return access->reach >> r->device & 1;
	case REGION_POOL:
		/* Copies between devices need no peer access; only kernels do. */
		if (!access->kernel)
			return r->readers != 0;
		/* fall through */
	default:
		return access->device < 0 ? users != 0 : users >> access->device & 1;
	}
}

/* The region that a thread used last: kernels mostly stay in a few. */
static __thread struct {
	uint64_t changes, base, size;
	unsigned char *memory;
	struct region_access access;
} recent;

/* If no allocation contains the span, but each of its pages has part of one; else NULL. */
static unsigned char *in_pages(uint64_t address, size_t size, const struct region_access *access)
{
	for (unsigned i = 0; i < sim_settings.devices; i++) {
		const struct range *range = &device_ranges[i];
		uint64_t page = address / SIM_GRANULARITY * SIM_GRANULARITY;
		if (!(access->reach >> i & 1) || address - range->base >= range->size)
			continue;
		while (page < address + size && region_overlaps(page, SIM_GRANULARITY))
			page += SIM_GRANULARITY;
		return page < address + size ? NULL : range->inside + (address - range->base);
	}
	return NULL;
}

/*
 * Allocations take whole units of 256 bytes, of which a GPU grants all. Strict bounds hold programs to
 * what they asked for, but not the recorder, which looks whether the rest was written to.
 */
static unsigned char *in_tail(uint64_t address, size_t size, const struct region_access *access)
{
	size_t after = table_after(address);
	const struct region *r = after ? table[after - 1] : NULL;

	if (!r || r->kind == REGION_VMM || !accessible(r, access) || address + size > ROUND_UP(r->base + r->size, 256))
		return NULL;
	return r->memory + (address - r->base);
}

void *region_resolve(uint64_t address, size_t size, const struct region_access *access)
{
	struct region *first;

	if (recent.changes == table_changes && address - recent.base < recent.size &&
	    size <= recent.size - (address - recent.base) && access->device == recent.access.device &&
	    access->reach == recent.access.reach && access->write == recent.access.write &&
	    access->kernel == recent.access.kernel)
		return recent.memory + (address - recent.base);
	pthread_rwlock_rdlock(&table_lock);
	unsigned char *memory = span(address, size, &first, accessible, access);
	if (memory) {
		recent.changes = table_changes;
		recent.base = first->base;
		recent.size = first->size;
		recent.memory = first->memory;
		recent.access = *access;
	} else if (access->kernel && (sim_settings.lenient_bounds || access->recorder)) {
		memory = in_tail(address, size, access);
		if (!memory && sim_settings.lenient_bounds)
			memory = in_pages(address, size, access);
	}
	pthread_rwlock_unlock(&table_lock);
	return memory;
}

void region_describe(uint64_t address, char *text, size_t size)
{
	pthread_rwlock_rdlock(&table_lock);
	size_t after = table_after(address);
	const struct region *r = after < table_count ? table[after] : NULL;
	const struct region *before = after ? table[after - 1] : NULL;
	if (r && r->base <= address)
		snprintf(text, size, "byte %llu of an allocation of %zu bytes", (unsigned long long)(address - r->base),
			 r->size);
	else if (before && address - (before->base + before->size) < NEAR_BYTES)
		snprintf(text, size, "byte %llu after an allocation of %zu bytes",
			 (unsigned long long)(address - (before->base + before->size)), before->size);
	else
		snprintf(text, size, "%#llx", (unsigned long long)address);
	pthread_rwlock_unlock(&table_lock);
}

bool region_usable(const struct region *r)
{
	/* Memory of a graph is mapped by its launches: work may be prepared before. */
	return !r->dying || r->of_graph;
}

bool region_overlaps(uint64_t address, size_t size)
{
	struct region *r = region_from(address);

	return r && r->base < address + size;
}

void region_renew(struct region *r)
{
	pthread_rwlock_wrlock(&table_lock);
	r->id = ++last_id;
	pthread_rwlock_unlock(&table_lock);
}

void region_allow(struct region *r, uint64_t readers, uint64_t writers)
{
	pthread_rwlock_wrlock(&table_lock);
	r->readers = readers;
	r->writers = writers;
	table_changes++;
	pthread_rwlock_unlock(&table_lock);
}

struct region *region_at(uint64_t base, size_t size, enum region_kind kind, int device, unsigned char *memory, CUcontext ctx)
{
	struct region *r = sim_alloc(sizeof *r);

	*r = (struct region){
		.base = base, .size = size, .kind = kind, .device = device, .memory = memory, .ctx = ctx, .id = ++last_id};
	pthread_rwlock_wrlock(&table_lock);
	if (table_count == table_room) {
		table_room = table_room ? table_room * 2 : 256;
		table = realloc(table, table_room * sizeof *table);
		if (!table)
			abort();
	}
	size_t at = table_after(base);
	memmove(table + at + 1, table + at, (table_count - at) * sizeof *table);
	table[at] = r;
	table_count++;
	table_changes++;
	pthread_rwlock_unlock(&table_lock);
	return r;
}

void region_remove(struct region *r)
{
	pthread_rwlock_wrlock(&table_lock);
	size_t at = table_after(r->base);
	table_count--;
	table_changes++;
	memmove(table + at, table + at + 1, (table_count - at) * sizeof *table);
	pthread_rwlock_unlock(&table_lock);
	free(r);
}

/* ---- device memory ---- */

static unsigned char *memory_new(const struct range *range, uint64_t base, size_t size)
{
	if (!range->inside)
		return storage_new(size);
	storage_garbage(range->inside + (base - range->base), size);
	return range->inside + (base - range->base);
}

CUresult region_new(int device, CUcontext ctx, size_t size, size_t align, enum region_kind kind, struct region **out)
{
	/* Large blocks begin at a page of the device, as in NVIDIA's driver. */
	if (size >= SIM_GRANULARITY / 2 && align < SIM_GRANULARITY)
		align = SIM_GRANULARITY;
	if (align < SIM_ALIGNMENT)
		align = SIM_ALIGNMENT;
	size_t charged = size > sim_settings.memory ? size : ROUND_UP(size, SIM_ALIGNMENT);
	if (!device_charge(device, charged))
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct range *range = range_of(kind, device);
	uint64_t base = range_take(range, charged, align);
	unsigned char *memory = base ? memory_new(range, base, size) : NULL;
	if (!memory) {
		if (base)
			range_give(range, base, charged);
		device_refund(device, charged);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*out = region_at(base, size, kind, device, memory, ctx);
	(*out)->charged = charged;
	return CUDA_SUCCESS;
}

void region_delete(struct region *r)
{
	struct range *range = range_of(r->kind, r->device);

	device_refund(r->device, r->charged);
	range_give(range, r->base, r->charged);
	if (!range->inside)
		storage_delete(r->memory, r->size);
	region_remove(r);
}
