/*
 * Launches to be exported and tuned: one that strides through its data, one that does not, and some
 * that ask for more than a grid and a block.
 */
#include <cooperative_groups.h>
#include <cstdio>

#define N (1 << 20)
#define OK(call) \
	do { \
		cudaError_t e_ = (call); \
		if (e_ != cudaSuccess) { \
			printf("line %d: %s\n", __LINE__, cudaGetErrorString(e_)); \
			return 1; \
		} \
	} while (0)

__constant__ float factor = 3;
__device__ unsigned long long calls;

extern "C" __global__ void strided(const float *p, float *q, int n)
{
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		q[i] = sqrtf(p[i]) * factor + 1;
}
__global__ void sums(const float *p, float *q, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	__shared__ float all;

	if (!threadIdx.x)
		all = 0;
	__syncthreads();
	if (i < n && threadIdx.x % 32 == 0)
		atomicAdd(&all, 1.0f);
	__syncthreads();
	if (!threadIdx.x)
		q[blockIdx.x] = all;
}
__global__ void follow(float **table, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		table[1][i] += table[0][i];
	if (!i)
		calls++;
}
__global__ void reversed(float *p)
{
	extern __shared__ float s[];

	s[threadIdx.x * 48] = p[threadIdx.x];
	__syncthreads();
	p[threadIdx.x] = s[(blockDim.x - 1 - threadIdx.x) * 48];
}
__global__ void __cluster_dims__(1) single(float *p) { p[threadIdx.x] += 1; }
__global__ void clustered(float *p)
{
	cooperative_groups::cluster_group c = cooperative_groups::this_cluster();

	c.sync();
	p[blockIdx.x * blockDim.x + threadIdx.x] += c.block_rank() + 1;
}
__global__ void together(float *p)
{
	p[blockIdx.x] = 1;
	cooperative_groups::this_grid().sync();
	if (!blockIdx.x)
		for (unsigned i = 1; i < gridDim.x; i++)
			p[0] += p[i];
}

int main(void)
{
	static float items[N];
	float *p, *q, **table, *entries[2];
	int n = N, few = 4096;

	for (int i = 0; i < N; i++)
		items[i] = i * 0.25f;
	OK(cudaMalloc(&p, sizeof items));
	OK(cudaMalloc(&q, sizeof items));
	OK(cudaMalloc(&table, sizeof entries));
	OK(cudaMemcpy(p, items, sizeof items, cudaMemcpyHostToDevice));
	strided<<<64, 128>>>(p, q, n);
	sums<<<N / 256, 256>>>(p, q, n);
	entries[0] = p;
	entries[1] = q;
	OK(cudaMemcpy(table, entries, sizeof entries, cudaMemcpyHostToDevice));
	follow<<<few / 256, 256>>>(table, few);
	OK(cudaFuncSetAttribute(reversed, cudaFuncAttributeMaxDynamicSharedMemorySize, 98304));
	reversed<<<1, 512, 512 * 48 * 4>>>(q);
	single<<<1, 256>>>(p);

	cudaLaunchAttribute size;
	size.id = cudaLaunchAttributeClusterDimension;
	size.val.clusterDim.x = 4;
	size.val.clusterDim.y = size.val.clusterDim.z = 1;
	cudaLaunchConfig_t config = {};
	config.gridDim = dim3(8);
	config.blockDim = dim3(128);
	config.attrs = &size;
	config.numAttrs = 1;
	OK(cudaLaunchKernelEx(&config, clustered, p));
	void *arguments[] = {&q};
	OK(cudaLaunchCooperativeKernel((void *)together, dim3(32), dim3(64), arguments, 0, 0));
	OK(cudaDeviceSynchronize());
	printf("done\n");
	return 0;
}
