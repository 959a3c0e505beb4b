/* Variables of a module: a histogram, a count and a table of limits that the host sets. */
extern "C" {

__device__ unsigned histogram[16];
__device__ unsigned long long seen = 1000;
__constant__ float limits[2] = {0.0f, 1.0f};

__global__ void count(const float *values, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i >= n || values[i] < limits[0] || values[i] >= limits[1])
		return;
	atomicAdd(&histogram[(int)(values[i] * 16.0f)], 1u);
	atomicAdd(&seen, 1ull);
}

}
