// 6 7.5
// Kernels that are templates.
#include "check.h"

template <typename T, int N> __global__ void scale(T *p, T by) { p[threadIdx.x] = p[threadIdx.x] * by * N; }

template <typename T, int N> static T run(T value, T by)
{
	T *p;
	OK(cudaMalloc(&p, sizeof value));
	OK(cudaMemcpy(p, &value, sizeof value, cudaMemcpyHostToDevice));
	scale<T, N><<<1, 1>>>(p, by);
	OK(cudaMemcpy(&value, p, sizeof value, cudaMemcpyDeviceToHost));
	OK(cudaFree(p));
	return value;
}

int main() { printf("%d %g\n", run<int, 2>(1, 3), run<double, 5>(1, 1.5)); }
