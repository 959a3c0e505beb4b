/*
 * The capture kernels and the time stamps as nodes of graphs. The first node fetches their work, which the host has
 * written for the launch. kernels.h says how.
 */
#include "capture/capture.cuh"

#define SINGLE_KERNEL extern "C" __global__ void __launch_bounds__(1, 1)

/* The parameters of a point; false: it has no work. One thread of each CTA reads them. */
INLINE bool take_point(const struct tt_replay_launch *launch, uint32_t which, struct tt_capture_params *p)
{
	__shared__ struct tt_capture_params params;
	__shared__ bool any;

	if (threadIdx.x == 0) {
		const struct tt_replay_point *point = (const struct tt_replay_point *)(launch + 1) + which;
		any = launch->flags & TT_REPLAY_POINTS && !point->params.taken;
		if (any)
			params = point->params;
	}
	__syncthreads();
	*p = params;
	return any;
}

INLINE uint64_t now(void)
{
	uint64_t ns;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
	return ns;
}

/* By all threads: each of the first ones reads a word, so that all reads cross the bus at once. */
INLINE void fetch(void *to, const void *from, unsigned bytes)
{
	if (threadIdx.x < bytes / sizeof(uint64_t))
		((uint64_t *)to)[threadIdx.x] = ((const volatile uint64_t *)from)[threadIdx.x];
	__syncthreads();
}

/* By n threads, this one being the i-th; bytes: a multiple of 16. Nothing writes to the source meanwhile. */
INLINE void copy_words(uint64_t to, uint64_t from, unsigned bytes, unsigned i, unsigned n)
{
#pragma unroll 4
	for (unsigned k = 16 * i; k < bytes; k += 16 * n)
		store16(to + k, load16(from + k));
}

/* Does all reads over the bus; each takes a microsecond. */
extern "C" __global__ void __launch_bounds__(TT_FRONT_THREADS, 1)
	tt_capture_front_at(const struct tt_replay *r, struct tt_replay_launch *launch)
{
	__shared__ struct tt_replay replay;
	__shared__ struct tt_replay_turn turn;

	fetch(&replay, r, sizeof replay);
	uint64_t place = replay.turn & replay.turn_mask;
	fetch(&turn, (const struct tt_replay_turn *)replay.turns + place, sizeof turn);
	bool prepared = turn.number == replay.turn + 1;
	uint32_t flags = prepared ? turn.flags : 0;
	if (threadIdx.x == 0) {
		uint64_t stamps = replay.stamps + place * replay.stamp_count * sizeof(uint64_t);

		*launch = {prepared ? turn.number : 0, (uint64_t)r, flags & TT_REPLAY_STAMPS ? stamps : 0, flags, 0};
	}
	if (!(flags & TT_REPLAY_POINTS))
		return;
	struct tt_replay_point *points = (struct tt_replay_point *)(launch + 1);
	unsigned size = replay.point_count * sizeof *points;
	copy_words((uint64_t)points, replay.points + (replay.turn & replay.point_mask) * size, size, threadIdx.x,
		   TT_FRONT_THREADS);
	__syncthreads();
	for (unsigned i = threadIdx.x / WARP; i < replay.point_count; i += TT_FRONT_THREADS / WARP) {
		const struct tt_replay_point *p = points + i;

		copy_words(p->params.regions, p->table, p->params.region_count * sizeof(struct tt_capture_region),
			   threadIdx.x % WARP, WARP);
	}
}

DIGEST_KERNEL tt_capture_digest_at(const struct tt_replay_launch *launch, uint32_t which)
{
	struct tt_capture_params p;

	if (take_point(launch, which, &p))
		digest(p);
}

DIGEST_KERNEL tt_capture_gather_at(const struct tt_replay_launch *launch, uint32_t which)
{
	struct tt_capture_params p;

	if (take_point(launch, which, &p))
		gather(p);
}

/* For a point that may come more than once in a launch. */
SINGLE_KERNEL tt_capture_taken_at(struct tt_replay_launch *launch, uint32_t which)
{
	if (launch->flags & TT_REPLAY_POINTS)
		((struct tt_replay_point *)(launch + 1))[which].params.taken = 1;
}

SINGLE_KERNEL tt_capture_stamp_at(const struct tt_replay_launch *launch, uint32_t which)
{
	uint64_t time = now(), stamps = launch->stamps;

	if (stamps)
		at<uint64_t>(stamps)[which] = time;
}

/* Ends the launch: the nodes of the next launch read the next turn. */
SINGLE_KERNEL tt_capture_turn_at(const struct tt_replay_launch *launch, uint32_t)
{
	uint64_t number = launch->number;

	if (!number)
		return;
	__threadfence_system();
	*(volatile uint64_t *)at<uint64_t>(launch->through) = number;
}

/* A place in a graph for an epoch; label: of tt_epoch. */
SINGLE_KERNEL tt_capture_mark(uint32_t)
{
}

SINGLE_KERNEL tt_capture_stamp(uint64_t *to)
{
	*(volatile uint64_t *)to = now();
}
