/*
 * How large the items of CUDA arrays are.
 */
#ifndef TT_ARRAY_ITEMS_H
#define TT_ARRAY_ITEMS_H

#include <cuda.h>

/* Bytes of a channel. 0: other formats, such as compressed ones. */
static inline unsigned array_channel_bytes(CUarray_format format)
{
	switch ((int)format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return 1;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		return 4;
	default:
		return 0;
	}
}

#endif
