/*
 * Kernels that reach memory and more in all ways there are: variables, constants, textures, surfaces,
 * mapped and managed memory, the device's heap, printf, clusters, a lot of shared memory.
 */
#include <cooperative_groups.h>
#include <cstdio>

#define N 1024
#define OK(call) \
	do { \
		cudaError_t e_ = (call); \
		if (e_ != cudaSuccess) { \
			printf("line %d: %s\n", __LINE__, cudaGetErrorString(e_)); \
			return 1; \
		} \
	} while (0)

__device__ int counter = 7;
__constant__ float weights[4] = {1, 2, 3, 4};
__device__ int *from_heap;

__global__ void plain(float *p) { p[blockIdx.x * blockDim.x + threadIdx.x] += weights[threadIdx.x % 4] + counter; }
__global__ void textured(float *p, cudaTextureObject_t t) { p[threadIdx.x] += tex1Dfetch<float>(t, threadIdx.x); }
__global__ void surfaced(cudaSurfaceObject_t s) { surf1Dwrite(1.5f, s, threadIdx.x * 4); }
__global__ void number(float *p, unsigned long long n) { p[threadIdx.x] += n; }
__global__ void printing(int n) { printf("printed %d\n", n); }
__global__ void allocating()
{
	from_heap = (int *)malloc(64);
	from_heap[3] = 5;
}
__global__ void shared_much(float *p)
{
	extern __shared__ float s[];
	s[threadIdx.x * 48] = p[threadIdx.x];
	__syncthreads();
	p[threadIdx.x] = s[(blockDim.x - 1 - threadIdx.x) * 48];
}
__global__ void clustered(float *p)
{
	cooperative_groups::cluster_group c = cooperative_groups::this_cluster();
	c.sync();
	p[blockIdx.x * blockDim.x + threadIdx.x] += c.block_rank();
}

int main(void)
{
	float *p, *mapped, *managed;
	cudaArray_t array;
	cudaTextureObject_t texture;
	cudaSurfaceObject_t surface;

	OK(cudaMalloc(&p, N * 4));
	OK(cudaMemset(p, 0, N * 4));
	plain<<<4, 256>>>(p);

	cudaResourceDesc linear = {};
	linear.resType = cudaResourceTypeLinear;
	linear.res.linear.devPtr = p;
	linear.res.linear.desc = cudaCreateChannelDesc<float>();
	linear.res.linear.sizeInBytes = N * 4;
	cudaTextureDesc how = {};
	OK(cudaCreateTextureObject(&texture, &linear, &how, NULL));
	textured<<<1, 256>>>(p, texture);
	number<<<1, 256>>>(p, texture); /* is no texture, but as one */
	printf("~ texture object %llu\n", (unsigned long long)texture);
	cudaChannelFormatDesc floats = cudaCreateChannelDesc<float>();
	OK(cudaMallocArray(&array, &floats, N, 0, cudaArraySurfaceLoadStore));
	cudaResourceDesc of_array = {};
	of_array.resType = cudaResourceTypeArray;
	of_array.res.array.array = array;
	OK(cudaCreateSurfaceObject(&surface, &of_array));
	printf("~ surface object %llu\n", (unsigned long long)surface);
	surfaced<<<1, 256>>>(surface);

	OK(cudaHostAlloc(&mapped, N * 4, cudaHostAllocMapped));
	plain<<<4, 256>>>(mapped);
	OK(cudaMallocManaged(&managed, N * 4));
	plain<<<4, 256>>>(managed);
	OK(cudaDeviceSynchronize());
	printing<<<1, 1>>>(3);
	OK(cudaDeviceSynchronize());
	allocating<<<1, 1>>>();
	OK(cudaFuncSetAttribute(shared_much, cudaFuncAttributeMaxDynamicSharedMemorySize, 100000));
	OK(cudaFuncSetAttribute(shared_much, cudaFuncAttributePreferredSharedMemoryCarveout, 50));
	shared_much<<<1, 512, 100000>>>(p);

	cudaLaunchConfig_t config = {};
	cudaLaunchAttribute attributes[2] = {};
	attributes[0].id = cudaLaunchAttributeClusterDimension;
	attributes[0].val.clusterDim.x = 2;
	attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
	attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
	attributes[1].val.programmaticStreamSerializationAllowed = 1;
	config.gridDim = dim3(4);
	config.blockDim = dim3(256);
	config.attrs = attributes;
	config.numAttrs = 2;
	OK(cudaLaunchKernelEx(&config, clustered, p));
	OK(cudaDeviceSynchronize());
	float first;
	OK(cudaMemcpy(&first, p, 4, cudaMemcpyDeviceToHost));
	printf("first %g, managed %g\n", first, managed[3]);
	return 0;
}
