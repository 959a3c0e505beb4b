/* One stream writes to memory and another reads it. The argument says what orders them, if anything. */
#include "program.h"

enum { N = 1000 };

static CUstream one, other;
static CUevent event;
static CUdeviceptr from, to, flag;
static CUfunction fill, copy;

static bool is(const char *word, const char *name)
{
	return !strcmp(word, name);
}

static void writes(CUstream stream)
{
	unsigned n = N, value = 3;

	OK(launch(fill, n, stream, PARAMS(&from, &n, &value)));
}

static void reads(CUstream stream)
{
	unsigned n = N;

	OK(launch(copy, n, stream, PARAMS(&to, &from, &n)));
}

/* One half of the memory each. */
static void halves(void)
{
	CUdeviceptr second = from + N * 2;
	unsigned n = N / 2, value = 3;

	OK(launch(fill, n, one, PARAMS(&second, &n, &value)));
	OK(launch(copy, n, other, PARAMS(&to, &from, &n)));
}

/* set(u32 *p): p[i] = 1, through a pointer that comes from memory of the thread. */
#define HIDDEN(access) \
	PTX_HEADER \
	".visible .entry set(.param .u64 p)\n{\n" \
	".local .align 8 .b8 own[8];\n.reg .b32 %r<3>;\n.reg .b64 %rd<4>;\n" \
	"ld.param.u64 %rd1, [p];\nst.local.u64 [own], %rd1;\nld.local.u64 %rd2, [own];\n" \
	"cvta.to.global.u64 %rd2, %rd2;\nmov.u32 %r1, %tid.x;\n" \
	"mul.wide.u32 %rd3, %r1, 4;\nadd.s64 %rd3, %rd2, %rd3;\n" access "\nret;\n}\n"

static CUfunction get_hidden(const char *text)
{
	CUmodule module;

	OK(cuModuleLoadData(&module, text));
	return get_kernel(module, "set");
}

/* Another kernel of the same name, which only reads. */
static void hidden_twin(void)
{
	CUfunction get = get_hidden(HIDDEN("ld.global.u32 %r2, [%rd3];"));

	OK(cuLaunchKernel(get, 1, 1, 1, 64, 1, 1, 0, one, PARAMS(&from), NULL));
}

static void hidden(bool in_graph)
{
	CUgraph graph;
	CUgraphExec exec;
	CUfunction set = get_hidden(HIDDEN("st.global.u32 [%rd3], 1;"));

	if (in_graph)
		OK(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuLaunchKernel(set, 1, 1, 1, 64, 1, 1, 0, one, PARAMS(&from), NULL));
	if (in_graph) {
		OK(cuStreamEndCapture(one, &graph));
		OK(cuGraphInstantiate(&exec, graph, 0));
		OK(cuGraphLaunch(exec, one));
	}
	reads(other);
}

static void tell(void *unused)
{
	(void)unused;
}

static void waits(const char *how)
{
	if (is(how, "wait") || is(how, "wait-before"))
		OK(cuStreamWaitEvent(other, event, 0));
	else if (is(how, "event-query"))
		while (cuEventQuery(event) == CUDA_ERROR_NOT_READY)
			;
	else if (is(how, "stream-query"))
		while (cuStreamQuery(one) == CUDA_ERROR_NOT_READY)
			;
	else if (is(how, "event-sync"))
		OK(cuEventSynchronize(event));
	else if (is(how, "stream-sync"))
		OK(cuStreamSynchronize(one));
	else if (is(how, "host-function"))
		OK(cuLaunchHostFunc(one, tell, NULL));
	else if (is(how, "other-sync"))
		OK(cuStreamSynchronize(other));
	else if (is(how, "value"))
		OK(cuStreamWaitValue32(other, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
}

/* A graph of both, whose branches wait for each other or not. */
static void in_graph(bool waiting)
{
	CUgraph graph;
	CUgraphExec exec;
	CUevent joined;

	OK(cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING));
	OK(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuMemsetD8Async(to, 0, 4, one));
	if (waiting)
		writes(one);
	OK(cuEventRecord(event, one));
	OK(cuStreamWaitEvent(other, event, 0));
	if (!waiting)
		writes(one);
	reads(other);
	OK(cuEventRecord(joined, other));
	OK(cuStreamWaitEvent(one, joined, 0));
	OK(cuStreamEndCapture(one, &graph));
	OK(cuGraphInstantiate(&exec, graph, 0));
	for (unsigned i = 0; i < 3; i++)
		OK(cuGraphLaunch(exec, i % 2 ? one : other));
	OK(cuCtxSynchronize());
}

/* Memory of the order of streams, which is freed where it may still be read. */
static void with_free(bool waiting)
{
	CUdeviceptr p;
	unsigned n = N;

	OK(cuMemAllocAsync(&p, N * 4, one));
	OK(launch(copy, n, one, PARAMS(&p, &from, &n)));
	if (waiting) {
		OK(cuEventRecord(event, one));
		OK(cuStreamWaitEvent(other, event, 0));
	}
	OK(cuMemFreeAsync(p, other));
}

/* Memory of the host that a copy reads while another writes to it. */
static void with_host(bool waiting)
{
	void *host;

	OK(cuMemAllocHost(&host, N * 4));
	OK(cuMemcpyHtoDAsync(to, host, N * 4, one));
	if (waiting) {
		OK(cuEventRecord(event, one));
		OK(cuStreamWaitEvent(other, event, 0));
	}
	OK(cuMemcpyDtoHAsync(host, from, N * 4, other));
	OK(cuCtxSynchronize());
	OK(cuMemFreeHost(host));
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "none";

	start();
	CUmodule module = load_kernels();
	fill = get_kernel(module, "fill");
	copy = get_kernel(module, "copy");
	from = allocate(N * 4);
	to = allocate(N * 4);
	flag = allocate(4);
	OK(cuMemsetD8(from, 0, N * 4));
	OK(cuMemsetD8(flag, 0, 4));
	OK(cuCtxSynchronize());
	OK(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	if (is(how, "graph") || is(how, "graph-wait"))
		in_graph(is(how, "graph-wait"));
	else if (is(how, "free") || is(how, "free-wait"))
		with_free(is(how, "free-wait"));
	else if (is(how, "host") || is(how, "host-wait"))
		with_host(is(how, "host-wait"));
	else if (is(how, "halves"))
		halves();
	else if (is(how, "hidden-twin")) {
		hidden_twin();
		hidden(false);
	} else if (is(how, "hidden") || is(how, "hidden-graph"))
		hidden(is(how, "hidden-graph"));
	else {
		if (is(how, "wait-before"))
			waits(how);
		writes(one);
		OK(cuEventRecord(event, one));
		if (is(how, "value"))
			OK(cuStreamWriteValue32(one, flag, 1, 0));
		if (!is(how, "wait-before"))
			waits(how);
		reads(is(how, "same") ? one : other);
	}
	OK(cuCtxSynchronize());
	printf("done\n");
	return 0;
}
