/*
 * The calls of the driver API, as of CUDA 13.0, that are passed through knowingly, by exported
 * symbol; those for the per-thread default stream (suffix ptds or ptsz) are meant too. What the
 * driver hands out that is neither here nor in hook_table.h is of a later version: it is passed
 * through as well, and the run says so.
 */
#ifndef TT_ENTRY_PASS_TABLE_H
#define TT_ENTRY_PASS_TABLE_H

/* Forms of before CUDA 4.0, most of them with 32-bit sizes and device pointers. */
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

/* They tell, and change nothing. */
#define PASS_QUERIES(X) \
	X(cuArray3DGetDescriptor_v2) X(cuArrayGetDescriptor_v2) X(cuArrayGetMemoryRequirements) \
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
	X(cuMemHostGetFlags) X(cuMemPoolGetAccess) X(cuMemRangeGetAttribute) X(cuMemRangeGetAttributes) \
	X(cuMipmappedArrayGetLevel) X(cuMipmappedArrayGetMemoryRequirements) \
	X(cuMipmappedArrayGetSparseProperties) X(cuModuleEnumerateFunctions) X(cuModuleGetFunctionCount) \
	X(cuModuleGetLoadingMode) X(cuMulticastGetGranularity) X(cuOccupancyAvailableDynamicSMemPerBlock) \
	X(cuOccupancyMaxActiveBlocksPerMultiprocessor) \
	X(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags) X(cuOccupancyMaxActiveClusters) \
	X(cuOccupancyMaxPotentialBlockSize) X(cuOccupancyMaxPotentialBlockSizeWithFlags) \
	X(cuOccupancyMaxPotentialClusterSize) X(cuStreamGetAttribute) X(cuStreamGetCaptureInfo) \
	X(cuStreamGetCaptureInfo_v2) X(cuStreamGetCaptureInfo_v3) X(cuStreamGetCtx_v2) X(cuStreamGetDevice) \
	X(cuStreamGetFlags) X(cuStreamGetGreenCtx) X(cuStreamGetId)

/* Contexts are found when they are used, and an epoch waits for all streams, however they are ordered. */
#define PASS_CONTEXTS(X) \
	X(cuCtxAttach) X(cuCtxCreate) X(cuCtxCreate_v2) X(cuCtxCreate_v3) X(cuCtxCreate_v4) X(cuCtxDetach) \
	X(cuCtxRecordEvent) X(cuCtxResetPersistingL2Cache) X(cuCtxSetCacheConfig) X(cuCtxSetCurrent) \
	X(cuCtxSetFlags) X(cuCtxSetLimit) X(cuCtxSetSharedMemConfig) X(cuCtxWaitEvent) \
	X(cuDevResourceGenerateDesc) X(cuDevSmResourceSplitByCount) X(cuDevicePrimaryCtxSetFlags_v2) \
	X(cuGreenCtxCreate) X(cuGreenCtxRecordEvent) X(cuGreenCtxStreamCreate) X(cuGreenCtxWaitEvent)

/* Nothing is submitted. */
#define PASS_STREAMS(X) \
	X(cuStreamCopyAttributes) X(cuStreamSetAttribute) X(cuStreamUpdateCaptureDependencies) \
	X(cuStreamUpdateCaptureDependencies_v2)

/* Code is seen when it is loaded, functions when they are looked up or launched. */
#define PASS_CODE(X) \
	X(cuFuncSetAttribute) X(cuFuncSetSharedMemConfig) \
	X(cuKernelSetAttribute) X(cuLinkAddData) \
	X(cuLinkAddFile) X(cuLinkAddFile_v2) X(cuLinkCreate)

/* The parameters of cuLaunch and cuLaunchGrid, one by one: those launches are recorded without. */
#define PASS_OLD_LAUNCHES(X) \
	X(cuFuncSetBlockShape) X(cuFuncSetSharedSize) X(cuParamSetSize) X(cuParamSetf) X(cuParamSeti) \
	X(cuParamSetv)

/* A graph is read when it is instantiated; until then it may change as it likes. */
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

/* Views of memory; what is written through them are arrays, whose contents are not captured. */
#define PASS_TEXTURES(X) \
	X(cuParamSetTexRef) \
	X(cuSurfObjectGetResourceDesc) X(cuSurfRefGetArray) X(cuSurfRefSetArray) \
	X(cuTensorMapEncodeIm2col) X(cuTensorMapEncodeIm2colWide) X(cuTensorMapEncodeTiled) \
	X(cuTensorMapReplaceAddress) \
	X(cuTexObjectGetResourceDesc) X(cuTexObjectGetResourceViewDesc) X(cuTexObjectGetTextureDesc) \
	X(cuTexRefCreate) X(cuTexRefDestroy) X(cuTexRefGetAddressMode) X(cuTexRefGetAddress_v2) \
	X(cuTexRefGetArray) X(cuTexRefGetBorderColor) X(cuTexRefGetFilterMode) X(cuTexRefGetFlags) \
	X(cuTexRefGetFormat) X(cuTexRefGetMaxAnisotropy) X(cuTexRefGetMipmapFilterMode) \
	X(cuTexRefGetMipmapLevelBias) X(cuTexRefGetMipmapLevelClamp) X(cuTexRefGetMipmappedArray) \
	X(cuTexRefSetAddress2D_v2) X(cuTexRefSetAddress2D_v3) X(cuTexRefSetAddressMode) \
	X(cuTexRefSetAddress_v2) X(cuTexRefSetArray) X(cuTexRefSetBorderColor) X(cuTexRefSetFilterMode) \
	X(cuTexRefSetFlags) X(cuTexRefSetFormat) X(cuTexRefSetMaxAnisotropy) X(cuTexRefSetMipmapFilterMode) \
	X(cuTexRefSetMipmapLevelBias) X(cuTexRefSetMipmapLevelClamp) X(cuTexRefSetMipmappedArray)

/* Where memory lies or may be reached from, or what a pool keeps: its contents stay. */
#define PASS_PLACEMENT(X) \
	X(cuDeviceGraphMemTrim) X(cuDeviceSetGraphMemAttribute) X(cuDeviceSetMemPool) \
	X(cuFlushGPUDirectRDMAWrites) X(cuMemAdvise) X(cuMemAdvise_v2) X(cuMemMapArrayAsync) \
	X(cuMemPoolTrimTo) X(cuMemPrefetchAsync) X(cuMemPrefetchAsync_v2) X(cuMemPrefetchBatchAsync) \
	X(cuMemSetMemPool) X(cuMulticastUnbind) X(cuStreamAttachMemAsync)

/* Handles for other processes and interfaces; the memory behind them is seen where it is mapped. */
#define PASS_SHARING(X) \
	X(cuDestroyExternalMemory) X(cuDestroyExternalSemaphore) X(cuExternalMemoryGetMappedMipmappedArray) \
	X(cuImportExternalMemory) X(cuImportExternalSemaphore) X(cuIpcGetEventHandle) \
	X(cuIpcOpenEventHandle) X(cuMemGetHandleForAddressRange) \
	X(cuMemPoolExportPointer) X(cuMemPoolExportToShareableHandle) \
	X(cuMemPoolImportFromShareableHandle) X(cuSignalExternalSemaphoresAsync)

/* Memory of graphics interfaces: theirs, and not captured. */
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

/* Tools around the process, and tables that have no description. */
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
