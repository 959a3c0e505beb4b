/*
 * The kernels of the benchmark's programs: one that does nothing, and one that gives blocks of
 * 64 KiB contents that no block had before and that nothing compresses.
 */
typedef unsigned long long u64;

extern "C" __global__ void nothing(u64 unused)
{
	(void)unused;
}

/*
 * Of `blocks` blocks in regions of region_bytes, changes `dirty`, spread evenly. bases: where the
 * regions are. seed: another each time.
 */
extern "C" __global__ void scramble(const u64 *bases, u64 region_bytes, u64 blocks, u64 dirty, u64 seed)
{
	u64 per_region = (region_bytes + 65535) / 65536;

	for (u64 b = blockIdx.x; b < blocks; b += gridDim.x) {
		if (b * dirty / blocks == (b + 1) * dirty / blocks)
			continue;
		u64 offset = b % per_region * 65536, left = region_bytes - offset;
		u64 *words = (u64 *)(bases[b / per_region] + offset), count = (left < 65536 ? left : 65536) / 8;

		for (u64 i = threadIdx.x; i < count; i += blockDim.x) {
			u64 x = (b * 8192 + i) * 0x9e3779b97f4a7c15ull + seed * 0xd1342543de82ef95ull;

			x = (x ^ x >> 32) * 0xaef17502108ef2d9ull;
			words[i] = x ^ x >> 29;
		}
	}
}

/* c = a b, of n by n numbers: one item for each thread. */
extern "C" __global__ void multiply(float *c, const float *a, const float *b, unsigned n)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x, row = i / n, column = i % n;
	float sum = 0;

	if (row >= n)
		return;
	for (unsigned k = 0; k < n; k++)
		sum += a[row * n + k] * b[k * n + column];
	c[i] = sum;
}

/* Each number becomes the mean of its neighbours in a grid of n by n; the edge stays. */
extern "C" __global__ void relax(float *to, const float *from, const float *unused, unsigned n)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x, row = i / n, column = i % n;

	(void)unused;
	if (row && column && row + 1 < n && column + 1 < n)
		to[i] = (from[i - 1] + from[i + 1] + from[i - n] + from[i + n]) / 4;
}
