// What the threads of a warp and of a block do together.
typedef unsigned long long u64;
#define ALL 0xffffffffu

extern "C" __global__ void reduce(const float *in, float *out, int n)
{
	__shared__ float part[32];
	float sum = 0;
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		sum += in[i];
	for (int o = 16; o; o >>= 1)
		sum += __shfl_down_sync(ALL, sum, o);
	if (threadIdx.x % 32 == 0)
		part[threadIdx.x / 32] = sum;
	__syncthreads();
	if (threadIdx.x >= 32)
		return;
	sum = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0;
	for (int o = 16; o; o >>= 1)
		sum += __shfl_xor_sync(ALL, sum, o);
	if (threadIdx.x == 0)
		out[blockIdx.x] = sum;
}

extern "C" __global__ void scan(const int *in, int *out)
{
	__shared__ int part[32];
	int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, x = in[threadIdx.x];
	for (int o = 1; o < 32; o *= 2) {
		int y = __shfl_up_sync(ALL, x, o);
		if (lane >= o)
			x += y;
	}
	if (lane == 31)
		part[warp] = x;
	__syncthreads();
	for (int w = 0; w < warp; w++)
		x += part[w];
	out[threadIdx.x] = x;
}

extern "C" __global__ void histogram(const unsigned char *in, unsigned *bins, u64 *total, int n)
{
	__shared__ unsigned mine[256];
	for (int i = threadIdx.x; i < 256; i += blockDim.x)
		mine[i] = 0;
	__syncthreads();
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
		unsigned peers = __match_any_sync(__activemask(), in[i]);
		if ((int)(threadIdx.x & 31) == __ffs(peers) - 1)
			atomicAdd(&mine[in[i]], __popc(peers));
		atomicAdd(total, (u64)in[i] << 20);
	}
	__syncthreads();
	for (int i = threadIdx.x; i < 256; i += blockDim.x)
		atomicAdd(&bins[i], mine[i]);
}

extern "C" __global__ void compact(const int *in, int *out, int *count, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31, base = 0;
	bool keep = i < n && in[i] % 3 == 0;
	unsigned votes = __ballot_sync(ALL, keep);
	if (lane == 0 && votes)
		base = atomicAdd(count, __popc(votes));
	base = __shfl_sync(ALL, base, 0);
	if (keep)
		out[base + __popc(votes & ((1u << lane) - 1))] = in[i];
}

extern "C" __global__ void bitonic(unsigned *data)
{
	extern __shared__ unsigned s[];
	unsigned t = threadIdx.x;
	s[t] = data[t];
	__syncthreads();
	for (unsigned k = 2; k <= blockDim.x; k *= 2)
		for (unsigned j = k / 2; j; j /= 2) {
			unsigned other = t ^ j;
			if (other > t && (s[t] > s[other]) == ((t & k) == 0)) {
				unsigned x = s[t];
				s[t] = s[other];
				s[other] = x;
			}
			__syncthreads();
		}
	data[t] = s[t];
}

// Every block waits for all the others, as a grid barrier does.
extern "C" __global__ void grid_barrier(volatile int *arrived, int *out)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	out[i] = i + 1;
	__threadfence();
	__syncthreads();
	if (threadIdx.x == 0) {
		atomicAdd((int *)arrived, 1);
		while (*arrived < (int)gridDim.x)
			;
	}
	__syncthreads();
	__threadfence();
	int n = gridDim.x * blockDim.x;
	out[n + i] = ((volatile int *)out)[(i + blockDim.x) % n];
}

// A lock that all threads of a warp fight for.
extern "C" __global__ void spin_lock(int *lock, volatile int *counter)
{
	while (atomicCAS(lock, 0, 1))
		;
	__threadfence();
	*counter = *counter + 1;
	__threadfence();
	atomicExch(lock, 0);
}

extern "C" __global__ void racy(int *counter)
{
	int x = *(volatile int *)counter;
	x += 1;
	*(volatile int *)counter = x;
}

extern "C" __global__ void mandelbrot(int *out, int width, int most)
{
	int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
	float cr = x * 3.0f / width - 2, ci = y * 2.0f / gridDim.y - 1, zr = 0, zi = 0;
	int n = 0;
	while (n < most && __fadd_rn(__fmul_rn(zr, zr), __fmul_rn(zi, zi)) < 4) {
		float t = __fadd_rn(__fsub_rn(__fmul_rn(zr, zr), __fmul_rn(zi, zi)), cr);
		zi = __fadd_rn(__fmul_rn(__fmul_rn(2, zr), zi), ci);
		zr = t;
		n++;
	}
	out[y * width + x] = n;
}

extern "C" __global__ void switches(const int *in, int *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x, x;
	if (i >= n)
		return;
	switch (in[i]) {
	case 0: x = i * 3; break;
	case 1: x = i ^ 21; break;
	case 2: for (x = 0; x * x < i; x++); break;
	case 3: x = -i; break;
	case 4: x = in[(i + 1) % n]; /* fall through */
	case 5: x = i / 3; break;
	case 6: x = __popc(i); break;
	case 7: x = i << (i & 15); break;
	case 8: x = 42; break;
	default: x = in[i] + 1000; break;
	}
	out[i] = x;
}
