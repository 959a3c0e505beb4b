/*
 * Fills new memory with a pattern, see include/fill_pattern.h.
 */
#include "capture/device.cuh"
#include "fill_pattern.h"

extern "C" __global__ void __launch_bounds__(TT_FILL_THREADS) tt_capture_fill(const struct tt_fill_params params)
{
	const struct tt_fill_range &p = params.ranges[blockIdx.y];
	uint64_t end = p.base + p.size, step = (uint64_t)gridDim.x * blockDim.x;

	for (uint64_t i = p.base / 8 + (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; 8 * i < end; i += step) {
		uint64_t word = p.constant ? p.seed : tt_fill_word(i, p.seed), first = 8 * i;

		if (first >= p.base && first + 8 <= end) {
			*at<uint64_t>(first) = word;
			continue;
		}
		for (unsigned k = 0; k < 8; k++)
			if (first + k >= p.base && first + k < end)
				*at<uint8_t>(first + k) = (uint8_t)(word >> 8 * k);
	}
}
