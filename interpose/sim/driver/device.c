/*
 * Devices: their names, attributes and free memory.
 *
 * Invariant: an attribute reports a feature only if the simulator has it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/driver/driver.h"

struct sim_device sim_devices[SIM_MAX_DEVICES];

static const struct {
	CUdevice_attribute attribute;
	int value;
} attributes[] = {
	{CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
	{CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
	{CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
	{CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
	{CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
	{CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
	{CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
	{CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
	{CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
	{CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
	{CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
	{CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
	{CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000000},
	{CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
	{CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
	{CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 8},
	{CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
	{CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, CU_COMPUTEMODE_DEFAULT},
	{CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH, 131072},
	{CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH, 131072},
	{CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT, 65536},
	{CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH, 16384},
	{CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT, 16384},
	{CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH, 16384},
	{CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, 512},
	{CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
	{CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1000000},
	{CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 512},
	{CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 4 << 20},
	{CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
	{CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
	{CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
	{CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
	{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
	{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
	{CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
	{CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
	{CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
	{CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2},
	{CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
	{CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
	{CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1, 0},
	{CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1, 0},
	{CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1, 0},
	{CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
	{CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
	{CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
	{CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
	{CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 1},
	{CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
	{CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1},
	{CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS, 1},
	{CU_DEVICE_ATTRIBUTE_NUMA_ID, -1},
	{CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0},
};

bool device_valid(CUdevice device)
{
	return device >= 0 && (unsigned)device < sim_settings.devices;
}

bool device_charge(int device, uint64_t bytes)
{
	struct sim_device *d = &sim_devices[device];

	if (bytes > sim_settings.memory - d->used) {
		d->used -= d->kept;
		d->kept = 0;
	}
	if (bytes > sim_settings.memory - d->used)
		return false;
	d->used += bytes;
	return true;
}

void device_refund(int device, uint64_t bytes)
{
	sim_devices[device].used -= bytes;
}

int device_attribute(CUdevice_attribute attribute, int device)
{
	if (attribute == CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)
		return device + 1;
	if (attribute == CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED)
		return sim_settings.ipc;
	for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) {
		if (attributes[i].attribute == attribute)
			return attributes[i].value;
	}
	return 0;
}

/* Takes the lock if the device exists. */
static CUresult enter_device(CUdevice device)
{
	CUresult result = sim_enter_driver();

	if (!result && !device_valid(device))
		return sim_leave(CUDA_ERROR_INVALID_DEVICE);
	return result;
}

CUresult cuDeviceGetCount(int *count)
{
	ENTER(sim_enter_driver());
	INVALID_IF(!count);
	*count = (int)sim_settings.devices;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	ENTER(enter_device(ordinal));
	INVALID_IF(!device);
	*device = ordinal;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
	ENTER(enter_device(device));
	INVALID_IF(!name || size <= 0);
	snprintf(name, (size_t)size, "ttanalyze simulator");
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	ENTER(enter_device(device));
	INVALID_IF(!bytes);
	*bytes = sim_settings.memory;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	ENTER(enter_device(device));
	INVALID_IF(!value || attribute < 1 || attribute >= CU_DEVICE_ATTRIBUTE_MAX);
	*value = device_attribute(attribute, device);
	return sim_leave(CUDA_SUCCESS);
}

static void device_uuid(CUuuid *uuid, CUdevice device)
{
	memcpy(uuid->bytes, "ttanalyze sim \0", 16);
	uuid->bytes[15] = (char)device;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
	ENTER(enter_device(device));
	INVALID_IF(!uuid);
	device_uuid(uuid, device);
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
	return cuDeviceGetUuid_v2(uuid, device);
}

CUresult cuDeviceGetLuid(char *luid, unsigned int *mask, CUdevice device)
{
	(void)luid, (void)mask;
	CUresult result = enter_device(device);
	/* Only devices of another operating system have one. */
	return result ? result : sim_leave(CUDA_ERROR_NOT_SUPPORTED);
}

CUresult cuDeviceGetPCIBusId(char *name, int size, CUdevice device)
{
	ENTER(enter_device(device));
	INVALID_IF(!name || size < 13);
	snprintf(name, (size_t)size, "0000:00:%02X.0", device + 1);
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *name)
{
	unsigned domain = 0, bus, slot;

	ENTER(sim_enter_driver());
	INVALID_IF(!device || !name);
	if (sscanf(name, "%x:%x:%x", &domain, &bus, &slot) != 3) {
		domain = 0;
		if (sscanf(name, "%x:%x", &bus, &slot) != 2)
			return sim_leave(CUDA_ERROR_INVALID_VALUE);
	}
	if (domain || bus || slot < 1 || slot > sim_settings.devices)
		return sim_leave(CUDA_ERROR_INVALID_DEVICE);
	*device = (CUdevice)slot - 1;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
	ENTER(enter_device(device));
	INVALID_IF(!major || !minor);
	*major = device_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
	*minor = device_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetProperties(CUdevprop *properties, CUdevice device)
{
	ENTER(enter_device(device));
	INVALID_IF(!properties);
	*properties = (CUdevprop){
		.maxThreadsPerBlock = device_attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, device),
		.maxThreadsDim = {1024, 1024, 64},
		.maxGridSize = {2147483647, 65535, 65535},
		.sharedMemPerBlock = device_attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, device),
		.totalConstantMemory = device_attribute(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, device),
		.SIMDWidth = device_attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE, device),
		.memPitch = device_attribute(CU_DEVICE_ATTRIBUTE_MAX_PITCH, device),
		.regsPerBlock = device_attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, device),
		.clockRate = device_attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE, device),
		.textureAlign = device_attribute(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, device),
	};
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t *width, CUarray_format format, unsigned channels, CUdevice device)
{
	(void)format;

	ENTER(enter_device(device));
	INVALID_IF(!width || (channels != 1 && channels != 2 && channels != 4));
	*width = 1u << 27;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetExecAffinitySupport(int *supported, CUexecAffinityType type, CUdevice device)
{
	ENTER(enter_device(device));
	INVALID_IF(!supported || type < 0 || type >= CU_EXEC_AFFINITY_TYPE_MAX);
	*supported = 0;
	return sim_leave(CUDA_SUCCESS);
}

/* ---- peers ---- */

static CUresult enter_two_devices(CUdevice device, CUdevice peer)
{
	CUresult result = enter_device(device);

	if (!result && !device_valid(peer))
		return sim_leave(CUDA_ERROR_INVALID_DEVICE);
	return result;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
	ENTER(enter_two_devices(device, peer));
	INVALID_IF(!can);
	*can = device != peer && !sim_settings.apart;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice device, CUdevice peer)
{
	ENTER(enter_two_devices(device, peer));
	INVALID_IF(!value);
	if (device == peer)
		return sim_leave(CUDA_ERROR_INVALID_DEVICE);
	switch (attribute) {
	case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
	case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
	case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
		*value = !sim_settings.apart;
		break;
	case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
	case CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED:
		*value = 0;
		break;
	default:
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	}
	return sim_leave(CUDA_SUCCESS);
}
