/*
 * Memory, copies, streams, events and graphs.
 */
#include <string.h>

#include "sim/runtime/runtime.h"

#define ADDRESS(p) ((CUdeviceptr)(uintptr_t)(p))

/* ---- memory ---- */

CALL(cudaMalloc, (void **out, size_t size), size ? cuMemAlloc((CUdeviceptr *)out, size) : (*out = NULL, CUDA_SUCCESS))
CALL(cudaFree, (void *p), p ? cuMemFree(ADDRESS(p)) : CUDA_SUCCESS)
CALL(cudaMallocHost, (void **out, size_t size), cuMemHostAlloc(out, size, 0))
CALL(cudaHostAlloc, (void **out, size_t size, unsigned flags), cuMemHostAlloc(out, size, flags))
CALL(cudaFreeHost, (void *p), p ? cuMemFreeHost(p) : CUDA_SUCCESS)
CALL(cudaHostGetDevicePointer, (void **out, void *p, unsigned flags), cuMemHostGetDevicePointer((CUdeviceptr *)out, p, flags))
CALL(cudaHostRegister, (void *p, size_t size, unsigned flags), cuMemHostRegister(p, size, flags))
CALL(cudaHostUnregister, (void *p), cuMemHostUnregister(p))
CALL(cudaMallocManaged, (void **out, size_t size, unsigned flags), cuMemAllocManaged((CUdeviceptr *)out, size, flags))
CALL(cudaMallocPitch, (void **out, size_t *pitch, size_t width, size_t height),
     cuMemAllocPitch((CUdeviceptr *)out, pitch, width, height, 16))
CALL(cudaMallocAsync, (void **out, size_t size, CUstream stream), cuMemAllocAsync((CUdeviceptr *)out, size, stream))
CALL(cudaFreeAsync, (void *p, CUstream stream), cuMemFreeAsync(ADDRESS(p), stream))
CALL(cudaMemGetInfo, (size_t *left, size_t *total), cuMemGetInfo(left, total))

/* As cudaPointerAttributes. */
struct pointer {
	int type, device;
	void *on_device, *on_host;
};

static CUresult pointer_of(struct pointer *a, const void *p)
{
	unsigned type = 0, managed = 0;

	*a = (struct pointer){.device = -2, .on_host = (void *)(uintptr_t)p};
	if (cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ADDRESS(p)))
		return CUDA_SUCCESS; /* the driver does not know it */
	cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, ADDRESS(p));
	cuPointerGetAttribute(&a->device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ADDRESS(p));
	a->type = managed ? 3 : type == CU_MEMORYTYPE_HOST ? 1 : 2;
	a->on_device = (void *)(uintptr_t)p;
	if (a->type == 2)
		a->on_host = NULL;
	return CUDA_SUCCESS;
}
CALL(cudaPointerGetAttributes, (struct pointer * a, const void *p), pointer_of(a, p))

/* ---- copies ---- */

static CUresult copy(void *to, const void *from, size_t size, int kind)
{
	switch (size ? kind : -1) {
	case -1:
		return CUDA_SUCCESS;
	case HOST_TO_HOST:
		memcpy(to, from, size);
		return CUDA_SUCCESS;
	case HOST_TO_DEVICE:
		return cuMemcpyHtoD(ADDRESS(to), from, size);
	case DEVICE_TO_HOST:
		return cuMemcpyDtoH(to, ADDRESS(from), size);
	case DEVICE_TO_DEVICE:
		return cuMemcpyDtoD(ADDRESS(to), ADDRESS(from), size);
	case BY_ADDRESS:
		return cuMemcpy(ADDRESS(to), ADDRESS(from), size);
	}
	return CUDA_ERROR_INVALID_VALUE;
}

static CUresult copy_async(void *to, const void *from, size_t size, int kind, CUstream stream)
{
	switch (size ? kind : -1) {
	case -1:
		return CUDA_SUCCESS;
	case HOST_TO_DEVICE:
		return cuMemcpyHtoDAsync(ADDRESS(to), from, size, stream);
	case DEVICE_TO_HOST:
		return cuMemcpyDtoHAsync(to, ADDRESS(from), size, stream);
	case DEVICE_TO_DEVICE:
		return cuMemcpyDtoDAsync(ADDRESS(to), ADDRESS(from), size, stream);
	case HOST_TO_HOST:
	case BY_ADDRESS:
		return cuMemcpyAsync(ADDRESS(to), ADDRESS(from), size, stream);
	}
	return CUDA_ERROR_INVALID_VALUE;
}

CALL(cudaMemcpy, (void *to, const void *from, size_t size, int kind), copy(to, from, size, kind))
CALL(cudaMemcpyAsync, (void *to, const void *from, size_t size, int kind, CUstream stream),
     copy_async(to, from, size, kind, stream))
CALL(cudaMemcpyPeer, (void *to, int to_device, const void *from, int from_device, size_t size),
     ((void)to_device, (void)from_device, cuMemcpy(ADDRESS(to), ADDRESS(from), size)))

static CUDA_MEMCPY2D rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind)
{
	static const CUmemorytype sources[] = {CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE,
					       CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_UNIFIED},
				  targets[] = {CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST,
					       CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_UNIFIED};

	return (CUDA_MEMCPY2D){.srcMemoryType = sources[kind],
			       .srcHost = from,
			       .srcDevice = ADDRESS(from),
			       .srcPitch = from_pitch,
			       .dstMemoryType = targets[kind],
			       .dstHost = to,
			       .dstDevice = ADDRESS(to),
			       .dstPitch = to_pitch,
			       .WidthInBytes = width,
			       .Height = height};
}

#define KIND_BAD(kind) ((kind) < HOST_TO_HOST || (kind) > BY_ADDRESS)
CALL(cudaMemcpy2D, (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind),
     KIND_BAD(kind) ? CUDA_ERROR_INVALID_VALUE
		    : cuMemcpy2DUnaligned(&(CUDA_MEMCPY2D[]){rows(to, to_pitch, from, from_pitch, width, height, kind)}[0]))
CALL(cudaMemcpy2DAsync,
     (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind, CUstream stream),
     KIND_BAD(kind) ? CUDA_ERROR_INVALID_VALUE
		    : cuMemcpy2DAsync(&(CUDA_MEMCPY2D[]){rows(to, to_pitch, from, from_pitch, width, height, kind)}[0], stream))

static int symbol_copy(const void *symbol, void *host, size_t size, size_t offset, int kind, bool to_symbol)
{
	CUdeviceptr at;
	int r = variable_of(symbol, &at, NULL);

	if (r)
		return r;
	void *device = (void *)(uintptr_t)(at + offset);
	return (int)(to_symbol ? copy(device, host, size, kind) : copy(host, device, size, kind));
}

static int symbol_address(void **out, const void *symbol)
{
	return variable_of(symbol, (CUdeviceptr *)out, NULL);
}

static int symbol_size(size_t *out, const void *symbol)
{
	CUdeviceptr at;

	return variable_of(symbol, &at, out);
}

CALL(cudaMemcpyToSymbol, (const void *symbol, const void *from, size_t size, size_t offset, int kind),
     symbol_copy(symbol, (void *)(uintptr_t)from, size, offset, kind, true))
CALL(cudaMemcpyFromSymbol, (void *to, const void *symbol, size_t size, size_t offset, int kind),
     symbol_copy(symbol, to, size, offset, kind, false))
CALL(cudaGetSymbolAddress, (void **out, const void *symbol), symbol_address(out, symbol))
CALL(cudaGetSymbolSize, (size_t *out, const void *symbol), symbol_size(out, symbol))

CALL(cudaMemset, (void *p, int value, size_t size), size ? cuMemsetD8(ADDRESS(p), (unsigned char)value, size) : CUDA_SUCCESS)
CALL(cudaMemsetAsync, (void *p, int value, size_t size, CUstream stream),
     size ? cuMemsetD8Async(ADDRESS(p), (unsigned char)value, size, stream) : CUDA_SUCCESS)
CALL(cudaMemset2D, (void *p, size_t pitch, int value, size_t width, size_t height),
     cuMemsetD2D8(ADDRESS(p), pitch, (unsigned char)value, width, height))

/* ---- streams and events ---- */

CALL(cudaStreamCreate, (CUstream * out), cuStreamCreate(out, 0))
CALL(cudaStreamCreateWithFlags, (CUstream * out, unsigned flags), cuStreamCreate(out, flags))
CALL(cudaStreamCreateWithPriority, (CUstream * out, unsigned flags, int priority),
     cuStreamCreateWithPriority(out, flags, priority))
CALL(cudaStreamDestroy, (CUstream stream), cuStreamDestroy(stream))
CALL(cudaStreamSynchronize, (CUstream stream), cuStreamSynchronize(stream))
CALL(cudaStreamQuery, (CUstream stream), cuStreamQuery(stream))
CALL(cudaStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags), cuStreamWaitEvent(stream, event, flags))
CALL(cudaEventCreate, (CUevent * out), cuEventCreate(out, 0))
CALL(cudaEventCreateWithFlags, (CUevent * out, unsigned flags), cuEventCreate(out, flags))
CALL(cudaEventRecord, (CUevent event, CUstream stream), cuEventRecord(event, stream))
CALL(cudaEventSynchronize, (CUevent event), cuEventSynchronize(event))
CALL(cudaEventQuery, (CUevent event), cuEventQuery(event))
CALL(cudaEventElapsedTime, (float *ms, CUevent begin, CUevent end), cuEventElapsedTime(ms, begin, end))
CALL(cudaEventDestroy, (CUevent event), cuEventDestroy(event))

/* ---- graphs ---- */

CALL(cudaStreamBeginCapture, (CUstream stream, int mode), cuStreamBeginCapture(stream, (CUstreamCaptureMode)mode))
CALL(cudaStreamEndCapture, (CUstream stream, CUgraph *graph), cuStreamEndCapture(stream, graph))
CALL(cudaStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus *status), cuStreamIsCapturing(stream, status))
CALL(cudaGraphCreate, (CUgraph * graph, unsigned flags), cuGraphCreate(graph, flags))
CALL(cudaGraphInstantiate, (CUgraphExec * exec, CUgraph graph, unsigned long long flags),
     cuGraphInstantiateWithFlags(exec, graph, flags))
CALL(cudaGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags),
     cuGraphInstantiateWithFlags(exec, graph, flags))
CALL(cudaGraphGetNodes, (CUgraph graph, CUgraphNode *nodes, size_t *count), cuGraphGetNodes(graph, nodes, count))
CALL(cudaGraphLaunch, (CUgraphExec exec, CUstream stream), cuGraphLaunch(exec, stream))
CALL(cudaGraphExecDestroy, (CUgraphExec exec), cuGraphExecDestroy(exec))
CALL(cudaGraphDestroy, (CUgraph graph), cuGraphDestroy(graph))
