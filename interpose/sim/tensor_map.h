/*
 * A tensor map of the simulator: the driver makes it, kernels copy by it. NVIDIA's layout is not documented.
 *
 * Invariant: all sizes fit what a map may have, so sums of them do not overflow.
 */
#ifndef TT_SIM_TENSOR_MAP_H
#define TT_SIM_TENSOR_MAP_H

#include <stdint.h>

#define SIM_TENSOR_MAP 0x70616d726f736e74u
#define SIM_IM2COL_MAP 0x6d726f736e6574u /* kernels can't copy by it */
#define SIM_TENSOR_RANK 5
#define SIM_TENSOR_BOX 256 /* elements of a dimension at most */
#define SIM_TENSOR_LINE 16 /* bytes that a swizzle moves together */

struct sim_tensor_map {
	_Alignas(64) uint64_t magic;
	uint64_t address;
	uint64_t stride[SIM_TENSOR_RANK]; /* bytes */
	uint32_t last[SIM_TENSOR_RANK];   /* size - 1, in elements */
	uint16_t box[SIM_TENSOR_RANK];    /* elements */
	uint8_t step[SIM_TENSOR_RANK];    /* between elements that are copied */
	uint8_t rank, element;            /* element: bytes */
	uint8_t swizzle;                  /* bits of an address / 8 that change its lower bits */
	int16_t corner[3][2];             /* of im2col: lower and upper */
	char form;                        /* of numbers: 'u' unsigned, 's' signed, 'f' float; 0: of no more than 2 bytes */
};

_Static_assert(sizeof(struct sim_tensor_map) == 128, "as large as CUtensorMap");

/* How many elements of a dimension are copied. */
static inline uint32_t sim_tensor_count(const struct sim_tensor_map *m, unsigned dimension)
{
	return (m->box[dimension] + m->step[dimension] - 1u) / m->step[dimension];
}

#endif
