/*
 * What a traced kernel does before an instruction: the source of trace_templates.h, which build_trace_code.py makes.
 *
 * Each kernel here is a piece of code for warps that stay together: its inputs are special registers that
 * build_trace_code.py gives other meanings, and its only parameter is the one that traced kernels have.
 */
#include <stdint.h>

#include "format.h"
#include "trace_ring.h"

#define ALL 0xffffffffu
#define PATIENCE (1ll << 31) /* clock cycles without room */
#define NOWHERE UINT64_MAX

/* Special registers that stand for inputs; they differ between lanes, so that nothing of them is taken for uniform. */
#define INSTRUCTION "eq"
#define MASK "le"
#define ADDRESS_LOW "lt"
#define ADDRESS_HIGH "ge"
#define ZERO "gt" /* 0, added to what would else be uniform: uniform registers and predicates are scarce */

#define INPUT(which) \
	([]() __attribute__((always_inline)) { \
		uint32_t value; \
		asm volatile("mov.u32 %0, %%lanemask_" which ";" : "=r"(value)); \
		return value; \
	}())

static __device__ __forceinline__ uint32_t lane()
{
	uint32_t value;

	asm("mov.u32 %0, %%laneid;" : "=r"(value));
	return value;
}

static __device__ __forceinline__ uint64_t block()
{
	return blockIdx.x + (uint64_t)gridDim.x * (blockIdx.y + (uint64_t)gridDim.y * blockIdx.z);
}

static __device__ __forceinline__ bool is_traced(const tt_trace_param &p)
{
	return (!p.first_block && p.last_block == UINT64_MAX) || (block() >= p.first_block && block() <= p.last_block);
}

static __device__ __forceinline__ uint32_t warp_of_block()
{
	return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) / 32;
}

static __device__ __forceinline__ void add(uint64_t *to, uint64_t value)
{
	asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

/* For the leader: the position of the record, or NOWHERE: no room. */
static __device__ __forceinline__ uint64_t reserve(const tt_trace_param &p, uint32_t bytes)
{
	tt_trace_ring *ring = (tt_trace_ring *)(p.ring + INPUT(ZERO));
	volatile unsigned long long *tail = (unsigned long long *)&ring->tail;
	volatile unsigned long long *discard = (unsigned long long *)&ring->discard;
	unsigned long long at, now, seen;
	bool lost;

	__builtin_assume(__isGlobal(ring));
	asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;"
		     : "=l"(at)
		     : "l"(&ring->head), "l"((uint64_t)bytes)
		     : "memory");
	seen = now = *tail;
	lost = *discard != 0;
	for (long long began = clock64(); at + bytes - now > p.bytes && !lost; now = *tail, lost = *discard != 0) {
		if (now != seen)
			began = clock64();
		else if (clock64() - began > PATIENCE)
			*discard = 1;
		seen = now;
	}
	if (lost)
		add(&ring->lost, 1);
	return lost ? NOWHERE : at;
}

static __device__ __forceinline__ uint64_t from_lane(uint64_t value, uint32_t lane)
{
	uint32_t low = __shfl_sync(ALL, (uint32_t)value, lane), high = __shfl_sync(ALL, (uint32_t)(value >> 32), lane);

	return low | (uint64_t)high << 32;
}

static __device__ __forceinline__ tt_trace_record *record_at(const tt_trace_param &p, uint64_t at)
{
	tt_trace_record *r = (tt_trace_record *)(p.base + (at & (p.bytes + INPUT(ZERO) - 1)));

	__builtin_assume(__isGlobal(r));
	return r;
}

static __device__ __forceinline__ void head(const tt_trace_param &p, tt_trace_record *r, uint32_t mask, int32_t stride)
{
	r->launch = p.launch;
	r->instruction = INPUT(INSTRUCTION);
	r->mask = mask;
	r->block_x = blockIdx.x;
	r->block_y = (uint16_t)blockIdx.y;
	r->block_z = (uint16_t)blockIdx.z;
	r->warp = (uint16_t)warp_of_block();
	r->stride = (int16_t)stride;
	r->clock = (uint32_t)clock();
}

static __device__ __forceinline__ void complete(tt_trace_record *r, uint32_t tag)
{
	asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(&r->tag), "r"(tag) : "memory");
}

static __device__ __forceinline__ void count(const tt_trace_param &p)
{
	uint32_t mask = INPUT(MASK), processor;

	asm("mov.u32 %0, %%smid;" : "=r"(processor));
	uint32_t slot = (processor & (p.copies - 1)) * p.slots + INPUT(INSTRUCTION);
	if (lane() == (uint32_t)__ffs(mask) - 1)
		add((uint64_t *)p.counts + slot, TT_TRACE_COUNTED(__popc(mask)));
}

extern "C" __global__ void tt_count(const __grid_constant__ tt_trace_param p)
{
	count(p);
}

/* With --blocks. */
extern "C" __global__ void tt_count_blocks(const __grid_constant__ tt_trace_param p)
{
	if (is_traced(p))
		count(p);
}

extern "C" __global__ void tt_opcode(const __grid_constant__ tt_trace_param p)
{
	const uint32_t bytes = sizeof(tt_trace_record);
	uint32_t mask = INPUT(MASK);

	if (!mask || !is_traced(p))
		return;
	if (lane() == (uint32_t)__ffs(mask) - 1) {
		uint64_t at = reserve(p, bytes);
		if (at != NOWHERE) {
			tt_trace_record *r = record_at(p, at);
			head(p, r, mask, 0);
			complete(r, TT_TRACE_TAG(TT_TRACE_OPCODE, 0, bytes));
		}
	}
}

extern "C" __global__ void tt_addresses(const __grid_constant__ tt_trace_param p)
{
	uint32_t mask = INPUT(MASK);

	if (!mask || !is_traced(p))
		return;
	uint64_t address = INPUT(ADDRESS_LOW) | (uint64_t)INPUT(ADDRESS_HIGH) << 32;
	uint32_t rest = mask & (mask - 1), leader = __ffs(mask) - 1, second = rest ? __ffs(rest) - 1 : leader + 1,
		 at_lane = lane();
	uint64_t first = from_lane(address, leader), next = from_lane(address, second & 31);
	/* not exact for all numbers, and so checked */
	int32_t stride = rest ? __float2int_rn(__fdividef((float)(int32_t)(next - first), (float)(second - leader))) : 0;
	uint64_t base = first - (int64_t)stride * leader;
	bool strided = __all_sync(ALL, !(mask >> at_lane & 1) ||
					       (stride == (int16_t)stride && address == base + (int64_t)stride * at_lane));
	uint32_t bytes = sizeof(tt_trace_record) + (strided ? 8 : 256);
	uint64_t at = 0;
	if (at_lane == leader)
		at = reserve(p, bytes);
	at = from_lane(at, leader);
	if (at == NOWHERE)
		return;
	tt_trace_record *r = record_at(p, at);
	uint64_t *to = (uint64_t *)(r + 1);
	if (!strided) {
		/* lanes that do not execute the instruction may not be here: they stay 0, as the ring is */
		if (mask >> at_lane & 1)
			to[at_lane] = address;
		__threadfence();
		__syncwarp();
	}
	if (at_lane == leader) {
		if (strided)
			*to = base;
		head(p, r, mask, strided ? stride : 0);
		complete(r, TT_TRACE_TAG(TT_TRACE_ADDRESSES, strided ? TT_TRACEF_STRIDED : 0, bytes));
	}
}
