// Cooperative groups: the whole grid, tiles of a warp, and whoever happens to be together.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

namespace cg = cooperative_groups;

extern "C" __global__ void whole_grid(int *out)
{
	cg::grid_group grid = cg::this_grid();
	out[grid.thread_rank()] = grid.thread_rank();
	grid.sync();
	int sum = 0;
	if (grid.thread_rank() == 0) {
		for (int i = 0; i < grid.size(); i++)
			sum += ((volatile int *)out)[i];
		out[0] = sum;
	}
	grid.sync();
}

extern "C" __global__ void tiles(int *out)
{
	cg::thread_block block = cg::this_thread_block();
	auto tile = cg::tiled_partition<8>(block);
	int t = block.thread_rank();
	out[t] = cg::reduce(tile, t, cg::plus<int>()) + cg::inclusive_scan(tile, (int)tile.thread_rank());
	if (t & 1) {
		auto together = cg::coalesced_threads();
		out[block.size() + t] = together.thread_rank() + together.shfl(t, 0);
	}
}
