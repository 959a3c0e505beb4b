/*
 * Kernels of several kinds; each writes what depends on its input alone.
 *
 * patcher_kernels [NAME [BLOCKS [LAUNCHES [WORDS]]]]: runs one kernel or all on this many words, and prints for each its name,
 * a digest of all memory that it writes, and the microseconds of its last launch.
 */
#include <cooperative_groups.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define KERNEL extern "C" __global__ void
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)
#define THREADS 256
#define KEPT 232

__device__ unsigned long long counted;
__constant__ unsigned factors[4];

KERNEL copy(const unsigned *in, unsigned *out, int n)
{
	for (int i = INDEX; i < n; i += gridDim.x * blockDim.x)
		out[i] = in[i];
}

KERNEL vectors(const uint4 *in, uint4 *out, int n)
{
	for (int i = INDEX; i < n / 4; i += gridDim.x * blockDim.x) {
		uint4 v = in[i];
		out[i] = make_uint4(v.w, v.z, v.y, v.x + 1);
	}
}

KERNEL gather(const unsigned *in, unsigned *out, int n)
{
	for (int i = INDEX; i < n; i += gridDim.x * blockDim.x)
		out[i] = in[(in[i] + i * 17u) % n];
}

KERNEL reduction(const unsigned *in, unsigned *out, int n)
{
	__shared__ unsigned s[THREADS];
	unsigned v = 0;

	for (int i = INDEX; i < n; i += gridDim.x * blockDim.x)
		v += in[i];
	s[threadIdx.x] = v;
	__syncthreads();
	for (int k = THREADS / 2; k >= 32; k >>= 1) {
		if (threadIdx.x < k)
			s[threadIdx.x] += s[threadIdx.x + k];
		__syncthreads();
	}
	if (threadIdx.x < 32) {
		v = s[threadIdx.x];
		for (int k = 16; k; k >>= 1)
			v += __shfl_down_sync(~0u, v, k);
		if (!threadIdx.x)
			atomicAdd(out, v);
	}
}

KERNEL histogram(const unsigned *in, unsigned *out, int n)
{
	__shared__ unsigned bins[256];

	bins[threadIdx.x] = 0;
	__syncthreads();
	for (int i = INDEX; i < n; i += gridDim.x * blockDim.x)
		atomicAdd(&bins[in[i] >> 24], 1);
	__syncthreads();
	atomicAdd(&out[threadIdx.x], bins[threadIdx.x]);
}

/* C = A * B of 256 by 256, a tile of 16 by 16 for each block. */
KERNEL product(const unsigned *in, unsigned *out, int n)
{
	__shared__ float a[16][17], b[16][17];
	int x = threadIdx.x % 16, y = threadIdx.x / 16;

	for (int tile = blockIdx.x; tile < 256; tile += gridDim.x) {
		int row = tile / 16 * 16, column = tile % 16 * 16;
		float sum = 0;
		for (int k = 0; k < 256; k += 16) {
			a[y][x] = in[(row + y) * 256 + k + x] % 100;
			b[y][x] = in[(k + y) * 256 + column + x] % 100;
			__syncthreads();
			for (int i = 0; i < 16; i++)
				sum += a[y][i] * b[i][x];
			__syncthreads();
		}
		out[(row + y) * 256 + column + x] = (unsigned)sum;
	}
}

KERNEL softmax(const unsigned *in, float *out, int n)
{
	__shared__ float s[THREADS / 32];

	for (int row = blockIdx.x; row < n / 1024; row += gridDim.x) {
		float most = 0, sum = 0, v[4];
		for (int i = 0; i < 4; i++)
			most = fmaxf(most, v[i] = in[row * 1024 + i * THREADS + threadIdx.x] % 64 / 8.f);
		for (int k = 16; k; k >>= 1)
			most = fmaxf(most, __shfl_xor_sync(~0u, most, k));
		if (threadIdx.x % 32 == 0)
			s[threadIdx.x / 32] = most;
		__syncthreads();
		for (int i = 0; i < THREADS / 32; i++)
			most = fmaxf(most, s[i]);
		__syncthreads();
		for (int i = 0; i < 4; i++)
			sum += v[i] = __expf(v[i] - most);
		for (int k = 16; k; k >>= 1)
			sum += __shfl_xor_sync(~0u, sum, k);
		if (threadIdx.x % 32 == 0)
			s[threadIdx.x / 32] = sum;
		__syncthreads();
		sum = 0;
		for (int i = 0; i < THREADS / 32; i++)
			sum += s[i];
		for (int i = 0; i < 4; i++)
			out[row * 1024 + i * THREADS + threadIdx.x] = v[i] / sum;
		__syncthreads();
	}
}

/* Uses a variable and constants of its module. */
KERNEL globals(const unsigned *in, unsigned *out, int n)
{
	for (int i = INDEX; i < n; i += gridDim.x * blockDim.x) {
		out[i] = in[i] * factors[i % 4];
		if (in[i] % 64 == 0)
			atomicAdd(&counted, in[i] % 1000);
	}
}

/* Each thread of a warp loops as often as its item says, and keeps an array in local memory. */
KERNEL divergent(const unsigned *in, unsigned *out, int n)
{
	unsigned local[32];

	for (int i = INDEX; i < n; i += gridDim.x * blockDim.x) {
		unsigned v = in[i], sum = 0;
		for (int k = 0; k < 32; k++)
			local[k] = v + k;
		for (unsigned k = 0; k < v % 37; k++) {
			if ((v >> k % 32) & 1)
				local[(v + k) % 32] += k;
			else
				sum ^= local[k % 32] * 3;
		}
		out[i] = sum + local[v % 32];
	}
}

/* All dynamic shared memory that a block can have. */
KERNEL dynamic(const unsigned *in, unsigned *out, int n)
{
	extern __shared__ unsigned large[];
	const int words = 48 * 1024; /* 192 KiB */

	for (int i = threadIdx.x; i < words; i += blockDim.x)
		large[i] = in[(i + blockIdx.x * 977) % n];
	__syncthreads();
	for (int i = threadIdx.x; i < words; i += blockDim.x)
		if (blockIdx.x == 0)
			out[i] = large[words - 1 - i] ^ large[i * 7 % words];
}

KERNEL together(const unsigned *in, unsigned *out, int n)
{
	cooperative_groups::grid_group all = cooperative_groups::this_grid();
	int i = INDEX, count = gridDim.x * blockDim.x;

	out[i] = in[i % n];
	for (int k = 1; k < 5; k++) {
		all.sync();
		unsigned v = out[(i + k * THREADS) % count];
		all.sync();
		out[i] += v * k;
	}
}

/* Has so much to keep that it takes all registers. */
KERNEL crowded(const unsigned *in, unsigned *out, int n)
{
	unsigned v[KEPT], sum = 0;
	int i = INDEX;

	if (i >= n)
		return;
#pragma unroll
	for (int k = 0; k < KEPT; k++)
		v[k] = in[(i + k * 31) % n];
#pragma unroll 1
	for (int turn = 0; turn < 3; turn++) {
#pragma unroll
		for (int k = 0; k < KEPT; k++)
			v[k] = v[k] * 5 + (v[(k + 7) % KEPT] ^ v[(k * 3 + 1) % KEPT]);
	}
#pragma unroll
	for (int k = 0; k < KEPT; k++)
		sum = sum * 3 + v[k];
	out[i] = sum;
}

/* The same with an array in local memory. */
KERNEL framed(const unsigned *in, unsigned *out, int n)
{
	unsigned v[KEPT], local[32], sum = 0;
	int i = INDEX;

	if (i >= n)
		return;
#pragma unroll
	for (int k = 0; k < KEPT; k++)
		v[k] = in[(i + k * 31) % n];
	for (int k = 0; k < 32; k++)
		local[k] = in[(i + k * 7) % n];
#pragma unroll 1
	for (int turn = 0; turn < 3; turn++) {
#pragma unroll
		for (int k = 0; k < KEPT; k++)
			v[k] = v[k] * 5 + (v[(k + 7) % KEPT] ^ v[(k * 3 + 1) % KEPT]);
		local[v[0] % 32] += v[1];
		v[2] ^= local[v[3] % 32];
	}
#pragma unroll
	for (int k = 0; k < KEPT; k++)
		sum = sum * 3 + v[k];
	out[i] = sum + local[sum % 32];
}

#include "../data/sass/linked.cu"
#include "../data/sass/specialised.cu"

static void check(cudaError_t e, const char *what)
{
	if (e != cudaSuccess) {
		printf("%s: %s\n", what, cudaGetErrorString(e));
		exit(1);
	}
}

struct test {
	const char *name;
	const void *f;
	size_t shared;
	bool cooperative;
	int threads = THREADS;
};
#define TEST(name) {#name, (const void *)name, 0, false}

static const test tests[] = {
	TEST(copy),
	TEST(vectors),
	TEST(gather),
	TEST(reduction),
	TEST(histogram),
	TEST(product),
	TEST(softmax),
	TEST(globals),
	TEST(divergent),
	TEST(crowded),
	TEST(framed),
	TEST(divided),
	TEST(called),
	TEST(pointed),
	TEST(printed),
	{"specialised", (const void *)specialised, 0, false, 3 * 128},
	{"dynamic", (const void *)dynamic, 192 * 1024, false},
	{"together", (const void *)together, 0, true},
};

static void run(const test &t, int blocks, int launches, const unsigned *in, unsigned *out, int n)
{
	void *params[] = {&in, &out, &n};
	std::vector<unsigned> result(n);
	unsigned long long digest = 1469598103934665603ull, zero = 0;
	cudaEvent_t begin, end;
	float ms = 0;

	check(cudaEventCreate(&begin), "event");
	check(cudaEventCreate(&end), "event");
	if (t.shared)
		check(cudaFuncSetAttribute(t.f, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)t.shared), "attribute");
	for (int i = 0; i < launches; i++) {
		check(cudaMemset(out, 0, 4l * n), "memset");
		check(cudaMemcpyToSymbol(counted, &zero, sizeof(zero)), "variable");
		check(cudaEventRecord(begin), "record");
		check(t.cooperative ? cudaLaunchCooperativeKernel(t.f, blocks, t.threads, params, t.shared, 0)
				    : cudaLaunchKernel(t.f, blocks, t.threads, params, t.shared, 0),
		      "launch");
		check(cudaEventRecord(end), "record");
		check(cudaDeviceSynchronize(), t.name);
		check(cudaEventElapsedTime(&ms, begin, end), "time");
	}
	check(cudaMemcpy(result.data(), out, 4l * n, cudaMemcpyDeviceToHost), "copy");
	check(cudaMemcpyFromSymbol(&zero, counted, sizeof(zero)), "variable");
	for (unsigned word : result)
		digest = (digest ^ word) * 1099511628211ull;
	printf("%s %016llx %llu %.1f\n", t.name, digest, zero, ms * 1000);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	int blocks = argc > 2 ? atoi(argv[2]) : 8, launches = argc > 3 ? atoi(argv[3]) : 1;
	int n = argc > 4 ? atoi(argv[4]) : 1 << 16;
	const unsigned given[4] = {3, 5, 7, 11};
	std::vector<unsigned> input(n);
	unsigned *in, *out, seed = 1;

	for (unsigned &word : input)
		word = seed = seed * 1664525 + 1013904223;
	check(cudaMalloc(&in, 4l * n), "malloc");
	check(cudaMalloc(&out, 4l * n), "malloc");
	check(cudaMemcpy(in, input.data(), 4l * n, cudaMemcpyHostToDevice), "copy");
	check(cudaMemcpyToSymbol(factors, given, sizeof(given)), "constants");
	for (const test &t : tests)
		if (argc < 2 || !strcmp(argv[1], "all") || !strcmp(argv[1], t.name))
			run(t, blocks, launches, in, out, n);
	return 0;
}
