/*
 * Device memory at chosen addresses, for the arena and for the recorder itself.
 *
 * Invariant: a mapping is accessible to all its devices, or does not exist. Only the mapping keeps its memory.
 */
#ifndef TT_ARENA_MAPPING_H
#define TT_ARENA_MAPPING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver/driver.h"

/* Properties of ordinary memory of a device. */
CUmemAllocationProp mapping_properties(CUdevice device);
/* Whether the driver has the calls and the device supports them; *granule: its page size. */
bool mapping_supported(const CUmemAllocationProp *properties, size_t *granule);
/* New memory. users: other devices whose kernels have access, a bit each. */
CUresult mapping_make(uint64_t base, uint64_t size, const CUmemAllocationProp *properties, uint64_t users);
/* Maps existing memory; always releases its handle. */
CUresult mapping_make_of(uint64_t base, uint64_t size, CUmemGenericAllocationHandle memory, CUdevice device, uint64_t users);
/* New memory, mapped twice, one behind the other. */
CUresult mapping_make_twice(uint64_t base, uint64_t size, const CUmemAllocationProp *properties);
CUresult mapping_set_access(uint64_t base, uint64_t size, CUdevice device, uint64_t users);

#endif
