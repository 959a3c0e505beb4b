/*
 * What a traced kernel does before an instruction: the source of trace_templates.h, which build_trace_code.py makes.
 *
 * Each kernel here is a piece of code for warps that stay together: its inputs are special registers that
 * build_trace_code.py gives other meanings, and its only parameter is the one that traced kernels have.
 */
#include <stddef.h>
#include <stdint.h>

#include "format.h"
#include "trace_ring.h"

#define ALL 0xffffffffu
#define PATIENCE (1ll << 31) /* clock cycles without room */

/* Special registers that stand for inputs; they differ between lanes, so that nothing of them is taken for uniform. */
#define INSTRUCTION "lanemask_eq"
#define MASK "lanemask_le"
#define ADDRESS_LOW "lanemask_lt"
#define ADDRESS_HIGH "lanemask_ge"
#define ZERO "lanemask_gt"
#define BYTES "pm0"
#define TAG "pm1"

#define INPUT(which) \
	([]() __attribute__((always_inline)) { \
		uint32_t value; \
		asm volatile("mov.u32 %0, %%" which ";" : "=r"(value)); \
		return value; \
	}())

/* 0, added to what would else be uniform: uniform registers and predicates are scarce. */
static __device__ __forceinline__ uint32_t zero()
{
	uint32_t value;

	asm("mov.u32 %0, %%" ZERO ";" : "=r"(value));
	return value;
}

static __device__ __forceinline__ const tt_trace_param &apart(const tt_trace_param &p)
{
	return *(const tt_trace_param *)((const char *)&p + zero());
}

/* Stands for a move to the next register that code keeps. */
static __device__ __forceinline__ void output(uint32_t value)
{
	asm volatile("nanosleep.u32 %0;" ::"r"(value));
}

static __device__ __forceinline__ uint32_t lane()
{
	uint32_t value;

	asm("mov.u32 %0, %%laneid;" : "=r"(value));
	return value;
}

static __device__ __forceinline__ uint64_t block()
{
	return blockIdx.x + zero() +
	       (uint64_t)(gridDim.x + zero()) * (blockIdx.y + zero() + (uint64_t)(gridDim.y + zero()) * (blockIdx.z + zero()));
}

static __device__ __forceinline__ bool is_traced(const tt_trace_param &p)
{
	uint64_t own = block();

	return (!p.first_block & (p.last_block == UINT64_MAX)) | ((own >= p.first_block) & (own <= p.last_block));
}

static __device__ __forceinline__ uint32_t warp_of_block()
{
	return (threadIdx.x + (blockDim.x + zero()) * (threadIdx.y + (blockDim.y + zero()) * threadIdx.z)) / 32;
}

static __device__ __forceinline__ void add(uint64_t *to, uint64_t value)
{
	asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

/* For the leader: the address of the record; 0: no room. */
static __device__ __forceinline__ uint64_t reserve(const tt_trace_param &p, uint32_t bytes)
{
	uint32_t processor;

	asm("mov.u32 %0, %%smid;" : "=r"(processor));
	tt_trace_ring *ring = (tt_trace_ring *)p.ring + ((processor + zero()) & (p.rings - 1));
	volatile unsigned long long *tail = (unsigned long long *)&ring->tail;
	volatile unsigned long long *discard = (unsigned long long *)&ring->discard;
	unsigned long long at, now, seen;
	bool lost;

	__builtin_assume(__isGlobal(ring));
	asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;"
		     : "=l"(at)
		     : "l"(&ring->head), "l"((uint64_t)bytes)
		     : "memory");
	uint64_t base = ring->base;
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
	return lost ? 0 : base + (at & (p.bytes - 1));
}

static __device__ __forceinline__ uint64_t from_lane(uint64_t value, uint32_t lane)
{
	uint32_t low = __shfl_sync(ALL, (uint32_t)value, lane), high = __shfl_sync(ALL, (uint32_t)(value >> 32), lane);

	return low | (uint64_t)high << 32;
}

static __device__ __forceinline__ tt_trace_record *record_at(uint64_t at)
{
	tt_trace_record *r = (tt_trace_record *)at;

	__builtin_assume(__isGlobal(r));
	return r;
}

static __device__ __forceinline__ void head(const tt_trace_param &p, tt_trace_record *r, uint32_t mask, int32_t stride)
{
	r->launch = p.launch;
	r->instruction = INPUT(INSTRUCTION);
	r->mask = mask;
	r->block_x = blockIdx.x + zero();
	r->block_y = (uint16_t)(blockIdx.y + zero());
	r->block_z = (uint16_t)(blockIdx.z + zero());
	r->warp = (uint16_t)warp_of_block();
	r->stride = (int16_t)stride;
	r->clock = (uint32_t)clock();
}

static __device__ __forceinline__ void complete(tt_trace_record *r, uint32_t tag)
{
	asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(&r->tag), "r"(tag) : "memory");
}

/* With --blocks. */
extern "C" __global__ void tt_count_blocks(const __grid_constant__ tt_trace_param given)
{
	const tt_trace_param &p = apart(given);
	uint32_t mask = INPUT(MASK);
	uint32_t slot = ((uint32_t)clock() & (p.copies - 1)) * p.slots + INPUT(INSTRUCTION);

	if (is_traced(p) && lane() == (uint32_t)__ffs(mask) - 1)
		add((uint64_t *)p.counts + slot, TT_TRACE_COUNTED(__popc(mask)));
}

extern "C" __global__ void tt_opcode(const __grid_constant__ tt_trace_param given)
{
	const tt_trace_param &p = apart(given);
	const uint32_t bytes = sizeof(tt_trace_record);
	uint32_t mask = INPUT(MASK);

	if (!mask || !is_traced(p))
		return;
	if (lane() == (uint32_t)__ffs(mask) - 1) {
		uint64_t at = reserve(p, bytes);
		if (at) {
			tt_trace_record *r = record_at(at);
			head(p, r, mask, 0);
			complete(r, TT_TRACE_TAG(TT_TRACE_OPCODE, 0, bytes));
		}
	}
}

/*
 * Begins the record of an access, with room for `more` bytes behind its addresses. Returns its address, 0: no room. tag:
 * completes it.
 */
static __device__ __forceinline__ uint64_t begin_access(const tt_trace_param &p, uint32_t mask, uint32_t kind, uint32_t more,
							uint32_t *tag, bool *is_strided)
{
	uint64_t address = INPUT(ADDRESS_LOW) | (uint64_t)INPUT(ADDRESS_HIGH) << 32;
	uint32_t rest = mask & (mask - 1), leader = __ffs(mask) - 1, second = rest ? __ffs(rest) - 1 : leader + 1,
		 at_lane = lane();
	uint64_t first = from_lane(address, leader), next = from_lane(address, second & 31);
	/* not exact for all numbers, and so checked */
	int32_t stride = rest ? __float2int_rn(__fdividef((float)(int32_t)(next - first), (float)(second - leader))) : 0;
	uint64_t base = first - (int64_t)stride * leader;
	bool strided = __all_sync(ALL, !(mask >> at_lane & 1) ||
					       (stride == (int16_t)stride && address == base + (int64_t)stride * at_lane));
	uint32_t bytes = sizeof(tt_trace_record) + (strided ? 8 : 256) + more;
	uint64_t at = 0;
	if (at_lane == leader)
		at = reserve(p, bytes);
	at = from_lane(at, leader);
	*tag = TT_TRACE_TAG(kind, strided ? TT_TRACEF_STRIDED : 0, bytes);
	*is_strided = strided;
	if (!at)
		return 0;
	tt_trace_record *r = record_at(at);
	uint64_t *to = (uint64_t *)(r + 1);
	/* lanes that do not execute the instruction may not be here: they stay 0, as the ring is */
	if (!strided && mask >> at_lane & 1)
		to[at_lane] = address;
	if (at_lane == leader) {
		if (strided)
			*to = base;
		head(p, r, mask, strided ? stride : 0);
	}
	return at;
}

extern "C" __global__ void tt_addresses(const __grid_constant__ tt_trace_param given)
{
	const tt_trace_param &p = apart(given);
	uint32_t mask = INPUT(MASK), tag;
	bool strided;

	if (!mask || !is_traced(p))
		return;
	uint64_t at = begin_access(p, mask, TT_TRACE_ADDRESSES, 0, &tag, &strided);
	if (!at)
		return;
	if (!strided) {
		__threadfence();
		__syncwarp();
	}
	if (lane() == (uint32_t)__ffs(mask) - 1)
		complete(record_at(at), tag);
}

/*
 * The beginning of a record of registers, which code between this and the end adds. Its tag is given. Gives where the
 * payload begins, and the tag, which is 0 for lanes that add none.
 */
extern "C" __global__ void tt_registers_begin(const __grid_constant__ tt_trace_param given)
{
	const tt_trace_param &p = apart(given);
	uint32_t mask = INPUT(MASK), leader = __ffs(mask) - 1, at_lane = lane(), tag = 0;
	uint64_t at = 0;

	if (mask && is_traced(p)) {
		__syncwarp(); /* so that nvcc takes the warp for whole, and needs few uniform registers */
		tag = INPUT(TAG);
		if (at_lane == leader)
			at = reserve(p, tag >> 16 << 3);
		at = from_lane(at, leader);
		if (!at || !(mask >> at_lane & 1))
			tag = 0;
		if (at && at_lane == leader)
			head(p, record_at(at), mask, 0);
		at += sizeof(tt_trace_record);
	}
	output((uint32_t)at);
	output((uint32_t)(at >> 32));
	output(tag);
}

#define COPY_WORDS 5 /* of 8 bytes: descriptor, barrier, coordinates, blocks */
#define MAP_WORDS 16

/* The same of a bulk copy, which a warp issues once. The address is that of its tensor map, 0: none. */
extern "C" __global__ void tt_tma_begin(const __grid_constant__ tt_trace_param given)
{
	const tt_trace_param &p = apart(given);
	uint64_t map = INPUT(ADDRESS_LOW) | (uint64_t)INPUT(ADDRESS_HIGH) << 32, at = 0;
	uint32_t mask = INPUT(MASK), leader = __ffs(mask) - 1, tag = 0;
	uint32_t bytes = sizeof(tt_trace_record) + 8 * (map ? COPY_WORDS + MAP_WORDS : COPY_WORDS);

	if (mask && is_traced(p) && lane() == leader)
		at = reserve(p, bytes);
	if (at) {
		tt_trace_record *r = record_at(at);
		volatile uint64_t *payload = (uint64_t *)(r + 1);
		head(p, r, 1u << leader, 0);
		payload[0] = map;
		for (uint32_t i = 0; map && i < MAP_WORDS; i++)
			payload[COPY_WORDS + i] = ((const volatile uint64_t *)map)[i];
		tag = TT_TRACE_TAG(TT_TRACE_TMA, 0, bytes);
	}
	at += sizeof(tt_trace_record);
	output((uint32_t)at);
	output((uint32_t)(at >> 32));
	output(tag);
}

/*
 * The beginning of a record with values, which code between this and the end adds: gives where each lane has its first one,
 * and the tag, which is 0 for lanes that add none.
 */
extern "C" __global__ void tt_values_begin(const __grid_constant__ tt_trace_param given)
{
	const tt_trace_param &p = apart(given);
	uint32_t mask = INPUT(MASK), tag = 0;
	uint64_t to = 0;
	bool strided;

	if (mask && is_traced(p)) {
		uint64_t at = begin_access(p, mask, TT_TRACE_VALUES, INPUT(BYTES), &tag, &strided);
		to = at + sizeof(tt_trace_record) + (strided ? 8 : 256) + lane() * 4;
		if (!at || !(mask >> lane() & 1))
			tag = 0;
	}
	output((uint32_t)to);
	output((uint32_t)(to >> 32));
	output(tag);
}

/* The address is where a lane had its first value, or register. */
extern "C" __global__ void tt_values_end(const __grid_constant__ tt_trace_param given)
{
	const tt_trace_param &p = apart(given);
	uint32_t tag = INPUT(TAG);
	uint64_t to = INPUT(ADDRESS_LOW) | (uint64_t)INPUT(ADDRESS_HIGH) << 32;

	__threadfence();
	__syncwarp();
	if (!tag || lane() != (uint32_t)__ffs(INPUT(MASK)) - 1)
		return;
	uint32_t addresses = (tag & 0xff) != TT_TRACE_VALUES ? 0 : tag >> 8 & TT_TRACEF_STRIDED ? 8 : 256;
	uint32_t before = sizeof(tt_trace_record) + addresses + lane() * 4;
	complete(record_at(to - before), tag);
}

/* ---- heartbeats: see trace_beats.c ---- */

/*
 * Where the kernel begins, with uniform registers of its own. Gives the heartbeat's address. A launch
 * with heartbeats has fewer than 2^32 warps. Each warp waits for this, so it is short, and has no branches.
 */
extern "C" __global__ void tt_beat_enter(const __grid_constant__ tt_trace_param p)
{
	uint32_t warps = (blockDim.x * blockDim.y * blockDim.z + 31) / 32;
	uint32_t block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
	uint32_t warp = (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) / 32;
	uint64_t at = p.heartbeat + (uint64_t)(block * warps + warp) * sizeof(tt_heartbeat);

	output((uint32_t)at);
	output((uint32_t)(at >> 32));
}

/* The same of a launch whose grid and blocks have one dimension. */
extern "C" __global__ void tt_beat_enter_flat(const __grid_constant__ tt_trace_param p)
{
	uint32_t warp = blockIdx.x * ((blockDim.x + 31) / 32) + threadIdx.x / 32;
	uint64_t at = p.heartbeat + (uint64_t)warp * sizeof(tt_heartbeat);

	output((uint32_t)at);
	output((uint32_t)(at >> 32));
}
