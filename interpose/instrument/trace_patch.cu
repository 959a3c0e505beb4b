/*
 * What NVIDIA's Sanitizer API inserts before instructions that access memory: writes the records of trace_ring.h.
 * Compiled by build_patch.py.
 */
#include <stdint.h>

#include "format.h"
#include "trace_ring.h"

#define PATIENCE (1ull << 31) /* clock cycles without room */
#define WRITES 2u             /* SANITIZER_MEMORY_DEVICE_FLAG_WRITE */

struct warp {
	uint32_t mask, lane, leader;
};

static __device__ bool is_traced(const tt_trace_param *p, uint32_t instruction)
{
	uint64_t block = blockIdx.x + (uint64_t)gridDim.x * (blockIdx.y + (uint64_t)gridDim.y * blockIdx.z);

	return block >= p->first_block && block <= p->last_block && instruction >= p->first_instruction &&
	       instruction <= p->last_instruction;
}

/* For the leader: the position of the record; UINT64_MAX: no room. */
static __device__ uint64_t reserve(const tt_trace_param *p, uint32_t bytes)
{
	tt_trace_ring *ring = (tt_trace_ring *)p->ring;
	volatile unsigned long long *tail = (unsigned long long *)&ring->tail, *discard = (unsigned long long *)&ring->discard;
	long long began = clock64();
	unsigned long long at, seen = 0;

	if (!*discard) {
		at = atomicAdd((unsigned long long *)&ring->head, (unsigned long long)bytes);
		for (unsigned long long now; at + bytes - (now = *tail) > p->bytes && !*discard; seen = now) {
			if (now != seen)
				began = clock64();
			else if (clock64() - began > PATIENCE)
				*discard = 1;
		}
		if (!*discard)
			return at;
	}
	atomicAdd((unsigned long long *)&ring->lost, 1ull);
	return UINT64_MAX;
}

/* Whether the addresses are base + lane * stride; then sets both. */
static __device__ bool is_strided(const warp *w, uint64_t address, uint64_t *base, int16_t *stride)
{
	uint32_t rest = w->mask & (w->mask - 1), second = rest ? __ffs(rest) - 1 : w->leader;
	uint64_t first = __shfl_sync(w->mask, address, w->leader), next = __shfl_sync(w->mask, address, second);
	int64_t step = second > w->leader ? (int64_t)(next - first) / (int64_t)(second - w->leader) : 0;

	*stride = (int16_t)step;
	*base = first - w->leader * step;
	return __all_sync(w->mask, step == (int16_t)step && address == *base + w->lane * step);
}

static __device__ void record(const tt_trace_param *p, uint32_t kind, uint32_t instruction, uint64_t address, uint32_t words,
			      const uint32_t *values, uint32_t size)
{
	uint32_t mask = __activemask(), lane;
	asm("mov.u32 %0, %%laneid;" : "=r"(lane));
	warp w = {mask, lane, (uint32_t)__ffs(mask) - 1};
	uint64_t base = 0, at = 0;
	int16_t stride = 0;
	bool has_address = kind != TT_TRACE_OPCODE, strided = has_address && is_strided(&w, address, &base, &stride);
	uint32_t bytes = sizeof(tt_trace_record) + (has_address ? strided ? 8 : 256 : 0) + words * 128;

	if (lane == w.leader)
		at = reserve(p, bytes);
	at = __shfl_sync(mask, at, w.leader);
	if (at == UINT64_MAX)
		return;
	tt_trace_record *r = (tt_trace_record *)(p->base + (at & (p->bytes - 1)));
	char *to = (char *)(r + 1);
	if (lane == w.leader) {
		uint32_t thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
		r->launch = p->launch;
		r->instruction = instruction;
		r->mask = mask;
		r->block_x = blockIdx.x;
		r->block_y = (uint16_t)blockIdx.y;
		r->block_z = (uint16_t)blockIdx.z;
		r->warp = (uint16_t)(thread / 32);
		r->stride = strided ? stride : 0;
		r->clock = (uint32_t)clock();
		if (strided)
			*(uint64_t *)to = base;
	}
	if (has_address && !strided)
		((uint64_t *)to)[lane] = address;
	to += !has_address ? 0 : strided ? 8 : 256;
	for (uint32_t i = 0; i < words; i++) {
		uint32_t value = 0;
		for (uint32_t b = 0; b < 4 && 4 * i + b < size; b++)
			value |= (uint32_t)((const uint8_t *)values)[4 * i + b] << 8 * b;
		((uint32_t *)to)[32 * i + lane] = value;
	}
	__threadfence();
	__syncwarp(mask);
	if (lane == w.leader)
		*(volatile uint32_t *)&r->tag = TT_TRACE_TAG(kind, strided ? TT_TRACEF_STRIDED : 0, bytes);
}

static __device__ uint32_t number(const tt_trace_param *p, uint64_t pc)
{
	return (uint32_t)((pc - p->code) / 16);
}

extern "C" __device__ __noinline__ int tt_patch_access(void *user, uint64_t pc, void *address, uint32_t size, uint32_t flags,
						       const void *data)
{
	const tt_trace_param *p = (const tt_trace_param *)user;

	if (!p || !is_traced(p, number(p, pc)))
		return 0;
	bool values = p->kinds & 1u << TT_TRACE_VALUES && flags & WRITES && data;
	record(p, values ? TT_TRACE_VALUES : TT_TRACE_ADDRESSES, number(p, pc), (uint64_t)address, values ? (size + 3) / 4 : 0,
	       (const uint32_t *)data, size);
	return 0;
}

extern "C" __device__ __noinline__ int tt_patch_barrier(void *user, uint64_t pc, uint32_t barrier, uint32_t threads, uint32_t flags)
{
	const tt_trace_param *p = (const tt_trace_param *)user;

	if (p && is_traced(p, number(p, pc)))
		record(p, TT_TRACE_OPCODE, number(p, pc), 0, 0, nullptr, 0);
	return 0;
}

/* ldmatrix and stmatrix: eight lanes for each matrix give an address. */
extern "C" __device__ __noinline__ int tt_patch_matrix(void *user, uint64_t pc, uint32_t address, uint32_t size, uint32_t flags,
						       uint32_t count, const void *data)
{
	uint32_t lane;

	asm("mov.u32 %0, %%laneid;" : "=r"(lane));
	return lane < 8 * count ? tt_patch_access(user, pc, (void *)(uintptr_t)address, size, flags & ~WRITES, data) : 0;
}

extern "C" __device__ __noinline__ int tt_patch_cluster(void *user, uint64_t pc)
{
	return tt_patch_barrier(user, pc, 0, 0, 0);
}
