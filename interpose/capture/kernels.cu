/*
 * The capture kernels that the host launches. kernels.h says how it uses them.
 */
#include "capture/capture.cuh"

DIGEST_KERNEL tt_capture_digest(const struct tt_capture_params p)
{
	digest(p);
}

SMALL_KERNEL tt_capture_digest_small(const struct tt_capture_params p)
{
	digest_small(p);
}

DIGEST_KERNEL tt_capture_gather(const struct tt_capture_params p)
{
	gather(p);
}
