/* Entry points that are older versions of another, or use another default stream. */
#include "sim/driver/driver.h"

/* ---- older forms with the same parameters ---- */

CUresult cuCtxCreate(CUcontext *out, unsigned int flags, CUdevice device)
{
	return cuCtxCreate_v2(out, flags, device);
}

CUresult cuCtxDestroy(CUcontext ctx)
{
	return cuCtxDestroy_v2(ctx);
}

CUresult cuCtxPopCurrent(CUcontext *out)
{
	return cuCtxPopCurrent_v2(out);
}

CUresult cuCtxPushCurrent(CUcontext ctx)
{
	return cuCtxPushCurrent_v2(ctx);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
	return cuDevicePrimaryCtxRelease_v2(device);
}

CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
	return cuDevicePrimaryCtxReset_v2(device);
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags)
{
	return cuDevicePrimaryCtxSetFlags_v2(device, flags);
}

CUresult cuStreamDestroy(CUstream stream)
{
	return cuStreamDestroy_v2(stream);
}

CUresult cuEventDestroy(CUevent event)
{
	return cuEventDestroy_v2(event);
}

CUresult cuMemHostRegister(void *p, size_t size, unsigned int flags)
{
	return cuMemHostRegister_v2(p, size, flags);
}

CUresult cuStreamBeginCapture(CUstream stream)
{
	return cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult cuGraphInstantiate(CUgraphExec *out, CUgraph graph, CUgraphNode *failed, char *log,
	size_t log_size)
{
	return cuGraphInstantiate_v2(out, graph, failed, log, log_size);
}

/* The first version of stream memory operations is disabled by default. */

CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *ops,
	unsigned int flags)
{
	(void)stream, (void)count, (void)ops, (void)flags;
	return sim_life() ? sim_life() : CUDA_ERROR_NOT_SUPPORTED;
}

#define VALUES(name, type) \
	CUresult name(CUstream stream, CUdeviceptr address, type value, unsigned int flags) \
	{ \
		(void)stream, (void)address, (void)value, (void)flags; \
		return sim_life() ? sim_life() : CUDA_ERROR_NOT_SUPPORTED; \
	} \
	CUresult name##_ptsz(CUstream stream, CUdeviceptr address, type value, unsigned int flags) \
	{ return name(stream, address, value, flags); } \
	CUresult name##_v2_ptsz(CUstream stream, CUdeviceptr address, type value, unsigned int flags) \
	{ return name##_v2(own_stream(stream), address, value, flags); }

VALUES(cuStreamWaitValue32, cuuint32_t)
VALUES(cuStreamWaitValue64, cuuint64_t)
VALUES(cuStreamWriteValue32, cuuint32_t)
VALUES(cuStreamWriteValue64, cuuint64_t)

/* ---- the thread's own default stream ---- */

#define OWN(name, parameters, arguments) \
	CUresult name##_ptsz parameters { return name arguments; }
#define OWN_STREAM(name) OWN(name, (CUstream stream), (own_stream(stream)))
#define OWN_OUT(name, type) OWN(name, (CUstream stream, type *out), (own_stream(stream), out))

OWN_STREAM(cuStreamQuery)
OWN_STREAM(cuStreamSynchronize)
OWN_STREAM(cuStreamBeginCapture)
OWN_OUT(cuStreamGetPriority, int)
OWN_OUT(cuStreamGetFlags, unsigned int)
OWN_OUT(cuStreamGetId, unsigned long long)
OWN_OUT(cuStreamGetCtx, CUcontext)
OWN_OUT(cuStreamGetDevice, CUdevice)
OWN_OUT(cuStreamEndCapture, CUgraph)
OWN_OUT(cuStreamIsCapturing, CUstreamCaptureStatus)

OWN(cuStreamGetCtx_v2, (CUstream stream, CUcontext *ctx, CUgreenCtx *green),
	(own_stream(stream), ctx, green))
OWN(cuStreamCopyAttributes, (CUstream to, CUstream from), (own_stream(to), own_stream(from)))
OWN(cuStreamGetAttribute, (CUstream stream, CUstreamAttrID attribute, CUstreamAttrValue *value),
	(own_stream(stream), attribute, value))
OWN(cuStreamSetAttribute,
	(CUstream stream, CUstreamAttrID attribute, const CUstreamAttrValue *value),
	(own_stream(stream), attribute, value))
OWN(cuStreamAddCallback,
	(CUstream stream, CUstreamCallback callback, void *data, unsigned int flags),
	(own_stream(stream), callback, data, flags))
OWN(cuStreamAttachMemAsync,
	(CUstream stream, CUdeviceptr address, size_t length, unsigned int flags),
	(own_stream(stream), address, length, flags))
OWN(cuStreamBatchMemOp,
	(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *ops, unsigned int flags),
	(own_stream(stream), count, ops, flags))
OWN(cuStreamBatchMemOp_v2,
	(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *ops, unsigned int flags),
	(own_stream(stream), count, ops, flags))

OWN(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode),
	(own_stream(stream), mode))
OWN(cuStreamBeginCaptureToGraph,
	(CUstream stream, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *data,
		size_t count, CUstreamCaptureMode mode),
	(own_stream(stream), graph, nodes, data, count, mode))
OWN(cuStreamGetCaptureInfo, (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id),
	(own_stream(stream), status, id))
OWN(cuStreamGetCaptureInfo_v2,
	(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
		const CUgraphNode **nodes, size_t *count),
	(own_stream(stream), status, id, graph, nodes, count))
OWN(cuStreamGetCaptureInfo_v3,
	(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
		const CUgraphNode **nodes, const CUgraphEdgeData **data, size_t *count),
	(own_stream(stream), status, id, graph, nodes, data, count))
OWN(cuStreamUpdateCaptureDependencies,
	(CUstream stream, CUgraphNode *nodes, size_t count, unsigned int flags),
	(own_stream(stream), nodes, count, flags))
OWN(cuStreamUpdateCaptureDependencies_v2,
	(CUstream stream, CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count,
		unsigned int flags),
	(own_stream(stream), nodes, data, count, flags))

OWN(cuEventRecord, (CUevent event, CUstream stream), (event, own_stream(stream)))
OWN(cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned int flags),
	(event, own_stream(stream), flags))
OWN(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags),
	(own_stream(stream), event, flags))

OWN(cuMemAllocAsync, (CUdeviceptr *address, size_t size, CUstream stream),
	(address, size, own_stream(stream)))
OWN(cuMemAllocFromPoolAsync,
	(CUdeviceptr *address, size_t size, CUmemoryPool pool, CUstream stream),
	(address, size, pool, own_stream(stream)))
OWN(cuMemFreeAsync, (CUdeviceptr address, CUstream stream), (address, own_stream(stream)))
OWN(cuMemPrefetchAsync, (CUdeviceptr address, size_t size, CUdevice device, CUstream stream),
	(address, size, device, own_stream(stream)))
OWN(cuMemPrefetchAsync_v2,
	(CUdeviceptr address, size_t size, CUmemLocation location, unsigned int flags, CUstream stream),
	(address, size, location, flags, own_stream(stream)))
OWN(cuMemcpyBatchAsync,
	(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
		CUmemcpyAttributes *attributes, size_t *first, size_t attribute_count, size_t *failed,
		CUstream stream),
	(dsts, srcs, sizes, count, attributes, first, attribute_count, failed, own_stream(stream)))
OWN(cuMemcpyBatchAsync_v2,
	(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
		CUmemcpyAttributes *attributes, size_t *first, size_t attribute_count, CUstream stream),
	(dsts, srcs, sizes, count, attributes, first, attribute_count, own_stream(stream)))
OWN(cuMemcpy3DBatchAsync,
	(size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, size_t *failed, unsigned long long flags,
		CUstream stream),
	(count, ops, failed, flags, own_stream(stream)))
OWN(cuMemcpy3DBatchAsync_v2,
	(size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, unsigned long long flags, CUstream stream),
	(count, ops, flags, own_stream(stream)))

OWN(cuLaunchHostFunc, (CUstream stream, CUhostFn function, void *data),
	(own_stream(stream), function, data))
OWN(cuLaunchKernel,
	(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
		unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **params,
		void **extra),
	(f, gx, gy, gz, bx, by, bz, shared, own_stream(stream), params, extra))
OWN(cuLaunchCooperativeKernel,
	(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
		unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **params),
	(f, gx, gy, gz, bx, by, bz, shared, own_stream(stream), params))

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **params,
	void **extra)
{
	CUlaunchConfig own;

	if (!config)
		return cuLaunchKernelEx(NULL, f, params, extra);
	own = *config;
	own.hStream = own_stream(own.hStream);
	return cuLaunchKernelEx(&own, f, params, extra);
}

OWN(cuGraphUpload, (CUgraphExec exec, CUstream stream), (exec, own_stream(stream)))
OWN(cuGraphLaunch, (CUgraphExec exec, CUstream stream), (exec, own_stream(stream)))
OWN(cuGraphInstantiateWithParams,
	(CUgraphExec *out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params),
	(out, graph, params))
