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
