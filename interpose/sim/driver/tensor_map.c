/*
 * Tensor maps: tiled and im2col ones, of whole bytes, without interleave, filled with zeros outside of the tensor.
 *
 * Invariant: what NVIDIA's driver refuses is an invalid value; what it takes and kernels here can't copy by is refused
 * by name.
 */
#include "sim/driver/driver.h"

#include <string.h>

#include "sim/tensor_map.h"

#define TYPES 16 /* that NVIDIA's driver knows */
#define MAP_ALIGNMENT 64 /* what the driver asks for; the type of the header has more */
#define MOST_STRIDE ((uint64_t)1 << 40)
#define MOST_STEP 8
#define MOST_PIXELS 1024

static const uint8_t element_bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2};
static const char forms[] = {0, 0, 'u', 's', 'u', 's', 0, 'f', 'f', 0};

/* Copies the sizes; false: one is not allowed. */
static bool take_sizes(struct sim_tensor_map *m, const cuuint64_t *size, const cuuint64_t *stride, const cuuint32_t *box,
		       const cuuint32_t *step)
{
	for (unsigned i = 0; i < m->rank; i++) {
		if (!size[i] || size[i] > (uint64_t)UINT32_MAX + 1 || !box[i] || box[i] > SIM_TENSOR_BOX || !step[i] ||
		    step[i] > MOST_STEP || (i && (stride[i - 1] % 16 || stride[i - 1] >= MOST_STRIDE)))
			return false;
		m->last[i] = (uint32_t)(size[i] - 1);
		m->stride[i] = i ? stride[i - 1] : m->element;
		m->box[i] = (uint16_t)box[i];
		m->step[i] = i ? (uint8_t)step[i] : 1; /* that of the first dimension is ignored */
	}
	return true;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *out, CUtensorMapDataType type, cuuint32_t rank, void *address,
				const cuuint64_t *size, const cuuint64_t *stride, const cuuint32_t *box, const cuuint32_t *step,
				CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
				CUtensorMapFloatOOBfill fill)
{
	struct sim_tensor_map m = {.magic = SIM_TENSOR_MAP, .address = (uintptr_t)address, .rank = (uint8_t)rank};

	ENTER(sim_enter_driver());
	INVALID_IF(!out || (uintptr_t)out % MAP_ALIGNMENT || (unsigned)type >= TYPES || !rank || rank > SIM_TENSOR_RANK ||
		   !address || m.address % 16 || !size || !stride || !box || !step ||
		   (unsigned)promotion > CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
	if (type >= sizeof(element_bytes) || interleave || (unsigned)swizzle > CU_TENSOR_MAP_SWIZZLE_128B || fill) {
		sim_leave(CUDA_SUCCESS);
		return sim_refuse("cuTensorMapEncodeTiled with this type, interleave, swizzle or fill");
	}
	m.element = element_bytes[type];
	m.form = forms[type];
	INVALID_IF(!take_sizes(&m, size, stride, box, step));
	unsigned inner = m.box[0] * m.element, span = swizzle ? SIM_TENSOR_LINE << swizzle : 0;
	INVALID_IF(inner % SIM_TENSOR_LINE || (span && inner > span));
	if (span && inner != span) {
		sim_leave(CUDA_SUCCESS);
		return sim_refuse("cuTensorMapEncodeTiled with a box narrower than its swizzle");
	}
	m.swizzle = (uint8_t)(span ? span - SIM_TENSOR_LINE : 0);
	memcpy(out, &m, sizeof(m));
	return sim_leave(CUDA_SUCCESS);
}

/* Its corners are part of the map, so that two maps that differ have different bytes. */
CUresult cuTensorMapEncodeIm2col(CUtensorMap *out, CUtensorMapDataType type, cuuint32_t rank, void *address,
				 const cuuint64_t *size, const cuuint64_t *stride, const int *lower, const int *upper,
				 cuuint32_t channels, cuuint32_t pixels, const cuuint32_t *step,
				 CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
				 CUtensorMapFloatOOBfill fill)
{
	static const int least[] = {-(1 << 15), -(1 << 7), -(1 << 4)}; /* of corners, from rank 3 on */
	struct sim_tensor_map m = {.magic = SIM_IM2COL_MAP, .address = (uintptr_t)address, .rank = (uint8_t)rank};
	cuuint32_t box[SIM_TENSOR_RANK] = {channels, 1, 1, 1, 1};

	ENTER(sim_enter_driver());
	INVALID_IF(!out || (uintptr_t)out % MAP_ALIGNMENT || (unsigned)type >= TYPES || rank < 3 || rank > SIM_TENSOR_RANK ||
		   !address || m.address % 16 || !size || !stride || !lower || !upper || !step || pixels > MOST_PIXELS ||
		   (unsigned)promotion > CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
	if (type >= sizeof(element_bytes) || interleave || (unsigned)swizzle > CU_TENSOR_MAP_SWIZZLE_128B || fill) {
		sim_leave(CUDA_SUCCESS);
		return sim_refuse("cuTensorMapEncodeIm2col with this type, interleave, swizzle or fill");
	}
	m.element = element_bytes[type];
	INVALID_IF(!take_sizes(&m, size, stride, box, step) || channels * m.element % SIM_TENSOR_LINE);
	for (unsigned i = 0; i < rank - 2; i++) {
		INVALID_IF(lower[i] < least[rank - 3] || lower[i] >= -least[rank - 3] || upper[i] < least[rank - 3] ||
			   upper[i] >= -least[rank - 3]);
		m.corner[i][0] = (int16_t)lower[i];
		m.corner[i][1] = (int16_t)upper[i];
	}
	m.box[1] = (uint16_t)pixels;
	m.swizzle = (uint8_t)swizzle;
	memcpy(out, &m, sizeof(m));
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuTensorMapReplaceAddress(CUtensorMap *map, void *address)
{
	struct sim_tensor_map m;

	ENTER(sim_enter_driver());
	INVALID_IF(!map || !address || (uintptr_t)address % 16);
	memcpy(&m, map, sizeof(m));
	INVALID_IF(m.magic != SIM_TENSOR_MAP && m.magic != SIM_IM2COL_MAP);
	m.address = (uintptr_t)address;
	memcpy(map, &m, sizeof(m));
	return sim_leave(CUDA_SUCCESS);
}
