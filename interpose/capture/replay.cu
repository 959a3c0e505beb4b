/*
 * The capture kernels as nodes of graphs, and those that note when nodes ran: what they are to do is
 * in memory that the host has written for the launch. kernels.h says how.
 */
#include "capture.cuh"

#define SINGLE_KERNEL extern "C" __global__ void __launch_bounds__(1, 1)

/* The launch's turn, if the host has prepared it. */
INLINE bool has_turn(const struct tt_replay *r, uint64_t *turn, uint32_t *flags)
{
	*turn = *(volatile uint64_t *)&r->turn;
	const struct tt_replay_turn *t = at<struct tt_replay_turn>(r->turns) + (*turn & r->turn_mask);
	*flags = *(volatile uint32_t *)&t->flags;
	return *(volatile uint64_t *)&t->number == *turn + 1;
}

/*
 * What a point is to do; false where that is nothing. One thread of each CTA reads it, as it comes
 * over the bus.
 */
INLINE bool take_point(const struct tt_replay *r, uint32_t which, struct tt_capture_params *p)
{
	__shared__ struct tt_capture_params params;
	__shared__ bool any;
	uint64_t turn;
	uint32_t flags;

	if (threadIdx.x == 0) {
		any = has_turn(r, &turn, &flags) && flags & TT_REPLAY_POINTS;
		if (any)
			params = at<struct tt_capture_params>(r->points)[(turn & r->point_mask) * r->point_count + which];
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

DIGEST_KERNEL tt_capture_digest_at(const struct tt_replay *r, uint32_t which)
{
	struct tt_capture_params p;

	if (take_point(r, which, &p))
		digest(p);
}

COPY_KERNEL tt_capture_gather_at(const struct tt_replay *r, uint32_t which)
{
	struct tt_capture_params p;

	if (take_point(r, which, &p))
		gather(p);
}

SINGLE_KERNEL tt_capture_stamp_at(const struct tt_replay *r, uint32_t which)
{
	uint64_t time = now(), turn;
	uint32_t flags;

	if (has_turn(r, &turn, &flags) && flags & TT_REPLAY_STAMPS)
		at<uint64_t>(r->stamps)[(turn & r->turn_mask) * r->stamp_count + which] = time;
}

/* The launch is over: the next one's nodes look for the next turn. */
SINGLE_KERNEL tt_capture_turn_at(struct tt_replay *r, uint32_t)
{
	uint64_t turn;
	uint32_t flags;

	if (!has_turn(r, &turn, &flags))
		return;
	__threadfence_system();
	*(volatile uint64_t *)&r->turn = turn + 1;
}

SINGLE_KERNEL tt_capture_stamp(uint64_t *to)
{
	*(volatile uint64_t *)to = now();
}
