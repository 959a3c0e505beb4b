/* The runtime-API version of ../graph.c: the same work, the same output. */
#include "common.h"
#include "../graph.cu"

int main(int argc, char **argv)
{
	struct options o = read_options(argc, argv, options{4096, 5, 1, NO_STEP, false, false, false});
	size_t bytes = (size_t)o.size * sizeof(float);
	float *start = random_floats(o.size, o.seed), *end = (float *)malloc(bytes);
	float *a, *b;
	unsigned long long *sum, *device_sum;
	int n = (int)o.size, blocks = BLOCKS(n);
	cudaStream_t stream;
	cudaGraph_t graph;
	cudaGraphExec_t executable;

	CHECK(cudaMalloc(&a, bytes));
	CHECK(cudaMalloc(&b, bytes));
	CHECK(cudaMalloc(&device_sum, sizeof(*sum)));
	CHECK(cudaMallocHost(&sum, sizeof(*sum)));
	CHECK(cudaMemcpy(a, start, bytes, cudaMemcpyHostToDevice));
	CHECK(cudaMemcpy(b, start, bytes, cudaMemcpyHostToDevice));

	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	CHECK(cudaMemsetAsync(device_sum, 0, sizeof(*sum), stream));
	step<<<blocks, 256, 0, stream>>>(a, b, n);
	step<<<blocks, 256, 0, stream>>>(b, a, n);
	energy<<<blocks, 256, 0, stream>>>(a, device_sum, n);
	CHECK(cudaMemcpyAsync(sum, device_sum, sizeof(*sum), cudaMemcpyDeviceToHost, stream));
	CHECK(cudaStreamEndCapture(stream, &graph));
	CHECK(cudaGraphInstantiate(&executable, graph, 0));

	for (long i = 0; i < o.steps; i++) {
		CHECK(cudaGraphLaunch(executable, stream));
		CHECK(cudaStreamSynchronize(stream));
		printf("step %ld: energy %llu\n", i, *sum);
	}

	CHECK(cudaMemcpy(end, a, bytes, cudaMemcpyDeviceToHost));
	printf("graph: %ld elements, checksum %016llx\n", o.size, (unsigned long long)checksum(end, bytes));
	CHECK(cudaGraphExecDestroy(executable));
	CHECK(cudaGraphDestroy(graph));
	CHECK(cudaStreamDestroy(stream));
	CHECK(cudaFree(a));
	CHECK(cudaFree(b));
	CHECK(cudaFree(device_sum));
	CHECK(cudaFreeHost(sum));
	free(start);
	free(end);
	return 0;
}
