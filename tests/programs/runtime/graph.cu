// 30 1
// A captured graph.
#include "check.h"

__global__ void bump(int *p, int by) { *p += by; }

int main()
{
	int *p, h;
	size_t nodes;
	cudaStream_t s;
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	OK(cudaMalloc(&p, 4));
	OK(cudaMemset(p, 0, 4));
	OK(cudaStreamCreate(&s));
	OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
	bump<<<1, 1, 0, s>>>(p, 3);
	OK(cudaStreamEndCapture(s, &graph));
	OK(cudaGraphGetNodes(graph, nullptr, &nodes));
	OK(cudaGraphInstantiate(&exec, graph, 0));
	for (int i = 0; i < 10; i++)
		OK(cudaGraphLaunch(exec, s));
	OK(cudaStreamSynchronize(s));
	OK(cudaMemcpy(&h, p, 4, cudaMemcpyDeviceToHost));
	printf("%d %zu\n", h, nodes);
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(graph));
}
