/*
 * Kernels whose traces are timed: a copy, a product of matrices, a reduction with atomics.
 *
 * traced [REPEATS [PAUSE]]: prints the microseconds of each launch as JSON: {"copy": […], "gemm": […], "reduction": […]}. A kernel
 * that waits runs before each, so that the time has nothing of the processor's work for a launch.
 */
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

#define KERNEL extern "C" __global__ void
#define THREADS 256
#define WORDS (1 << 24)
#define SIDE 256 /* of the matrices */
#define TILE 16
#define WAIT_CYCLES 8000000ll

KERNEL wait_long(long long cycles)
{
	long long began = clock64();

	while (clock64() - began < cycles)
		;
}

KERNEL copy(const float *in, float *out)
{
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < WORDS; i += gridDim.x * blockDim.x)
		out[i] = in[i];
}

KERNEL gemm(const float *in, float *out)
{
	__shared__ float a[TILE][TILE + 1], b[TILE][TILE + 1];
	int x = threadIdx.x % TILE, y = threadIdx.x / TILE;
	int row = blockIdx.x / (SIDE / TILE) * TILE, column = blockIdx.x % (SIDE / TILE) * TILE;
	float sum = 0;

	for (int k = 0; k < SIDE; k += TILE) {
		a[y][x] = in[(row + y) * SIDE + k + x];
		b[y][x] = in[(k + y) * SIDE + column + x];
		__syncthreads();
		for (int i = 0; i < TILE; i++)
			sum += a[y][i] * b[i][x];
		__syncthreads();
	}
	out[(row + y) * SIDE + column + x] = sum;
}

KERNEL reduction(const float *in, float *out)
{
	__shared__ float part[THREADS / 32];
	float sum = 0;

	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < WORDS; i += gridDim.x * blockDim.x)
		sum += in[i];
	for (int k = 16; k; k >>= 1)
		sum += __shfl_down_sync(~0u, sum, k);
	if (threadIdx.x % 32 == 0)
		part[threadIdx.x / 32] = sum;
	__syncthreads();
	if (threadIdx.x < THREADS / 32)
		atomicAdd(out, part[threadIdx.x]);
}

static void check(cudaError_t e)
{
	if (e == cudaSuccess)
		return;
	fprintf(stderr, "traced: %s\n", cudaGetErrorString(e));
	exit(1);
}

/* pause: ms behind a launch, until its records are stored */
static void time_kernel(const char *name, const void *f, int blocks, int repeats, int pause, const float *in, float *out)
{
	void *params[] = {&in, &out};
	cudaEvent_t begin, end;
	float ms;

	check(cudaEventCreate(&begin));
	check(cudaEventCreate(&end));
	printf("\"%s\": [", name);
	for (int i = 0; i <= repeats; i++) { /* the first one loads the kernel */
		wait_long<<<1, 1>>>(WAIT_CYCLES);
		check(cudaEventRecord(begin));
		check(cudaLaunchKernel(f, blocks, THREADS, params, 0, 0));
		check(cudaEventRecord(end));
		check(cudaDeviceSynchronize());
		check(cudaEventElapsedTime(&ms, begin, end));
		if (i)
			printf("%s%.2f", i > 1 ? ", " : "", ms * 1000);
		usleep(pause * 1000);
	}
	printf("]");
}

int main(int argc, char **argv)
{
	int repeats = argc > 1 ? atoi(argv[1]) : 3, pause = argc > 2 ? atoi(argv[2]) : 300;
	float *in, *out;

	check(cudaMalloc(&in, WORDS * sizeof(float)));
	check(cudaMalloc(&out, WORDS * sizeof(float)));
	check(cudaMemset(in, 0, WORDS * sizeof(float)));
	check(cudaMemset(out, 0, WORDS * sizeof(float)));
	printf("{");
	time_kernel("copy", (const void *)copy, 132 * 8, repeats, pause, in, out);
	printf(", ");
	time_kernel("gemm", (const void *)gemm, SIDE / TILE * (SIDE / TILE), repeats, pause, in, out);
	printf(", ");
	time_kernel("reduction", (const void *)reduction, 132 * 8, repeats, pause, in, out);
	printf("}\n");
	return 0;
}
