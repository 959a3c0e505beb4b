/* Kernels that call functions in all ways. With nvcc -rdc=true and nvlink, functions have their own sections. */
#include <cassert>
#include <cstdio>

__device__ __noinline__ unsigned scaled(unsigned x)
{
	return x * 3 ^ x >> 5;
}

__device__ __noinline__ unsigned shifted(unsigned x)
{
	return (x + 3) * (x ^ 7);
}

__device__ unsigned (*functions[])(unsigned) = {scaled, shifted};

/* The slow path of a division is a function. */
extern "C" __global__ void divided(const unsigned *in, unsigned *out, int n)
{
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		out[i] = __float_as_uint(__uint_as_float(in[i]) / __uint_as_float(in[n - 1 - i]));
}

extern "C" __global__ void called(const unsigned *in, unsigned *out, int n)
{
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		out[i] = scaled(in[i]) + shifted(in[i] * 2);
}

extern "C" __global__ void pointed(const unsigned *in, unsigned *out, int n)
{
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		out[i] = functions[in[i] >> 9 & 1](in[i]);
}

/* The driver has the functions. */
extern "C" __global__ void printed(const unsigned *in, unsigned *out, int n)
{
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
		if (!i)
			printf("item %u\n", in[i]);
		assert(n > 0);
		out[i] = in[i] * 5;
	}
}
