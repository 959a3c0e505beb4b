/*
 * Address ranges, physical memory and mappings.
 *
 * Invariant: a reservation has two ranges of the process: one at the program's address, never accessible,
 * and one through which the simulator accesses mapped memory. So adjacent mappings of a reservation are
 * adjacent for the simulator, too.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim/driver/driver.h"

struct reservation {
	uint64_t base;
	size_t size;
	unsigned char *memory;
	SLIST_ENTRY(reservation) all;
};

static SLIST_HEAD(, reservation) reservations = SLIST_HEAD_INITIALIZER(reservations);

static struct reservation *reservation_of(uint64_t address, size_t size)
{
	struct reservation *r;

	SLIST_FOREACH(r, &reservations, all)
	{
		if (address - r->base < r->size && size <= r->size - (address - r->base))
			return r;
	}
	return NULL;
}

static bool granular(uint64_t value)
{
	return value % sim_settings.granularity == 0;
}

/* ---- address ranges ---- */

static void *reserve(uint64_t wanted, size_t size, size_t align)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	size_t room = size + align;

	if (wanted && wanted % align == 0 && !sim_settings.elsewhere) {
		void *map = mmap((void *)(uintptr_t)wanted, size, PROT_NONE, flags | MAP_FIXED_NOREPLACE, -1, 0);
		if (map != MAP_FAILED)
			return map;
	}
	if (room < size)
		return MAP_FAILED;
	unsigned char *map = mmap(NULL, room, PROT_NONE, flags, -1, 0);
	if (map == MAP_FAILED)
		return MAP_FAILED;
	unsigned char *start = map + (align - (uintptr_t)map % align) % align;
	if (start > map)
		munmap(map, (size_t)(start - map));
	if (map + room > start + size)
		munmap(start + size, (size_t)(map + room - start - size));
	return start;
}

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t align, CUdeviceptr wanted, unsigned long long flags)
{
	ENTER(sim_enter_driver());
	INVALID_IF(!address || !size || !granular(size) || flags || (align & (align - 1)));
	if (align < sim_settings.granularity)
		align = sim_settings.granularity;
	void *outside = reserve(wanted, size, align);
	if (outside == MAP_FAILED)
		return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
	void *inside = reserve(0, size, sim_settings.granularity);
	if (inside == MAP_FAILED) {
		munmap(outside, size);
		return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	struct reservation *r = sim_alloc(sizeof *r);
	*r = (struct reservation){.base = (uint64_t)(uintptr_t)outside, .size = size, .memory = inside};
	SLIST_INSERT_HEAD(&reservations, r, all);
	*address = r->base;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size)
{
	ENTER(sim_enter_driver());
	struct reservation *r = reservation_of(address, size);
	INVALID_IF(!r || r->base != address || r->size != size || region_overlaps(address, size));
	SLIST_REMOVE(&reservations, r, reservation, all);
	munmap((void *)(uintptr_t)r->base, r->size);
	munmap(r->memory, r->size);
	free(r);
	return sim_leave(CUDA_SUCCESS);
}

/* ---- physical memory ---- */

static struct physical *physical_of(CUmemGenericAllocationHandle handle)
{
	struct physical *p = (struct physical *)(uintptr_t)handle;

	return handle_is(p, HANDLE_PHYSICAL) ? p : NULL;
}

static void physical_check_end(struct physical *p)
{
	if (!p->handles)
		handle_remove(p);
	if (p->handles || p->mappings)
		return;
	if (p->charged)
		device_refund(p->device, p->charged);
	munmap(p->memory, p->size);
	if (p->file >= 0)
		close(p->file);
	free(p);
}

static struct physical *physical_make(unsigned char *memory, int file, size_t size, const CUmemAllocationProp *properties)
{
	struct physical *p = sim_alloc(sizeof *p);

	p->handles = 1;
	p->memory = memory;
	p->file = file;
	p->size = size;
	p->properties = *properties;
	p->device = properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? properties->location.id : -1;
	handle_add(p, HANDLE_PHYSICAL);
	return p;
}

static CUresult check_properties(const CUmemAllocationProp *properties)
{
	if (!properties || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	switch (properties->location.type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		if (!device_valid(properties->location.id))
			return CUDA_ERROR_INVALID_DEVICE;
		break;
	case CU_MEM_LOCATION_TYPE_HOST:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (properties->requestedHandleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t size, const CUmemAllocationProp *properties,
		     unsigned long long flags)
{
	CUresult result = sim_enter_driver();

	if (result)
		return result;
	result = check_properties(properties);
	if (!result && (!out || !size || !granular(size) || flags))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result && sim_allocation_fails())
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (result)
		return sim_leave(result);
	bool on_device = properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
	if (on_device && !device_charge(properties->location.id, size))
		return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
	bool exportable = properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
	int file = -1;
	unsigned char *memory = storage_shared(size, exportable ? &file : NULL);
	if (!memory) {
		if (on_device)
			device_refund(properties->location.id, size);
		return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	struct physical *p = physical_make(memory, file, size, properties);
	p->charged = on_device ? size : 0;
	*out = (CUmemGenericAllocationHandle)(uintptr_t)p;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	ENTER(sim_enter_driver());
	struct physical *p = physical_of(handle);
	INVALID_IF(!p);
	p->handles--;
	physical_check_end(p);
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *address)
{
	ENTER(sim_enter_driver());
	struct region *r = region_find((uint64_t)(uintptr_t)address);
	INVALID_IF(!out || !r || r->kind != REGION_VMM);
	if (!r->physical->handles++)
		handle_add(r->physical, HANDLE_PHYSICAL);
	*out = (CUmemGenericAllocationHandle)(uintptr_t)r->physical;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *properties,
				       CUmemAllocationGranularity_flags option)
{
	CUresult result = sim_enter_driver();

	if (result)
		return result;
	result = check_properties(properties);
	if (!result &&
	    (!granularity || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		*granularity = sim_settings.granularity;
	return sim_leave(result);
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties, CUmemGenericAllocationHandle handle)
{
	ENTER(sim_enter_driver());
	struct physical *p = physical_of(handle);
	INVALID_IF(!properties || !p);
	*properties = p->properties;
	return sim_leave(CUDA_SUCCESS);
}

/* ---- mappings ---- */

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
		  unsigned long long flags)
{
	ENTER(sim_enter_driver());
	struct physical *p = physical_of(handle);
	struct reservation *r = reservation_of(address, size);
	INVALID_IF(!p || !r || !size || !granular(address) || flags || region_overlaps(address, size));
	if (!granular(size))
		return sim_leave(CUDA_ERROR_NOT_SUPPORTED);
	INVALID_IF(offset || size > p->size);
	unsigned char *memory = r->memory + (address - r->base);
	/* A second view of a shared mapping, without bytes of its own. */
	if (mremap(p->memory, 0, size, MREMAP_MAYMOVE | MREMAP_FIXED, memory) == MAP_FAILED)
		return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
	struct region *mapping = region_at(address, size, REGION_VMM, p->device, memory, NULL);
	mapping->physical = p;
	p->mappings++;
	return sim_leave(CUDA_SUCCESS);
}

/* Whether the span is mapped completely, and by complete mappings. */
static bool mapped(CUdeviceptr address, size_t size)
{
	uint64_t end = address + size;
	struct region *r = region_find(address);

	if (!r || r->base != address)
		return false;
	while (r && r->kind == REGION_VMM && r->base + r->size < end)
		r = region_next(r);
	return r && r->kind == REGION_VMM && r->base + r->size == end;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size)
{
	ENTER(sim_enter_driver());
	contexts_wait();
	INVALID_IF(!mapped(address, size));
	for (uint64_t at = address; at < address + size;) {
		struct region *r = region_find(at);
		struct physical *p = r->physical;
		at += r->size;
		mmap(r->memory, r->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
		region_remove(r);
		p->mappings--;
		physical_check_end(p);
	}
	return sim_leave(CUDA_SUCCESS);
}

static void open_mapping(struct region *r, const CUmemAccessDesc *access)
{
	uint64_t bit = 1ull << access->location.id;
	uint64_t readers = r->readers & ~bit, writers = r->writers & ~bit;

	if (access->flags & CU_MEM_ACCESS_FLAGS_PROT_READ)
		readers |= bit;
	if (access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
		writers |= bit;
	region_allow(r, readers, writers);
}

static CUresult check_access(const CUmemAccessDesc *access)
{
	if (access->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && access->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
	    access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
		return CUDA_ERROR_INVALID_VALUE;
	if (access->location.type == CU_MEM_LOCATION_TYPE_HOST || access->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA)
		return sim_unsupported("cuMemSetAccess for the host");
	if (access->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	return device_valid(access->location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *access, size_t count)
{
	CUresult result = sim_enter_driver();

	if (result)
		return result;
	INVALID_IF(!access || !count);
	for (size_t i = 0; i < count && !result; i++)
		result = check_access(&access[i]);
	engine_quiesce();
	if (!result && !mapped(address, size))
		result = CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count && !result; i++) {
		for (struct region *r = region_find(address); r && r->base < address + size; r = region_next(r)) {
			if (sim_settings.apart && r->device != access[i].location.id)
				return sim_leave(CUDA_ERROR_INVALID_DEVICE);
			open_mapping(r, &access[i]);
		}
	}
	return sim_leave(result);
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address)
{
	ENTER(sim_enter_driver());
	struct region *r = region_find(address);
	if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE || !device_valid(location->id) || !r ||
	    r->kind != REGION_VMM)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	uint64_t bit = 1ull << location->id;
	*flags = r->writers & bit   ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
		 : r->readers & bit ? CU_MEM_ACCESS_FLAGS_PROT_READ
				    : CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return sim_leave(CUDA_SUCCESS);
}

/* ---- sharing ---- */

CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
				      unsigned long long flags)
{
	ENTER(sim_enter_driver());
	struct physical *p = physical_of(handle);
	if (!out || !p || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
	    !(p->properties.requestedHandleTypes & type))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	int file = fcntl(p->file, F_DUPFD_CLOEXEC, 0);
	if (file < 0)
		return sim_leave(CUDA_ERROR_OPERATING_SYSTEM);
	*(int *)out = file;
	return sim_leave(CUDA_SUCCESS);
}

/* A descriptor from cuMemExportToShareableHandle, of this or another process. */
static bool is_ours(int file, size_t *size)
{
	char path[64], target[128];
	struct stat status;

	snprintf(path, sizeof path, "/proc/self/fd/%d", file);
	ssize_t length = readlink(path, target, sizeof target - 1);
	if (length < 0 || fstat(file, &status))
		return false;
	target[length] = '\0';
	*size = (size_t)status.st_size;
	return strstr(target, STORAGE_FILE_NAME) != NULL;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *shared, CUmemAllocationHandleType type)
{
	CUcontext ctx;
	size_t size;
	int file = (int)(intptr_t)shared;

	ENTER(sim_enter(&ctx));
	INVALID_IF(!out || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !is_ours(file, &size));
	file = fcntl(file, F_DUPFD_CLOEXEC, 0);
	if (file < 0)
		return sim_leave(CUDA_ERROR_OPERATING_SYSTEM);
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
	if (memory == MAP_FAILED) {
		close(file);
		return sim_leave(CUDA_ERROR_OPERATING_SYSTEM);
	}
	CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					  .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					  .location = {CU_MEM_LOCATION_TYPE_DEVICE, ctx->device}};
	*out = (CUmemGenericAllocationHandle)(uintptr_t)physical_make(memory, file, size, &properties);
	return sim_leave(CUDA_SUCCESS);
}
