/*
 * Launches of every sort, whose kernels are traced: "traced_launches" prints a digest of what each computes.
 */
#include <cooperative_groups.h>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace cg = cooperative_groups;

#define KERNEL extern "C" __global__ void
#define THREADS 128
#define BLOCKS 8

KERNEL plain(unsigned *out, int)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	out[i] = i * 2654435761u;
}

/* All dynamic shared memory that the device allows. */
KERNEL shared_limit(unsigned *out, int words)
{
	extern __shared__ unsigned held[];
	unsigned sum = 0;

	for (int i = threadIdx.x; i < words; i += blockDim.x)
		held[i] = i ^ blockIdx.x;
	__syncthreads();
	for (int i = threadIdx.x; i < words; i += blockDim.x)
		sum = sum * 31 + held[words - 1 - i];
	out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

KERNEL whole_grid(unsigned *out, int count)
{
	cg::grid_group all = cg::this_grid();
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	out[i] = i;
	for (int k = 1; k < 5; k++) {
		all.sync();
		unsigned v = out[(i + k * THREADS) % count];
		all.sync();
		out[i] += v * k;
	}
}

/* Each block reads shared memory of the next block of its cluster. */
KERNEL clusters(unsigned *out, int)
{
	__shared__ unsigned own[THREADS];
	cg::cluster_group cluster = cg::this_cluster();
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	own[threadIdx.x] = i * 40503u;
	cluster.sync();
	unsigned *other = cluster.map_shared_rank(own, (cluster.block_rank() + 1) % cluster.num_blocks());
	out[i] = other[THREADS - 1 - threadIdx.x];
	cluster.sync();
}

static void check(cudaError_t e, const char *what)
{
	if (e != cudaSuccess) {
		printf("%s: %s\n", what, cudaGetErrorString(e));
		exit(1);
	}
}

static void launch(const char *name, const void *f, size_t shared, int number, int cluster, bool cooperative)
{
	std::vector<unsigned> result(BLOCKS * THREADS);
	unsigned digest = 2166136261u, *out;
	cudaLaunchAttribute attribute = {};
	cudaLaunchConfig_t config = {};

	check(cudaMalloc(&out, 4 * result.size()), "memory");
	void *params[] = {&out, &number};
	if (shared)
		check(cudaFuncSetAttribute(f, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared), "attribute");
	attribute.id = cooperative ? cudaLaunchAttributeCooperative : cudaLaunchAttributeClusterDimension;
	if (cooperative)
		attribute.val.cooperative = 1;
	else
		attribute.val.clusterDim = {(unsigned)cluster, 1, 1};
	config = {dim3(BLOCKS), dim3(THREADS), shared, 0, &attribute, 1};
	check(cudaLaunchKernelExC(&config, f, params), name);
	check(cudaMemcpy(result.data(), out, 4 * result.size(), cudaMemcpyDeviceToHost), "copy");
	for (unsigned v : result)
		digest = (digest ^ v) * 16777619u;
	printf("%s %08x\n", name, digest);
	check(cudaFree(out), "free");
}

int main()
{
	int limit;

	check(cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0), "device");
	launch("plain", (const void *)plain, 0, 0, 1, false);
	launch("shared_limit", (const void *)shared_limit, (size_t)limit, limit / 4, 1, false);
	launch("whole_grid", (const void *)whole_grid, 0, BLOCKS * THREADS, 1, true);
	launch("clusters", (const void *)clusters, 0, 0, 4, false);
	return 0;
}
