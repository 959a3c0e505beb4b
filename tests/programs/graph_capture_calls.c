/*
 * Calls that a thread may make while it captures a stream in global mode, and calls that invalidate the
 * capture.
 */
#include "program.h"

static CUstream stream, other;
static CUdeviceptr data;

static void begin(void)
{
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuMemsetD8Async(data, 1, 100, stream));
}

static void end(const char *call, CUresult r)
{
	CUgraph graph = NULL;
	CUresult ended = cuStreamEndCapture(stream, &graph);

	printf("%s -> %s, the capture %s\n", call, result_name(r), result_name(ended));
	fflush(stdout);
	if (graph)
		OK(cuGraphDestroy(graph));
}

#define DURING(call) (begin(), end(#call, (call)))

static void memory(void)
{
	static char page[8192] __attribute__((aligned(4096)));
	CUdeviceptr p = allocate(100), q = 0, managed = 0, base;
	void *pinned = NULL, *more = NULL;
	unsigned type;
	size_t size, total;
	unsigned char out[4];

	OK(cuMemAllocHost(&pinned, 100));
	DURING(cuMemAlloc(&q, 100));
	DURING(cuMemFree(p));
	DURING(cuMemFree(0));
	DURING(cuMemAllocHost(&more, 100));
	DURING(cuMemFreeHost(pinned));
	DURING(cuMemAllocManaged(&managed, 100, CU_MEM_ATTACH_GLOBAL));
	DURING(cuMemHostRegister(page, sizeof(page), 0));
	DURING(cuMemGetInfo(&size, &total));
	DURING(cuMemGetAddressRange(&base, &size, data));
	DURING(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, data));
	DURING(cuMemcpyHtoD(data, "abcd", 4));
	DURING(cuMemcpyDtoH(out, data, 4));
	DURING(cuMemcpyDtoD(data + 50, data, 4));
	DURING(cuMemsetD8(data, 2, 4));
	DURING(cuMemcpyHtoDAsync(data, "abcd", 4, other));
	DURING(cuMemcpyDtoHAsync(out, data, 4, other));
	DURING(cuMemsetD8Async(data, 2, 4, other));
	DURING(cuMemsetD8Async(data, 2, 4, NULL));
}

static void pools(CUdevice device)
{
	CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
	};
	CUmemAllocationProp physical = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
	};
	CUmemGenericAllocationHandle memory;
	CUmemoryPool standard, pool;
	cuuint64_t value = 0;
	CUdeviceptr p, range;
	size_t size = 2 << 20;

	OK(cuDeviceGetDefaultMemPool(&standard, device));
	OK(cuMemPoolCreate(&pool, &props));
	DURING(cuMemAllocAsync(&p, 100, other));
	OK(cuMemAllocAsync(&p, 100, other));
	DURING(cuMemFreeAsync(p, other));
	DURING(cuMemPoolGetAttribute(standard, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
	DURING(cuMemPoolSetAttribute(standard, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
	DURING(cuMemPoolTrimTo(standard, 0));
	DURING(cuMemPoolDestroy(pool));
	DURING(cuMemPoolCreate(&pool, &props));
	OK(cuMemAddressReserve(&range, size, 0, 0, 0));
	OK(cuMemCreate(&memory, size, &physical, 0));
	DURING(cuMemMap(range, size, 0, memory, 0));
	DURING(cuMemAddressReserve(&range, size, 0, 0, 0));
	DURING(cuMemCreate(&memory, size, &physical, 0));
}

static void code(void)
{
	unsigned n = 10, value = 4;
	CUmodule module = load_kernels(), loaded;
	CUfunction fill = get_kernel(module, "fill"), f;
	CUlibrary library;
	CUdeviceptr p;
	size_t size;
	int answer;

	DURING(cuModuleLoadData(&loaded, KERNELS));
	DURING(cuModuleGetFunction(&f, module, "add"));
	DURING(cuModuleGetGlobal(&p, &size, module, "counter"));
	DURING(cuLibraryLoadData(&library, KERNELS, NULL, NULL, 0, NULL, NULL, 0));
	DURING(cuFuncGetAttribute(&answer, CU_FUNC_ATTRIBUTE_NUM_REGS, fill));
	DURING(cuFuncSetAttribute(fill, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1000));
	DURING(cuOccupancyMaxActiveBlocksPerMultiprocessor(&answer, fill, 64, 0));
	DURING(launch(fill, n, other, PARAMS(&data, &n, &value)));
	DURING(launch(fill, n, NULL, PARAMS(&data, &n, &value)));
	DURING(cuModuleUnload(module));
}

static void order(CUdevice device)
{
	CUstream made = NULL, gone;
	CUevent event, first, last, timed = NULL;
	CUcontext current;
	float ms;
	int answer;
	size_t size;

	OK(cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	OK(cuEventCreate(&first, CU_EVENT_DEFAULT));
	OK(cuEventCreate(&last, CU_EVENT_DEFAULT));
	OK(cuEventRecord(first, other));
	OK(cuEventRecord(last, other));
	OK(cuStreamSynchronize(other));
	DURING(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
	DURING(cuStreamDestroy(gone));
	DURING(cuStreamGetPriority(other, &answer));
	DURING(cuStreamSynchronize(other));
	DURING(cuStreamQuery(other));
	DURING(cuStreamWaitEvent(other, last, 0));
	DURING(cuEventCreate(&timed, CU_EVENT_DEFAULT));
	DURING(cuEventRecord(event, other));
	DURING(cuEventQuery(last));
	DURING(cuEventSynchronize(last));
	DURING(cuEventElapsedTime(&ms, first, last));
	DURING(cuEventDestroy(event));
	DURING(cuCtxGetCurrent(&current));
	DURING(cuCtxSetCurrent(current));
	DURING(cuCtxGetLimit(&size, CU_LIMIT_STACK_SIZE));
	DURING(cuDevicePrimaryCtxRetain(&current, device));
	DURING(cuCtxSynchronize());
}

static void graphs(void)
{
	CUgraph graph, made;
	CUgraphExec executable, more;
	CUgraphNode node;

	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddEmptyNode(&node, graph, NULL, 0));
	OK(cuGraphInstantiate(&executable, graph, 0));
	DURING(cuGraphCreate(&made, 0));
	DURING(cuGraphAddEmptyNode(&node, graph, NULL, 0));
	DURING(cuGraphInstantiate(&more, graph, 0));
	DURING(cuGraphUpload(executable, other));
	DURING(cuGraphLaunch(executable, other));
	DURING(cuGraphLaunch(executable, stream));
	DURING(cuGraphExecDestroy(executable));
	DURING(cuGraphDestroy(graph));
}

int main(void)
{
	CUdevice device = start();

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	data = allocate(100);
	memory();
	pools(device);
	code();
	order(device);
	graphs();
	SHOW(cuCtxSynchronize());
	return 0;
}
