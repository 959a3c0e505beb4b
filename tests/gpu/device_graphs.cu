/*
 * Graphs that kernels steer: conditional nodes whose values kernels set (IF, WHILE, SWITCH, one
 * inside the other), and graphs that kernels launch (fire and forget, tail, themselves again).
 * Needs libcudadevrt: nvcc -rdc=true -lcudadevrt.
 */
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call) check((call), #call, __LINE__)

static void check(cudaError_t r, const char *call, int line)
{
	if (r == cudaSuccess)
		return;
	printf("line %d: %s: %s\n", line, call, cudaGetErrorName(r));
	exit(1);
}

/* What the kernels count, and what a replay is to do. */
struct state {
	unsigned often, turns, inner, arms[4], fired, tail, again, launch_result;
	unsigned limit, chosen;
};

__global__ void begin(state *s, cudaGraphConditionalHandle branch, cudaGraphConditionalHandle loop,
		      cudaGraphConditionalHandle arm)
{
	s->often++;
	s->turns = 0;
	cudaGraphSetConditional(branch, s->often % 2);
	cudaGraphSetConditional(loop, s->limit > 0);
	cudaGraphSetConditional(arm, s->chosen);
}

__global__ void turn(state *s, cudaGraphConditionalHandle loop, cudaGraphConditionalHandle inner)
{
	s->turns++;
	cudaGraphSetConditional(loop, s->turns < s->limit);
	cudaGraphSetConditional(inner, s->turns % 3 == 0);
}

__global__ void count(unsigned *counter, unsigned by)
{
	atomicAdd(counter, by);
}

__global__ void launch(state *s, cudaGraphExec_t fired, cudaGraphExec_t tail)
{
	cudaError_t r = cudaGraphLaunch(fired, cudaStreamGraphFireAndForget);

	if (r == cudaSuccess)
		r = cudaGraphLaunch(tail, cudaStreamGraphTailLaunch);
	s->launch_result = r;
}

__global__ void repeat(state *s)
{
	if (++s->again % 5)
		cudaGraphLaunch(cudaGetCurrentGraphExec(), cudaStreamGraphTailLaunch);
}

static cudaGraphNode_t add_kernel(cudaGraph_t graph, const cudaGraphNode_t *after, void *f, void **params)
{
	cudaKernelNodeParams k = {};
	cudaGraphNode_t node;

	k.func = f;
	k.gridDim = k.blockDim = dim3(1);
	k.kernelParams = params;
	CHECK(cudaGraphAddKernelNode(&node, graph, after, after ? 1 : 0, &k));
	return node;
}

static cudaGraphNode_t add_count(cudaGraph_t graph, const cudaGraphNode_t *after, unsigned *counter, unsigned by)
{
	void *params[] = {&counter, &by};

	return add_kernel(graph, after, (void *)count, params);
}

static cudaGraph_t *add_condition(cudaGraph_t graph, cudaGraphNode_t *after, cudaGraphConditionalHandle handle,
				  cudaGraphConditionalNodeType type, unsigned bodies)
{
	cudaGraphNodeParams p = {};
	cudaGraphNode_t node;

	p.type = cudaGraphNodeTypeConditional;
	p.conditional.handle = handle;
	p.conditional.type = type;
	p.conditional.size = bodies;
#if CUDART_VERSION >= 13000
	CHECK(cudaGraphAddNode(&node, graph, after, NULL, after ? 1 : 0, &p));
#else
	CHECK(cudaGraphAddNode(&node, graph, after, after ? 1 : 0, &p));
#endif
	if (after)
		*after = node;
	return p.conditional.phGraph_out;
}

static void conditions(state *s, cudaStream_t stream)
{
	cudaGraphConditionalHandle branch, loop, inner, arm;
	cudaGraphExec_t executable;
	cudaGraph_t graph, *bodies;

	CHECK(cudaGraphCreate(&graph, 0));
	CHECK(cudaGraphConditionalHandleCreate(&branch, graph, 0, cudaGraphCondAssignDefault));
	CHECK(cudaGraphConditionalHandleCreate(&loop, graph, 0, cudaGraphCondAssignDefault));
	CHECK(cudaGraphConditionalHandleCreate(&arm, graph, 0, cudaGraphCondAssignDefault));
	void *params[] = {&s, &branch, &loop, &arm};
	cudaGraphNode_t last = add_kernel(graph, NULL, (void *)begin, params);
	bodies = add_condition(graph, &last, branch, cudaGraphCondTypeIf, 1);
	add_count(bodies[0], NULL, &s->arms[3], 1);
	bodies = add_condition(graph, &last, loop, cudaGraphCondTypeWhile, 1);
	cudaGraph_t body = bodies[0];
	CHECK(cudaGraphConditionalHandleCreate(&inner, body, 0, 0));
	void *turn_params[] = {&s, &loop, &inner};
	cudaGraphNode_t turned = add_kernel(body, NULL, (void *)turn, turn_params);
	bodies = add_condition(body, &turned, inner, cudaGraphCondTypeIf, 1);
	add_count(bodies[0], NULL, &s->inner, 1);
	bodies = add_condition(graph, &last, arm, cudaGraphCondTypeSwitch, 3);
	for (unsigned i = 0; i < 3; i++)
		add_count(bodies[i], NULL, &s->arms[i], i + 1);
	CHECK(cudaGraphInstantiate(&executable, graph, 0));
	for (unsigned i = 0; i < 6; i++) {
		CHECK(cudaMemcpy(&s->limit, &i, sizeof(i), cudaMemcpyHostToDevice));
		unsigned chosen = i % 4;
		CHECK(cudaMemcpy(&s->chosen, &chosen, sizeof(chosen), cudaMemcpyHostToDevice));
		state now;
		CHECK(cudaGraphLaunch(executable, stream));
		CHECK(cudaStreamSynchronize(stream));
		CHECK(cudaMemcpy(&now, s, sizeof(now), cudaMemcpyDeviceToHost));
		printf("replay %u: turns %u, inner %u, arms %u %u %u %u\n", i, now.turns, now.inner, now.arms[0], now.arms[1],
		       now.arms[2], now.arms[3]);
	}
	CHECK(cudaGraphExecDestroy(executable));
	CHECK(cudaGraphDestroy(graph));
}

static cudaGraphExec_t for_device(cudaGraph_t graph, cudaStream_t stream)
{
	cudaGraphExec_t executable;

	CHECK(cudaGraphInstantiate(&executable, graph, cudaGraphInstantiateFlagDeviceLaunch));
	CHECK(cudaGraphUpload(executable, stream));
	CHECK(cudaStreamSynchronize(stream));
	return executable;
}

static void launches(state *s, cudaStream_t stream)
{
	cudaGraph_t graphs[4];
	cudaGraphExec_t executables[4];
	state now;

	for (unsigned i = 0; i < 4; i++)
		CHECK(cudaGraphCreate(&graphs[i], 0));
	add_count(graphs[0], NULL, &s->fired, 1);
	add_count(graphs[1], NULL, &s->tail, 10);
	executables[0] = for_device(graphs[0], stream);
	executables[1] = for_device(graphs[1], stream);
	void *params[] = {&s, &executables[0], &executables[1]};
	add_kernel(graphs[2], NULL, (void *)launch, params);
	CHECK(cudaGraphInstantiate(&executables[2], graphs[2], 0));
	void *repeat_params[] = {&s};
	add_kernel(graphs[3], NULL, (void *)repeat, repeat_params);
	executables[3] = for_device(graphs[3], stream);
	for (unsigned i = 0; i < 3; i++) {
		CHECK(cudaGraphLaunch(executables[2], stream));
		CHECK(cudaGraphLaunch(executables[3], stream));
		CHECK(cudaStreamSynchronize(stream));
		CHECK(cudaMemcpy(&now, s, sizeof(now), cudaMemcpyDeviceToHost));
		printf("launch %u: result %u, fired %u, tail %u, again %u\n", i, now.launch_result, now.fired, now.tail,
		       now.again);
	}
	for (unsigned i = 0; i < 4; i++) {
		CHECK(cudaGraphExecDestroy(executables[i]));
		CHECK(cudaGraphDestroy(graphs[i]));
	}
}

int main(void)
{
	cudaStream_t stream;
	state *s;

	CHECK(cudaMalloc(&s, sizeof(*s)));
	CHECK(cudaMemset(s, 0, sizeof(*s)));
	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	CHECK(cudaDeviceSynchronize());
	conditions(s, stream);
	launches(s, stream);
	CHECK(cudaStreamDestroy(stream));
	CHECK(cudaFree(s));
	return 0;
}
