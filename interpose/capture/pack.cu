/*
 * The kernel of --compress device. It is a module of its own, because few recordings need it and the driver compiles
 * all of a module.
 */
#include "capture/pack.cuh"

PACK_KERNEL tt_pack(const struct tt_pack_params p)
{
	__shared__ struct packing shared;

	for (unsigned i = blockIdx.x; i < p.count; i += gridDim.x) {
		struct tt_pack_block b = at<struct tt_pack_block>(p.blocks)[i];

		pack_block(&shared, b.to, b.from, b.length);
		__syncthreads();
	}
}
