/*
 * Devices, their contexts, and errors.
 */
#include <pthread.h>
#include <string.h>

#include "sim/runtime/runtime.h"

#define DEVICES 16

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUcontext primaries[DEVICES];
static __thread int device;
static __thread cudaError_t last;

cudaError_t runtime_result(int result)
{
	if (result && result != CUDA_ERROR_NOT_READY)
		last = result;
	return result;
}

static CUresult current(int which)
{
	CUresult r = CUDA_SUCCESS;

	pthread_mutex_lock(&lock);
	if (!primaries[which])
		r = cuDevicePrimaryCtxRetain(&primaries[which], which);
	pthread_mutex_unlock(&lock);
	return r ? r : cuCtxSetCurrent(primaries[which]);
}

CUresult runtime_ready(void)
{
	CUcontext context = NULL;
	CUresult r = cuCtxGetCurrent(&context);

	if (r == CUDA_ERROR_NOT_INITIALIZED)
		r = cuInit(0);
	return r || context ? r : current(device);
}

/* ---- errors ---- */

#define NOW(name, params, ...) \
	EXPORT cudaError_t name params; \
	EXPORT cudaError_t name params \
	{ \
		__VA_ARGS__ \
	}

NOW(cudaGetLastError, (void), cudaError_t was = last; last = 0; return was;)
NOW(cudaPeekAtLastError, (void), return last;)

static const struct {
	cudaError_t error;
	const char *name, *text;
} errors[] = {
	{0, "cudaSuccess", "no error"},
	{1, "cudaErrorInvalidValue", "invalid argument"},
	{2, "cudaErrorMemoryAllocation", "out of memory"},
	{9, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
	{13, "cudaErrorInvalidSymbol", "invalid device symbol"},
	{98, "cudaErrorInvalidDeviceFunction", "invalid device function"},
	{100, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
	{101, "cudaErrorInvalidDevice", "invalid device ordinal"},
	{200, "cudaErrorInvalidKernelImage", "device kernel image is invalid"},
	{209, "cudaErrorNoKernelImageForDevice", "no kernel image is available for execution on the device"},
	{218, "cudaErrorInvalidPtx", "a PTX JIT compilation failed"},
	{400, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
	{600, "cudaErrorNotReady", "device not ready"},
	{700, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
	{701, "cudaErrorLaunchOutOfResources", "too many resources requested for launch"},
	{716, "cudaErrorMisalignedAddress", "misaligned address"},
	{719, "cudaErrorLaunchFailure", "unspecified launch failure"},
	{801, "cudaErrorNotSupported", "operation not supported"},
	{901, "cudaErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"},
};

static const char *text_of(cudaError_t error, bool name)
{
	const char *text = NULL;

	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
		if (errors[i].error == error)
			return name ? errors[i].name : errors[i].text;
	if (name ? cuGetErrorName((CUresult)error, &text) : cuGetErrorString((CUresult)error, &text))
		return "unrecognized error code";
	return text;
}

EXPORT const char *cudaGetErrorName(cudaError_t error);
EXPORT const char *cudaGetErrorName(cudaError_t error)
{
	return text_of(error, true);
}

EXPORT const char *cudaGetErrorString(cudaError_t error);
EXPORT const char *cudaGetErrorString(cudaError_t error)
{
	return text_of(error, false);
}

/* ---- devices ---- */

static CUresult initialised(void)
{
	CUcontext context;
	CUresult r = cuCtxGetCurrent(&context);

	return r == CUDA_ERROR_NOT_INITIALIZED ? cuInit(0) : r;
}

static CUresult count_devices(int *count)
{
	CUresult r = initialised();

	*count = 0;
	return r ? r : cuDeviceGetCount(count);
}

static CUresult choose(int which)
{
	int count;
	CUresult r = count_devices(&count);

	if (r || which < 0 || which >= count || which >= DEVICES)
		return r ? r : CUDA_ERROR_INVALID_DEVICE;
	device = which;
	return current(which);
}

static CUresult reset(void)
{
	pthread_mutex_lock(&lock);
	CUresult r = primaries[device] ? cuDevicePrimaryCtxReset(device) : CUDA_SUCCESS;
	if (primaries[device])
		cuDevicePrimaryCtxRelease(device);
	primaries[device] = NULL;
	pthread_mutex_unlock(&lock);
	return r ? r : cuCtxSetCurrent(NULL);
}

NOW(cudaGetDeviceCount, (int *count), return runtime_result((int)count_devices(count));)
NOW(cudaSetDevice, (int which), return runtime_result((int)choose(which));)
NOW(cudaGetDevice, (int *which), *which = device; return 0;)
NOW(cudaDriverGetVersion, (int *version), return runtime_result((int)cuDriverGetVersion(version));)
NOW(cudaRuntimeGetVersion, (int *version), *version = 13000; return 0;)
CALL(cudaDeviceSynchronize, (void), cuCtxSynchronize())
NOW(cudaDeviceReset, (void), return runtime_result((int)reset());)
CALL(cudaDeviceGetAttribute, (int *value, int attribute, int which),
     cuDeviceGetAttribute(value, (CUdevice_attribute)attribute, which))
CALL(cudaDeviceCanAccessPeer, (int *can, int from, int to), cuDeviceCanAccessPeer(can, from, to))
CALL(cudaDeviceGetStreamPriorityRange, (int *least, int *most), cuCtxGetStreamPriorityRange(least, most))
CALL(cudaDeviceSetLimit, (int limit, size_t value), cuCtxSetLimit((CUlimit)limit, value))
CALL(cudaDeviceGetLimit, (size_t *value, int limit), cuCtxGetLimit(value, (CUlimit)limit))
CALL(cudaDeviceSetCacheConfig, (int config), cuCtxSetCacheConfig((CUfunc_cache)config))
CALL(cudaDeviceGetDefaultMemPool, (CUmemoryPool * pool, int which), cuDeviceGetDefaultMemPool(pool, which))
CALL(cudaMemPoolSetAttribute, (CUmemoryPool pool, int attribute, void *value),
     cuMemPoolSetAttribute(pool, (CUmemPool_attribute)attribute, value))

static CUresult enable_peer(int peer)
{
	CUcontext own, other = NULL;
	CUresult r = cuCtxGetCurrent(&own);

	if (!r)
		r = current(peer);
	if (!r)
		r = cuCtxGetCurrent(&other);
	cuCtxSetCurrent(own);
	return r ? r : cuCtxEnablePeerAccess(other, 0);
}
CALL(cudaDeviceEnablePeerAccess, (int peer, unsigned flags), flags ? CUDA_ERROR_INVALID_VALUE : enable_peer(peer))

/* The members before `major` and those that programs print; the rest is 0. */
struct properties {
	char name[256], uuid[16], luid[8];
	unsigned luid_mask;
	size_t memory, shared;
	int registers, warp;
	size_t pitch;
	int threads, block[3], grid[3];
	size_t constant;
	int major, minor;
	size_t texture_alignment, texture_pitch;
	int processors, integrated, maps_host;
	char rest[1008 - 256 - 16 - 8 - 4 - 8 * 3 - 4 * 2 - 4 * 7 - 8 - 8 - 16 - 12];
};

static CUresult properties_of(struct properties *p, int which)
{
	const struct {
		CUdevice_attribute from;
		int *to;
	} attributes[] = {
		{CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, &p->registers},
		{CU_DEVICE_ATTRIBUTE_WARP_SIZE, &p->warp},
		{CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &p->threads},
		{CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, &p->block[0]},
		{CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, &p->block[1]},
		{CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, &p->block[2]},
		{CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, &p->grid[0]},
		{CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, &p->grid[1]},
		{CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, &p->grid[2]},
		{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &p->major},
		{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &p->minor},
		{CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &p->processors},
		{CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, &p->maps_host},
	};
	int shared = 0;

	memset(p, 0, sizeof *p);
	CUresult r = cuDeviceGetName(p->name, sizeof p->name, which);
	if (!r)
		r = cuDeviceTotalMem(&p->memory, which);
	for (size_t i = 0; !r && i < sizeof attributes / sizeof *attributes; i++)
		r = cuDeviceGetAttribute(attributes[i].to, attributes[i].from, which);
	if (!r)
		r = cuDeviceGetAttribute(&shared, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, which);
	p->shared = (size_t)shared;
	return r;
}
CALL(cudaGetDeviceProperties, (struct properties * p, int which), properties_of(p, which))
