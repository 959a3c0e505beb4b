/*
 * The capture kernels that the host launches, and the kernel that restores memory. kernels.h says how the host uses
 * them.
 */
#include "capture/capture.cuh"

DIGEST_KERNEL tt_capture_digest(const struct tt_capture_params p)
{
	digest(p);
}

DIGEST_KERNEL tt_capture_digest_small(const struct tt_capture_params p)
{
	digest_small(p);
}

DIGEST_KERNEL tt_capture_gather(const struct tt_capture_params p)
{
	gather(p);
}

COPY_KERNEL tt_restore(const struct tt_restore_params p)
{
	const struct tt_capture_region *regions = at<struct tt_capture_region>(p.regions);

	for (unsigned i = blockIdx.x; i < p.count; i += gridDim.x) {
		struct tt_chunk_entry entry = at<struct tt_chunk_entry>(p.entries)[i];

		copy_block(regions[entry.region].base + (uint64_t)entry.block * TT_BLOCK_SIZE, p.payload + entry.offset,
		           entry.length);
	}
}
