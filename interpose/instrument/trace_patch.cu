/*
 * What NVIDIA's Sanitizer API inserts before instructions that access memory: writes the records of trace_ring.h.
 * Compiled by build_patch.py.
 */
#include <stdint.h>

#include "format.h"
#include "trace_ring.h"

#define PATIENCE (1ull << 31) /* clock cycles without room */
#define WRITES 2u             /* SANITIZER_MEMORY_DEVICE_FLAG_WRITE */
#define PREFETCHES 8u         /* SANITIZER_MEMORY_DEVICE_FLAG_PREFETCH */
#define WAITS 2u              /* SANITIZER_BARRIER_FLAG_IS_SYNCHRONIZING */

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

/* All of a record but its tag and payload. */
static __device__ void begin(const tt_trace_param *p, tt_trace_record *r, uint32_t instruction, uint32_t mask, int16_t stride)
{
	uint32_t thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);

	r->launch = p->launch;
	r->instruction = instruction;
	r->mask = mask;
	r->block_x = blockIdx.x;
	r->block_y = (uint16_t)blockIdx.y;
	r->block_z = (uint16_t)blockIdx.z;
	r->warp = (uint16_t)(thread / 32);
	r->stride = stride;
	r->clock = (uint32_t)clock();
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
		begin(p, r, instruction, mask, strided ? stride : 0);
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

/* ---- heartbeats ---- */

static __device__ volatile tt_heartbeat *own_heartbeat(const tt_trace_param *p)
{
	uint64_t block = blockIdx.x + (uint64_t)gridDim.x * (blockIdx.y + (uint64_t)gridDim.y * blockIdx.z);
	uint32_t thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
	uint32_t warps = (blockDim.x * blockDim.y * blockDim.z + 31) / 32;

	return (volatile tt_heartbeat *)p->heartbeat + (block * warps + thread / 32);
}

static __device__ uint64_t mixed(uint64_t a, uint64_t b)
{
	return (a ^ b) * 0x9e3779b97f4a7c15ull ^ b >> 29;
}

/*
 * The parity of each of 8 bits among the lanes. Two passes that differ are taken for equal with 1/256; a loop whose passes
 * differ is still known, because each of them counts.
 */
static __device__ uint32_t joined(uint32_t mask, uint64_t mine)
{
	uint32_t bits = (uint32_t)(mine >> 56), out = 0;

	for (int i = 0; i < 8; i++)
		out |= (__popc(__ballot_sync(mask, bits >> i & 1)) & 1u) << i;
	return out;
}

/* content: what is in memory at `object`, so that a loop that changes it is no repetition. */
static __device__ void beat(const tt_trace_param *p, uint32_t instruction, uint32_t state, uint64_t object, uint32_t content)
{
	uint32_t mask = __activemask(), lane;
	asm("mov.u32 %0, %%laneid;" : "=r"(lane));
	uint32_t all = joined(mask, mixed(mixed(mask, instruction), mixed(object, content)));

	if (lane != (uint32_t)__ffs(mask) - 1)
		return;
	volatile tt_heartbeat *h = own_heartbeat(p);
	uint64_t count = h->count, seen = h->seen;
	if (count && instruction <= h->instruction) {
		bool same = h->first == instruction && h->last == h->instruction && h->before == seen;
		h->first = instruction;
		h->last = h->instruction;
		h->before = seen;
		seen = 0;
		if (same)
			h->repeated = h->repeated + 1;
		else
			h->changed = h->changed + 1;
	}
	h->seen = (seen << 7 | seen >> 57) ^ all;
	h->instruction = instruction;
	h->access = instruction;
	h->object = object;
	h->state = state;
	h->count = count + 1;
}

extern "C" __device__ __noinline__ int tt_patch_enter(void *user, uint64_t pc)
{
	const tt_trace_param *p = (const tt_trace_param *)user;

	if (p && p->heartbeat)
		own_heartbeat(p)->state = TT_WARP_RUNS;
	return 0;
}

extern "C" __device__ __noinline__ int tt_patch_exit(void *user, uint64_t pc)
{
	const tt_trace_param *p = (const tt_trace_param *)user;
	uint32_t mask = __activemask(), lane;
	asm("mov.u32 %0, %%laneid;" : "=r"(lane));

	if (!p || !p->heartbeat || lane != (uint32_t)__ffs(mask) - 1)
		return 0;
	uint32_t thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
	uint32_t left = blockDim.x * blockDim.y * blockDim.z - thread / 32 * 32;
	uint32_t threads = left < 32 ? (1u << left) - 1 : ~0u;
	volatile tt_heartbeat *h = own_heartbeat(p);
	h->exited = h->exited | mask;
	if ((h->exited & threads) == threads)
		h->state = TT_WARP_EXITED;
	return 0;
}

/* ---- instructions ---- */

static __device__ void record_access(const tt_trace_param *p, uint64_t pc, void *address, uint32_t size, uint32_t flags,
				     const void *data)
{
	bool asked = p->kinds & (1u << TT_TRACE_ADDRESSES | 1u << TT_TRACE_VALUES);

	if (!asked || !is_traced(p, number(p, pc)))
		return;
	bool values = p->kinds & 1u << TT_TRACE_VALUES && flags & WRITES && data;
	record(p, values ? TT_TRACE_VALUES : TT_TRACE_ADDRESSES, number(p, pc), (uint64_t)address, values ? (size + 3) / 4 : 0,
	       (const uint32_t *)data, size);
}

extern "C" __device__ __noinline__ int tt_patch_access(void *user, uint64_t pc, void *address, uint32_t size, uint32_t flags,
						       const void *data)
{
	const tt_trace_param *p = (const tt_trace_param *)user;

	if (!p)
		return 0;
	if (p->heartbeat)
		beat(p, number(p, pc), TT_WARP_RUNS, (uint64_t)address,
		     flags & PREFETCHES ? 0 : *(volatile uint32_t *)((uint64_t)address & ~3ull));
	record_access(p, pc, address, size, flags, data);
	return 0;
}

/* Addresses of shared and local memory are offsets. */
extern "C" __device__ __noinline__ int tt_patch_shared(void *user, uint64_t pc, void *address, uint32_t size, uint32_t flags,
						       const void *data)
{
	const tt_trace_param *p = (const tt_trace_param *)user;
	uint32_t content;

	if (!p)
		return 0;
	if (p->heartbeat) {
		asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(content) : "r"((uint32_t)(uint64_t)address & ~3u));
		beat(p, number(p, pc), TT_WARP_RUNS, (uint64_t)address, content);
	}
	record_access(p, pc, address, size, flags, data);
	return 0;
}

/* Without a heartbeat. */
extern "C" __device__ __noinline__ int tt_patch_record(void *user, uint64_t pc, void *address, uint32_t size, uint32_t flags,
						       const void *data)
{
	if (user)
		record_access((const tt_trace_param *)user, pc, address, size, flags, data);
	return 0;
}

extern "C" __device__ __noinline__ int tt_patch_barrier(void *user, uint64_t pc, uint32_t barrier, uint32_t threads, uint32_t flags)
{
	const tt_trace_param *p = (const tt_trace_param *)user;

	if (!p)
		return 0;
	if (p->heartbeat)
		beat(p, number(p, pc), flags & WAITS ? TT_WARP_AT_BARRIER : TT_WARP_RUNS, barrier | (uint64_t)threads << 32, 0);
	if (p->kinds & 1u << TT_TRACE_OPCODE && is_traced(p, number(p, pc)))
		record(p, TT_TRACE_OPCODE, number(p, pc), 0, 0, nullptr, 0);
	return 0;
}

/* ldmatrix and stmatrix: eight lanes for each matrix give an address. */
extern "C" __device__ __noinline__ int tt_patch_matrix(void *user, uint64_t pc, uint32_t address, uint32_t size, uint32_t flags,
						       uint32_t count, const void *data)
{
	uint32_t lane;

	asm("mov.u32 %0, %%laneid;" : "=r"(lane));
	return lane < 8 * count ? tt_patch_record(user, pc, (void *)(uintptr_t)address, size, flags & ~WRITES, data) : 0;
}

extern "C" __device__ __noinline__ int tt_patch_cluster(void *user, uint64_t pc)
{
	return tt_patch_barrier(user, pc, 0, 0, 0);
}

/* Each attempt of an operation on an mbarrier. */
extern "C" __device__ __noinline__ int tt_patch_mbarrier(void *user, uint64_t pc, void *barrier, uint32_t kind, uint32_t data,
							 uint32_t result, uint32_t flags, uint32_t blocks)
{
	const tt_trace_param *p = (const tt_trace_param *)user;

	if (p && p->heartbeat)
		beat(p, number(p, pc), TT_WARP_RUNS, (uint64_t)barrier, result);
	return 0;
}

#define MAP_WORDS 16

/* A copy by a tensor map, which a warp issues once. `blocks`: a mask in the upper half. */
extern "C" __device__ __noinline__ int tt_patch_tensor_load(void *user, uint64_t pc, uint64_t map, uint32_t to, uint32_t barrier,
							    int32_t c0, int32_t c1, int32_t c2, int32_t c3, int32_t c4,
							    uint32_t dimensions, uint32_t multicast, uint32_t blocks, uint32_t mode)
{
	const tt_trace_param *p = (const tt_trace_param *)user;
	const uint32_t bytes = sizeof(tt_trace_record) + 5 * 8 + MAP_WORDS * 8;
	const int32_t place[] = {c0, c1, c2, c3, c4};
	uint32_t mask = __activemask(), leader = (uint32_t)__ffs(mask) - 1, lane;
	asm("mov.u32 %0, %%laneid;" : "=r"(lane));

	if (!p || lane != leader || !(p->kinds & 1u << TT_TRACE_TMA) || !is_traced(p, number(p, pc)))
		return 0;
	uint64_t at = reserve(p, bytes);
	if (at == UINT64_MAX)
		return 0;
	tt_trace_record *r = (tt_trace_record *)(p->base + (at & (p->bytes - 1)));
	uint64_t *payload = (uint64_t *)(r + 1);
	begin(p, r, number(p, pc), 1u << leader, 0);
	payload[0] = map;
	payload[1] = barrier;
	for (uint32_t i = 0; i < 5; i++)
		((int32_t *)(payload + 2))[i] = i < dimensions ? place[i] : 0;
	((uint32_t *)(payload + 2))[5] = multicast ? blocks >> 16 : 0;
	for (uint32_t i = 0; i < MAP_WORDS; i++)
		payload[5 + i] = ((const uint64_t *)map)[i];
	__threadfence();
	*(volatile uint32_t *)&r->tag = TT_TRACE_TAG(TT_TRACE_TMA, 0, bytes);
	return 0;
}
