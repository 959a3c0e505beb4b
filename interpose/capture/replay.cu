/*
 * The capture kernels as nodes of graphs: what they are to do is in memory that the host has written
 * since the last replay. Where the sequence there is 0, that is nothing.
 */
#include "capture.cuh"

DIGEST_KERNEL tt_capture_digest_at(const struct tt_capture_params *at)
{
	struct tt_capture_params p = *at;

	if (p.sequence)
		digest(p);
}

COPY_KERNEL tt_capture_gather_at(const struct tt_capture_params *at)
{
	struct tt_capture_params p = *at;

	if (p.sequence)
		gather(p);
}
