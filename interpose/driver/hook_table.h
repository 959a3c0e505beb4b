/*
 * Every driver call the recorder knows, once.
 *
 * HOOK_TABLE lists the calls that are intercepted, by exported symbol: the symbol of a call
 * names its version and default-stream flavour, and the driver hands out the same address for
 * it through dlsym and through cuGetProcAddress. A call is therefore recognised by the address
 * the driver gives, never by a version number that a newer driver may read differently.
 *
 * CALL_TABLE lists further calls that the recorder makes itself; NEED_TABLE those of both that
 * it can't do without. It asks for each of the others before it calls it. pass_table.h lists all
 * that are left.
 */
#ifndef TT_DRIVER_HOOK_TABLE_H
#define TT_DRIVER_HOOK_TABLE_H

/* Calls that exist for the legacy and for the per-thread default stream (suffix ptds or ptsz). */
#define HOOK_COPY_SYNC(X, S) \
	X(cuMemcpy##S) X(cuMemcpyPeer##S) X(cuMemcpy3DPeer##S)
#define HOOK_COPY_SYNC_V2(X, S) \
	X(cuMemcpyHtoD_v2##S) X(cuMemcpyDtoH_v2##S) X(cuMemcpyDtoD_v2##S) \
	X(cuMemcpyDtoA_v2##S) X(cuMemcpyAtoD_v2##S) X(cuMemcpyHtoA_v2##S) X(cuMemcpyAtoH_v2##S) \
	X(cuMemcpyAtoA_v2##S) X(cuMemcpy2D_v2##S) X(cuMemcpy2DUnaligned_v2##S) X(cuMemcpy3D_v2##S) \
	X(cuMemsetD8_v2##S) X(cuMemsetD16_v2##S) X(cuMemsetD32_v2##S) \
	X(cuMemsetD2D8_v2##S) X(cuMemsetD2D16_v2##S) X(cuMemsetD2D32_v2##S)
#define HOOK_COPY_ASYNC(X, S) \
	X(cuMemcpyAsync##S) X(cuMemcpyPeerAsync##S) X(cuMemcpy3DPeerAsync##S) \
	X(cuMemcpyHtoDAsync_v2##S) X(cuMemcpyDtoHAsync_v2##S) X(cuMemcpyDtoDAsync_v2##S) \
	X(cuMemcpyHtoAAsync_v2##S) X(cuMemcpyAtoHAsync_v2##S) \
	X(cuMemcpy2DAsync_v2##S) X(cuMemcpy3DAsync_v2##S) \
	X(cuMemcpyBatchAsync##S) X(cuMemcpyBatchAsync_v2##S) \
	X(cuMemcpy3DBatchAsync##S) X(cuMemcpy3DBatchAsync_v2##S) \
	X(cuMemBatchDecompressAsync##S) X(cuMemDiscardBatchAsync##S) X(cuMemDiscardAndPrefetchBatchAsync##S) \
	X(cuMemsetD8Async##S) X(cuMemsetD16Async##S) X(cuMemsetD32Async##S) \
	X(cuMemsetD2D8Async##S) X(cuMemsetD2D16Async##S) X(cuMemsetD2D32Async##S)
#define HOOK_LAUNCH(X, S) \
	X(cuLaunchKernel##S) X(cuLaunchKernelEx##S) X(cuLaunchCooperativeKernel##S) \
	X(cuLaunchHostFunc##S) X(cuStreamAddCallback##S) X(cuGraphLaunch##S)
#define HOOK_STREAM(X, S) \
	X(cuStreamSynchronize##S) X(cuStreamWaitEvent##S) X(cuEventRecord##S) X(cuEventRecordWithFlags##S) \
	X(cuStreamBeginCapture##S) X(cuStreamBeginCapture_v2##S) X(cuStreamBeginCaptureToGraph##S) \
	X(cuStreamEndCapture##S) \
	X(cuStreamWaitValue32##S) X(cuStreamWaitValue64##S) X(cuStreamWriteValue32##S) \
	X(cuStreamWriteValue64##S) X(cuStreamBatchMemOp##S) \
	X(cuStreamWaitValue32_v2##S) X(cuStreamWaitValue64_v2##S) X(cuStreamWriteValue32_v2##S) \
	X(cuStreamWriteValue64_v2##S) X(cuStreamBatchMemOp_v2##S) \
	X(cuWaitExternalSemaphoresAsync##S) \
	X(cuMemAllocAsync##S) X(cuMemAllocFromPoolAsync##S) X(cuMemFreeAsync##S)

#define HOOK_GRAPH(X) \
	X(cuGraphInstantiate) X(cuGraphInstantiate_v2) X(cuGraphInstantiateWithFlags) \
	X(cuGraphInstantiateWithParams) X(cuGraphExecDestroy) X(cuGraphExecUpdate) X(cuGraphExecUpdate_v2) \
	X(cuGraphExecKernelNodeSetParams) X(cuGraphExecKernelNodeSetParams_v2) \
	X(cuGraphExecMemcpyNodeSetParams) X(cuGraphExecMemsetNodeSetParams) X(cuGraphExecHostNodeSetParams) \
	X(cuGraphExecChildGraphNodeSetParams) X(cuGraphExecEventRecordNodeSetEvent) \
	X(cuGraphExecEventWaitNodeSetEvent) X(cuGraphExecBatchMemOpNodeSetParams) \
	X(cuGraphExecExternalSemaphoresSignalNodeSetParams) X(cuGraphExecExternalSemaphoresWaitNodeSetParams) \
	X(cuGraphExecNodeSetParams) X(cuGraphNodeSetEnabled) X(cuGraphAddNode) X(cuGraphAddNode_v2) \
	X(cuGraphDestroyNode) X(cuGraphRemoveDependencies) X(cuGraphRemoveDependencies_v2) \
	X(cuGraphInstantiateWithParams_ptsz)

#define HOOK_TABLE(X) \
	X(cuGetProcAddress) X(cuGetProcAddress_v2) \
	X(cuInit) \
	X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease) X(cuDevicePrimaryCtxRelease_v2) \
	X(cuDevicePrimaryCtxReset) X(cuDevicePrimaryCtxReset_v2) \
	X(cuCtxDestroy) X(cuCtxDestroy_v2) X(cuGreenCtxDestroy) \
	X(cuCtxSynchronize) X(cuCtxSynchronize_v2) \
	X(cuMemAlloc_v2) X(cuMemAllocPitch_v2) X(cuMemAllocManaged) X(cuMemFree_v2) \
	X(cuMemAllocHost_v2) X(cuMemFreeHost) X(cuMemHostAlloc) \
	X(cuMemHostRegister) X(cuMemHostRegister_v2) X(cuMemHostUnregister) \
	X(cuMemGetInfo_v2) X(cuMemGetAddressRange_v2) \
	X(cuPointerGetAttribute) X(cuPointerGetAttributes) X(cuPointerSetAttribute) \
	X(cuCtxEnablePeerAccess) X(cuCtxDisablePeerAccess) \
	X(cuMemCreate) X(cuMemMap) X(cuMemUnmap) X(cuMemSetAccess) X(cuMemGetAccess) \
	X(cuMemRetainAllocationHandle) X(cuMemAddressFree) X(cuMemImportFromShareableHandle) \
	X(cuMulticastCreate) X(cuMulticastAddDevice) X(cuMulticastBindMem) X(cuMulticastBindAddr) \
	X(cuMemPoolCreate) X(cuMemPoolDestroy) X(cuMemPoolGetAttribute) X(cuMemPoolSetAttribute) X(cuMemPoolSetAccess) \
	X(cuArrayCreate_v2) X(cuArray3DCreate_v2) X(cuArrayDestroy) \
	X(cuMipmappedArrayCreate) X(cuMipmappedArrayDestroy) \
	X(cuIpcGetMemHandle) X(cuIpcOpenMemHandle) X(cuIpcOpenMemHandle_v2) X(cuIpcCloseMemHandle) \
	X(cuMemPoolImportPointer) X(cuExternalMemoryGetMappedBuffer) \
	X(cuModuleLoad) X(cuModuleLoadData) X(cuModuleLoadDataEx) X(cuModuleLoadFatBinary) X(cuModuleUnload) \
	X(cuModuleGetFunction) X(cuModuleGetGlobal_v2) X(cuModuleGetTexRef) X(cuModuleGetSurfRef) \
	X(cuFuncSetCacheConfig) X(cuKernelSetCacheConfig) X(cuLibraryEnumerateKernels) \
	X(cuTexObjectCreate) X(cuTexObjectDestroy) X(cuSurfObjectCreate) X(cuSurfObjectDestroy) \
	X(cuLibraryLoadData) X(cuLibraryLoadFromFile) X(cuLibraryUnload) \
	X(cuLibraryGetKernel) X(cuKernelGetFunction) X(cuLibraryGetModule) X(cuLibraryGetGlobal) X(cuLibraryGetManaged) \
	X(cuLaunch) X(cuLaunchGrid) X(cuLaunchGridAsync) X(cuLaunchCooperativeKernelMultiDevice) \
	X(cuStreamCreate) X(cuStreamCreateWithPriority) X(cuStreamDestroy) X(cuStreamDestroy_v2) \
	X(cuEventSynchronize) X(cuEventDestroy) X(cuEventDestroy_v2) \
	HOOK_GRAPH(X) \
	HOOK_COPY_SYNC(X, ) HOOK_COPY_SYNC(X, _ptds) HOOK_COPY_SYNC_V2(X, ) HOOK_COPY_SYNC_V2(X, _ptds) \
	HOOK_COPY_ASYNC(X, ) HOOK_COPY_ASYNC(X, _ptsz) \
	HOOK_LAUNCH(X, ) HOOK_LAUNCH(X, _ptsz) \
	HOOK_STREAM(X, ) HOOK_STREAM(X, _ptsz)

#define CALL_TABLE(X) \
	X(cuDriverGetVersion) X(cuDeviceGet) X(cuDeviceGetCount) X(cuDeviceGetName) X(cuDeviceTotalMem_v2) \
	X(cuDeviceGetAttribute) X(cuGetErrorName) \
	X(cuCtxGetCurrent) X(cuCtxGetDevice) X(cuCtxPushCurrent_v2) X(cuCtxPopCurrent_v2) X(cuCtxFromGreenCtx) \
	X(cuCtxGetLimit) X(cuCtxGetCacheConfig) X(cuStreamGetPriority) \
	X(cuStreamGetCtx) X(cuStreamIsCapturing) X(cuStreamQuery) X(cuThreadExchangeStreamCaptureMode) \
	X(cuEventCreate) X(cuEventQuery) X(cuEventElapsedTime) \
	X(cuFuncGetName) X(cuFuncLoad) X(cuFuncGetModule) X(cuFuncGetAttribute) X(cuFuncGetParamInfo) \
	X(cuKernelGetName) X(cuKernelGetLibrary) X(cuKernelGetParamInfo) X(cuKernelGetAttribute) \
	X(cuLinkCreate_v2) X(cuLinkAddData_v2) X(cuLinkComplete) X(cuLinkDestroy) \
	X(cuMemHostGetDevicePointer_v2) \
	X(cuMemAddressReserve) X(cuMemRelease) X(cuMemGetAllocationGranularity) \
	X(cuMemExportToShareableHandle) \
	X(cuDeviceGetMemPool) X(cuDeviceGetDefaultMemPool) X(cuDeviceCanAccessPeer) \
	X(cuGraphAddKernelNode_v2) X(cuGraphAddDependencies) \
	X(cuGraphClone) X(cuGraphNodeFindInClone) X(cuGraphDestroy) \
	X(cuGraphGetNodes) X(cuGraphGetEdges) X(cuGraphGetEdges_v2) X(cuGraphNodeGetType) \
	X(cuGraphNodeGetDependencies) X(cuGraphNodeGetDependencies_v2) \
	X(cuGraphKernelNodeGetParams) X(cuGraphKernelNodeGetParams_v2) X(cuGraphKernelNodeGetAttribute) \
	X(cuGraphMemcpyNodeGetParams) X(cuGraphMemsetNodeGetParams) X(cuGraphHostNodeGetParams) \
	X(cuGraphEventWaitNodeGetEvent) X(cuGraphEventRecordNodeGetEvent) X(cuGraphBatchMemOpNodeGetParams) \
	X(cuGraphMemAllocNodeGetParams) X(cuGraphMemFreeNodeGetParams) X(cuGraphChildGraphNodeGetGraph) \
	X(cuGraphNodeGetEnabled)

#define NEED_TABLE(X) \
	X(cuDriverGetVersion) X(cuDeviceGetName) X(cuDeviceTotalMem_v2) X(cuDeviceGetAttribute) X(cuGetErrorName) \
	X(cuCtxGetCurrent) X(cuCtxGetDevice) X(cuCtxPushCurrent_v2) X(cuCtxPopCurrent_v2) \
	X(cuStreamCreateWithPriority) X(cuStreamDestroy_v2) X(cuStreamQuery) X(cuStreamIsCapturing) \
	X(cuThreadExchangeStreamCaptureMode) X(cuStreamWaitEvent) X(cuStreamWaitValue32_v2) X(cuStreamWriteValue32_v2) \
	X(cuEventCreate) X(cuEventDestroy_v2) X(cuEventRecord) X(cuEventQuery) X(cuEventSynchronize) \
	X(cuMemAlloc_v2) X(cuMemFree_v2) X(cuMemHostAlloc) X(cuMemFreeHost) X(cuMemHostGetDevicePointer_v2) \
	X(cuMemGetInfo_v2) X(cuMemGetAddressRange_v2) X(cuMemsetD8Async) X(cuMemcpyHtoDAsync_v2) X(cuMemcpyDtoHAsync_v2) \
	X(cuModuleLoadData) X(cuModuleUnload) X(cuModuleGetFunction) X(cuModuleGetGlobal_v2) X(cuFuncGetAttribute) \
	X(cuLaunchKernel)

#endif
