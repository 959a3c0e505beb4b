/*
 * Every driver call that the recorder knows, once.
 *
 * HOOK_TABLE lists the intercepted calls by exported symbol. The symbol contains version and
 * default-stream flavour, and the driver returns the same address for it through dlsym and through
 * cuGetProcAddress. So a call is recognised by its address, never by a version number, which a
 * newer driver may interpret differently.
 *
 * CALL_TABLE lists further calls that the recorder makes itself. NEED_TABLE lists those of both
 * that are required. The recorder checks each of the others before it calls it.
 *
 * PASS_TABLE lists the other calls of CUDA 13.0, with those for the per-thread default stream
 * (suffix ptds or ptsz). They pass through knowingly. A call in no table belongs to a later
 * version: it passes through too, and the run says so.
 */
#ifndef TT_DRIVER_CALL_TABLE_H
#define TT_DRIVER_CALL_TABLE_H

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
	X(cuStreamSynchronize##S) X(cuStreamQuery##S) X(cuStreamWaitEvent##S) X(cuEventRecord##S) X(cuEventRecordWithFlags##S) \
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
	X(cuDeviceSetMemPool) X(cuMemSetMemPool) \
	X(cuArrayCreate_v2) X(cuArray3DCreate_v2) X(cuArrayDestroy) \
	X(cuMipmappedArrayCreate) X(cuMipmappedArrayDestroy) \
	X(cuIpcGetMemHandle) X(cuIpcOpenMemHandle) X(cuIpcOpenMemHandle_v2) X(cuIpcCloseMemHandle) \
	X(cuMemPoolImportPointer) X(cuExternalMemoryGetMappedBuffer) \
	X(cuModuleLoad) X(cuModuleLoadData) X(cuModuleLoadDataEx) X(cuModuleLoadFatBinary) X(cuModuleUnload) \
	X(cuModuleGetFunction) X(cuModuleGetGlobal_v2) X(cuModuleGetTexRef) X(cuModuleGetSurfRef) \
	X(cuFuncSetCacheConfig) X(cuKernelSetCacheConfig) X(cuLibraryEnumerateKernels) \
	X(cuTexObjectCreate) X(cuTexObjectDestroy) X(cuSurfObjectCreate) X(cuSurfObjectDestroy) \
	X(cuTensorMapEncodeIm2col) X(cuTensorMapEncodeTiled) X(cuTensorMapReplaceAddress) \
	X(cuLibraryLoadData) X(cuLibraryLoadFromFile) X(cuLibraryUnload) \
	X(cuLibraryGetKernel) X(cuKernelGetFunction) X(cuLibraryGetModule) X(cuLibraryGetGlobal) X(cuLibraryGetManaged) \
	X(cuLaunch) X(cuLaunchGrid) X(cuLaunchGridAsync) X(cuLaunchCooperativeKernelMultiDevice) \
	X(cuStreamCreate) X(cuStreamCreateWithPriority) X(cuStreamDestroy) X(cuStreamDestroy_v2) \
	X(cuEventSynchronize) X(cuEventQuery) X(cuEventDestroy) X(cuEventDestroy_v2) \
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
	X(cuStreamGetCtx) X(cuStreamIsCapturing) X(cuThreadExchangeStreamCaptureMode) \
	X(cuEventCreate) X(cuEventElapsedTime) \
	X(cuFuncGetName) X(cuFuncLoad) X(cuFuncGetModule) X(cuFuncGetAttribute) X(cuFuncSetAttribute) \
	X(cuFuncGetParamInfo) X(cuKernelGetName) X(cuKernelGetLibrary) X(cuKernelGetParamInfo) X(cuKernelGetAttribute) \
	X(cuLinkCreate_v2) X(cuLinkAddData_v2) X(cuLinkComplete) X(cuLinkDestroy) \
	X(cuMemHostGetDevicePointer_v2) X(cuArray3DGetDescriptor_v2) \
	X(cuMemAddressReserve) X(cuMemRelease) X(cuMemGetAllocationGranularity) \
	X(cuMemExportToShareableHandle) \
	X(cuDeviceGetMemPool) X(cuDeviceGetDefaultMemPool) X(cuMemPoolGetAccess) X(cuDeviceCanAccessPeer) \
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

/* ---- passed through ---- */

/*
 * What a run does not show of them: the table of docs/limits/driver-calls.md, which make docs takes
 * from here.
 *
 * - `cuEventCreate`, `cuCtxRecordEvent`, `cuCtxWaitEvent`, `cuGreenCtxRecordEvent`, `cuGreenCtxWaitEvent`:
 *   No event in the run. Epochs wait for all streams with work, however the program orders them.
 * - `cuCtxCreate` in all versions, `cuCtxSetCurrent`, `cuCtxPushCurrent_v2`, `cuGreenCtxCreate`,
 *     `cuGreenCtxStreamCreate`:
 *   No event: contexts and streams appear when they are used. Memory allocated under a green context ends
 *   with that context in the run.
 * - `cuCtxAttach`, `cuCtxDetach`:
 *   Obsolete since CUDA 4.0. If `cuCtxDetach` ends a context, data that is not yet on disk is lost.
 * - `cuGraph…`, except calls on executable graphs (`cuGraphInstantiate…`, `cuGraphExec…`,
 *     `cuGraphNodeSetEnabled`, `cuGraphLaunch`):
 *   How a graph is made. It is read when it is instantiated.
 * - `cuMemPrefetchAsync`, `cuMemPrefetchBatchAsync`, `cuMemAdvise`, `cuStreamAttachMemAsync`:
 *   No event. Contents do not change.
 * - `cuMemMapArrayAsync`, `cuTexRef…`, `cuSurfRef…`, `cuExternalMemoryGetMappedMipmappedArray`:
 *   Arrays: their contents are not captured.
 * - `cuMulticast…`:
 *   An address mapped from a multicast object is no region. Writes through it show in the memory behind it,
 *   if that is mapped itself; with `--regions touched` only in the next full snapshot.
 * - `cuSignalExternalSemaphoresAsync`, `cuIpcGetEventHandle`, `cuIpcOpenEventHandle`:
 *   The order between processes.
 * - `cuGraphics…`, `cuGL…`, `cuEGL…`, `cuVDPAU…`:
 *   Memory of graphics interfaces.
 * - `cuParamSet…`, `cuFuncSetBlockShape`, `cuFuncSetSharedSize`:
 *   The parameters of `cuLaunch` and `cuLaunchGrid`.
 * - `cuCheckpointProcess…`:
 *   Moving a recorded process off the GPU and back is not tested.
 * - `cuGetExportTable`:
 *   Work through the driver's internal tables.
 * - forms from before CUDA 4.0 (`cuMemAlloc` without `_v2`, …):
 *   Device pointers of 32 bits.
 */

/* Calls from before CUDA 4.0, most of them with 32-bit sizes and device pointers. */
#define PASS_32_BIT(X) \
	X(cuArray3DCreate) X(cuArray3DGetDescriptor) X(cuArrayCreate) X(cuArrayGetDescriptor) \
	X(cuCtxPopCurrent) X(cuCtxPushCurrent) X(cuDevicePrimaryCtxSetFlags) X(cuDeviceTotalMem) \
	X(cuMemAlloc) X(cuMemAllocHost) X(cuMemAllocPitch) X(cuMemFree) \
	X(cuMemGetAddressRange) X(cuMemGetInfo) X(cuMemHostGetDevicePointer) X(cuMemcpy2D) \
	X(cuMemcpy2DAsync) X(cuMemcpy2DUnaligned) X(cuMemcpy3D) X(cuMemcpy3DAsync) X(cuMemcpyAtoA) \
	X(cuMemcpyAtoD) X(cuMemcpyAtoH) X(cuMemcpyAtoHAsync) X(cuMemcpyDtoA) X(cuMemcpyDtoD) \
	X(cuMemcpyDtoDAsync) X(cuMemcpyDtoH) X(cuMemcpyDtoHAsync) X(cuMemcpyHtoA) X(cuMemcpyHtoAAsync) \
	X(cuMemcpyHtoD) X(cuMemcpyHtoDAsync) X(cuMemsetD16) X(cuMemsetD2D16) X(cuMemsetD2D32) \
	X(cuMemsetD2D8) X(cuMemsetD32) X(cuMemsetD8) X(cuModuleGetGlobal) X(cuTexRefGetAddress) \
	X(cuTexRefSetAddress) X(cuTexRefSetAddress2D)

/* Queries: they change nothing. */
#define PASS_QUERIES(X) \
	X(cuArrayGetDescriptor_v2) X(cuArrayGetMemoryRequirements) \
	X(cuArrayGetPlane) X(cuArrayGetSparseProperties) X(cuCtxGetApiVersion) \
	X(cuCtxGetDevResource) X(cuCtxGetDevice_v2) X(cuCtxGetExecAffinity) X(cuCtxGetFlags) X(cuCtxGetId) \
	X(cuCtxGetSharedMemConfig) X(cuCtxGetStreamPriorityRange) \
	X(cuDeviceComputeCapability) X(cuDeviceGetByPCIBusId) X(cuDeviceGetDevResource) \
	X(cuDeviceGetExecAffinitySupport) X(cuDeviceGetGraphMemAttribute) \
	X(cuDeviceGetHostAtomicCapabilities) X(cuDeviceGetLuid) X(cuDeviceGetNvSciSyncAttributes) \
	X(cuDeviceGetP2PAtomicCapabilities) X(cuDeviceGetP2PAttribute) X(cuDeviceGetPCIBusId) \
	X(cuDeviceGetProperties) X(cuDeviceGetTexture1DLinearMaxWidth) X(cuDeviceGetUuid) \
	X(cuDeviceGetUuid_v2) X(cuDevicePrimaryCtxGetState) X(cuEventElapsedTime_v2) \
	X(cuFuncIsLoaded) X(cuGetErrorString) X(cuGreenCtxGetDevResource) X(cuGreenCtxGetId) \
	X(cuLibraryGetKernelCount) X(cuLibraryGetUnifiedFunction) \
	X(cuMemGetAllocationPropertiesFromHandle) X(cuMemGetDefaultMemPool) X(cuMemGetMemPool) \
	X(cuMemHostGetFlags) X(cuMemRangeGetAttribute) X(cuMemRangeGetAttributes) \
	X(cuMipmappedArrayGetLevel) X(cuMipmappedArrayGetMemoryRequirements) \
	X(cuMipmappedArrayGetSparseProperties) X(cuModuleEnumerateFunctions) X(cuModuleGetFunctionCount) \
	X(cuModuleGetLoadingMode) X(cuMulticastGetGranularity) X(cuOccupancyAvailableDynamicSMemPerBlock) \
	X(cuOccupancyMaxActiveBlocksPerMultiprocessor) \
	X(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags) X(cuOccupancyMaxActiveClusters) \
	X(cuOccupancyMaxPotentialBlockSize) X(cuOccupancyMaxPotentialBlockSizeWithFlags) \
	X(cuOccupancyMaxPotentialClusterSize) X(cuStreamGetAttribute) X(cuStreamGetCaptureInfo) \
	X(cuStreamGetCaptureInfo_v2) X(cuStreamGetCaptureInfo_v3) X(cuStreamGetCtx_v2) X(cuStreamGetDevice) \
	X(cuStreamGetFlags) X(cuStreamGetGreenCtx) X(cuStreamGetId)

/* Contexts are found when they are used, and an epoch waits for all streams in any order. */
#define PASS_CONTEXTS(X) \
	X(cuCtxAttach) X(cuCtxCreate) X(cuCtxCreate_v2) X(cuCtxCreate_v3) X(cuCtxCreate_v4) X(cuCtxDetach) \
	X(cuCtxRecordEvent) X(cuCtxResetPersistingL2Cache) X(cuCtxSetCacheConfig) X(cuCtxSetCurrent) \
	X(cuCtxSetFlags) X(cuCtxSetLimit) X(cuCtxSetSharedMemConfig) X(cuCtxWaitEvent) \
	X(cuDevResourceGenerateDesc) X(cuDevSmResourceSplitByCount) X(cuDevicePrimaryCtxSetFlags_v2) \
	X(cuGreenCtxCreate) X(cuGreenCtxRecordEvent) X(cuGreenCtxStreamCreate) X(cuGreenCtxWaitEvent)

/* They submit no work. */
#define PASS_STREAMS(X) \
	X(cuStreamCopyAttributes) X(cuStreamSetAttribute) X(cuStreamUpdateCaptureDependencies) \
	X(cuStreamUpdateCaptureDependencies_v2)

/* Code is recorded when it is loaded, functions when they are looked up or launched. */
#define PASS_CODE(X) \
	X(cuFuncSetSharedMemConfig) X(cuKernelSetAttribute) X(cuLinkAddData) \
	X(cuLinkAddFile) X(cuLinkAddFile_v2) X(cuLinkCreate)

/*
 * They set the parameters of cuLaunch and cuLaunchGrid one by one: such launches are recorded without parameters.
 */
#define PASS_OLD_LAUNCHES(X) \
	X(cuFuncSetBlockShape) X(cuFuncSetSharedSize) X(cuParamSetSize) X(cuParamSetf) X(cuParamSeti) \
	X(cuParamSetv)

/* A graph is read when it is instantiated; changes before that do not matter. */
#define PASS_GRAPHS(X) \
	X(cuGraphAddBatchMemOpNode) X(cuGraphAddChildGraphNode) \
	X(cuGraphAddDependencies_v2) X(cuGraphAddEmptyNode) X(cuGraphAddEventRecordNode) \
	X(cuGraphAddEventWaitNode) X(cuGraphAddExternalSemaphoresSignalNode) \
	X(cuGraphAddExternalSemaphoresWaitNode) X(cuGraphAddHostNode) X(cuGraphAddKernelNode) \
	X(cuGraphAddMemAllocNode) X(cuGraphAddMemFreeNode) \
	X(cuGraphAddMemcpyNode) X(cuGraphAddMemsetNode) X(cuGraphBatchMemOpNodeSetParams) \
	X(cuGraphConditionalHandleCreate) X(cuGraphCreate) X(cuGraphDebugDotPrint) \
	X(cuGraphEventRecordNodeSetEvent) X(cuGraphEventWaitNodeSetEvent) \
	X(cuGraphExecGetFlags) \
	X(cuGraphExternalSemaphoresSignalNodeGetParams) X(cuGraphExternalSemaphoresSignalNodeSetParams) \
	X(cuGraphExternalSemaphoresWaitNodeGetParams) X(cuGraphExternalSemaphoresWaitNodeSetParams) \
	X(cuGraphGetRootNodes) X(cuGraphHostNodeSetParams) X(cuGraphKernelNodeCopyAttributes) \
	X(cuGraphKernelNodeSetAttribute) X(cuGraphKernelNodeSetParams) X(cuGraphKernelNodeSetParams_v2) \
	X(cuGraphMemcpyNodeSetParams) X(cuGraphMemsetNodeSetParams) \
	X(cuGraphNodeGetDependentNodes) X(cuGraphNodeGetDependentNodes_v2) X(cuGraphNodeSetParams) X(cuGraphReleaseUserObject) \
	X(cuGraphRetainUserObject) \
	X(cuGraphUpload) X(cuUserObjectCreate) X(cuUserObjectRelease) X(cuUserObjectRetain)

/* Views of memory; writes through them go to arrays, whose contents are not captured. */
#define PASS_TEXTURES(X) \
	X(cuParamSetTexRef) \
	X(cuSurfObjectGetResourceDesc) X(cuSurfRefGetArray) X(cuSurfRefSetArray) \
	X(cuTensorMapEncodeIm2colWide) \
	X(cuTexObjectGetResourceDesc) X(cuTexObjectGetResourceViewDesc) X(cuTexObjectGetTextureDesc) \
	X(cuTexRefCreate) X(cuTexRefDestroy) X(cuTexRefGetAddressMode) X(cuTexRefGetAddress_v2) \
	X(cuTexRefGetArray) X(cuTexRefGetBorderColor) X(cuTexRefGetFilterMode) X(cuTexRefGetFlags) \
	X(cuTexRefGetFormat) X(cuTexRefGetMaxAnisotropy) X(cuTexRefGetMipmapFilterMode) \
	X(cuTexRefGetMipmapLevelBias) X(cuTexRefGetMipmapLevelClamp) X(cuTexRefGetMipmappedArray) \
	X(cuTexRefSetAddress2D_v2) X(cuTexRefSetAddress2D_v3) X(cuTexRefSetAddressMode) \
	X(cuTexRefSetAddress_v2) X(cuTexRefSetArray) X(cuTexRefSetBorderColor) X(cuTexRefSetFilterMode) \
	X(cuTexRefSetFlags) X(cuTexRefSetFormat) X(cuTexRefSetMaxAnisotropy) X(cuTexRefSetMipmapFilterMode) \
	X(cuTexRefSetMipmapLevelBias) X(cuTexRefSetMipmapLevelClamp) X(cuTexRefSetMipmappedArray)

/* They move memory, open it to devices, or set what a pool keeps: contents do not change. */
#define PASS_PLACEMENT(X) \
	X(cuDeviceGraphMemTrim) X(cuDeviceSetGraphMemAttribute) \
	X(cuFlushGPUDirectRDMAWrites) X(cuMemAdvise) X(cuMemAdvise_v2) X(cuMemMapArrayAsync) \
	X(cuMemPoolTrimTo) X(cuMemPrefetchAsync) X(cuMemPrefetchAsync_v2) X(cuMemPrefetchBatchAsync) \
	X(cuMulticastUnbind) X(cuStreamAttachMemAsync)

/* Handles for other processes and interfaces; their memory is recorded when it is mapped. */
#define PASS_SHARING(X) \
	X(cuDestroyExternalMemory) X(cuDestroyExternalSemaphore) X(cuExternalMemoryGetMappedMipmappedArray) \
	X(cuImportExternalMemory) X(cuImportExternalSemaphore) X(cuIpcGetEventHandle) \
	X(cuIpcOpenEventHandle) X(cuMemGetHandleForAddressRange) \
	X(cuMemPoolExportPointer) X(cuMemPoolExportToShareableHandle) \
	X(cuMemPoolImportFromShareableHandle) X(cuSignalExternalSemaphoresAsync)

/* Memory of graphics interfaces, which is not captured. */
#define PASS_GRAPHICS(X) \
	X(cuEGLStreamConsumerAcquireFrame) X(cuEGLStreamConsumerConnect) \
	X(cuEGLStreamConsumerConnectWithFlags) X(cuEGLStreamConsumerDisconnect) \
	X(cuEGLStreamConsumerReleaseFrame) X(cuEGLStreamProducerConnect) X(cuEGLStreamProducerDisconnect) \
	X(cuEGLStreamProducerPresentFrame) X(cuEGLStreamProducerReturnFrame) X(cuEventCreateFromEGLSync) \
	X(cuGLCtxCreate) X(cuGLCtxCreate_v2) X(cuGLGetDevices) X(cuGLGetDevices_v2) X(cuGLInit) \
	X(cuGLMapBufferObject) X(cuGLMapBufferObjectAsync) X(cuGLMapBufferObjectAsync_v2) \
	X(cuGLMapBufferObject_v2) X(cuGLRegisterBufferObject) X(cuGLSetBufferObjectMapFlags) \
	X(cuGLUnmapBufferObject) X(cuGLUnmapBufferObjectAsync) X(cuGLUnregisterBufferObject) \
	X(cuGraphicsEGLRegisterImage) X(cuGraphicsGLRegisterBuffer) X(cuGraphicsGLRegisterImage) \
	X(cuGraphicsMapResources) X(cuGraphicsResourceGetMappedEglFrame) \
	X(cuGraphicsResourceGetMappedMipmappedArray) X(cuGraphicsResourceGetMappedPointer) \
	X(cuGraphicsResourceGetMappedPointer_v2) X(cuGraphicsResourceSetMapFlags) \
	X(cuGraphicsResourceSetMapFlags_v2) X(cuGraphicsSubResourceGetMappedArray) \
	X(cuGraphicsUnmapResources) X(cuGraphicsUnregisterResource) X(cuGraphicsVDPAURegisterOutputSurface) \
	X(cuGraphicsVDPAURegisterVideoSurface) X(cuProfilerInitialize) X(cuProfilerStart) X(cuProfilerStop) \
	X(cuVDPAUCtxCreate) X(cuVDPAUCtxCreate_v2) X(cuVDPAUGetDevice)

/* Tools around the process, and undocumented tables. */
#define PASS_PROCESS(X) \
	X(cuCheckpointProcessCheckpoint) X(cuCheckpointProcessGetRestoreThreadId) \
	X(cuCheckpointProcessGetState) X(cuCheckpointProcessLock) X(cuCheckpointProcessRestore) \
	X(cuCheckpointProcessUnlock) X(cuCoredumpGetAttribute) X(cuCoredumpGetAttributeGlobal) \
	X(cuCoredumpSetAttribute) X(cuCoredumpSetAttributeGlobal) X(cuDeviceRegisterAsyncNotification) \
	X(cuDeviceUnregisterAsyncNotification) X(cuGetExportTable) X(cuLogsCurrent) X(cuLogsDumpToFile) \
	X(cuLogsDumpToMemory) X(cuLogsRegisterCallback) X(cuLogsUnregisterCallback)

#define PASS_TABLE(X) \
	PASS_32_BIT(X) PASS_QUERIES(X) PASS_CONTEXTS(X) PASS_STREAMS(X) PASS_CODE(X) PASS_OLD_LAUNCHES(X) \
	PASS_GRAPHS(X) PASS_TEXTURES(X) PASS_PLACEMENT(X) PASS_SHARING(X) PASS_GRAPHICS(X) PASS_PROCESS(X)

#endif
