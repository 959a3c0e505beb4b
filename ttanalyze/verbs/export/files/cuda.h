/*
 * What main.c uses of the CUDA driver API, as of CUDA 12 and 13 on 64-bit Linux, so that it builds
 * without a toolkit.
 */
#ifndef CUDA_H
#define CUDA_H

#include <stddef.h>

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;

typedef enum { CUDA_SUCCESS = 0 } CUresult;

typedef int CUjit_option;
#define CU_JIT_MAX_REGISTERS 0
typedef int CUlimit;
typedef int CUfunction_attribute;
typedef int CUfunc_cache;
typedef int CUlaunchAttributeID;

/* ---- memory at an address ---- */

typedef enum { CU_MEM_ALLOCATION_TYPE_PINNED = 1 } CUmemAllocationType;
typedef enum { CU_MEM_LOCATION_TYPE_DEVICE = 1 } CUmemLocationType;
typedef enum { CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3 } CUmemAccess_flags;
typedef enum { CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0 } CUmemAllocationGranularity_flags;

typedef struct {
	CUmemLocationType type;
	int id;
} CUmemLocation;

typedef struct {
	CUmemAllocationType type;
	int requestedHandleTypes;
	CUmemLocation location;
	void *win32HandleMetaData;
	unsigned char allocFlags[8];
} CUmemAllocationProp;

typedef struct {
	CUmemLocation location;
	CUmemAccess_flags flags;
} CUmemAccessDesc;

/* ---- a launch ---- */

#define CU_LAUNCH_PARAM_END ((void *)0)
#define CU_LAUNCH_PARAM_BUFFER_POINTER ((void *)1)
#define CU_LAUNCH_PARAM_BUFFER_SIZE ((void *)2)

typedef struct {
	CUlaunchAttributeID id;
	char pad[4];
	union {
		char pad[64];
		unsigned long long word;
	} value;
} CUlaunchAttribute;

typedef struct {
	unsigned int gridDimX, gridDimY, gridDimZ;
	unsigned int blockDimX, blockDimY, blockDimZ;
	unsigned int sharedMemBytes;
	CUstream hStream;
	CUlaunchAttribute *attrs;
	unsigned int numAttrs;
} CUlaunchConfig;

/* ---- calls, by the names under which the library has them ---- */

#define cuMemcpyHtoD cuMemcpyHtoD_v2
#define cuMemcpyDtoH cuMemcpyDtoH_v2
#define cuMemsetD8 cuMemsetD8_v2
#define cuModuleGetGlobal cuModuleGetGlobal_v2

CUresult cuInit(unsigned int flags);
CUresult cuGetErrorName(CUresult result, const char **name);
CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuCtxGetLimit(size_t *value, CUlimit limit);
CUresult cuCtxSetLimit(CUlimit limit, size_t value);
CUresult cuCtxSynchronize(void);
CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *where,
	CUmemAllocationGranularity_flags option);
CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment,
	CUdeviceptr wanted, unsigned long long flags);
CUresult cuMemAddressFree(CUdeviceptr address, size_t size);
CUresult cuMemCreate(CUmemGenericAllocationHandle *memory, size_t size,
	const CUmemAllocationProp *where, unsigned long long flags);
CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset,
	CUmemGenericAllocationHandle memory, unsigned long long flags);
CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *access,
	size_t count);
CUresult cuMemsetD8(CUdeviceptr address, unsigned char value, size_t size);
CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t size);
CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t size);
CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count,
	CUjit_option *options, void **values);
CUresult cuModuleGetFunction(CUfunction *kernel, CUmodule module, const char *name);
CUresult cuModuleGetGlobal(CUdeviceptr *address, size_t *size, CUmodule module, const char *name);
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction kernel);
CUresult cuFuncSetAttribute(CUfunction kernel, CUfunction_attribute attribute, int value);
CUresult cuFuncSetCacheConfig(CUfunction kernel, CUfunc_cache config);
CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction kernel, void **params,
	void **extra);
CUresult cuEventCreate(CUevent *event, unsigned int flags);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuEventElapsedTime(float *milliseconds, CUevent begin, CUevent end);

#endif
