/*
 * Runs a grid: which CTAs are resident, and which of them runs next.
 *
 * Without a seed one CTA runs after another, and its warps in turn. A long-running CTA is joined by the
 * next, because it may wait for it. With a seed, CTAs begin in random order, a few at once, and warps
 * switch after random numbers of instructions. Cooperative grids are fully resident. The CTAs of a cluster are
 * resident together.
 *
 * Invariant: without a seed and without clocks, a launch always does the same. A launch leaves the host's
 * floating-point state unchanged.
 */
#include "sim/ptx/internal.h"

#include <fenv.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUDGET ((uint64_t)8 << 30)
#define SLICE 65536       /* instructions of a warp before the next one runs */
#define LONG (1u << 22)   /* instructions after which a CTA that runs alone is joined by another */
#define LONGER (1u << 17) /* instructions after which further CTAs join */
#define CROWD 64          /* most resident CTAs, unless the grid is cooperative */
#define SEEDED_CROWD 4
#define SEEDED_SLICE 32
#define MOST_THREADS 1024
#define MOST_COOPERATIVE 65536

void ptx_fault(struct ptx_warp *w, const struct ptx_op *op, uint32_t mask, ptx_status status, const char *format, ...)
{
	struct ptx_run *run = w->cta->run;
	const unsigned *block = run->config->block;
	char reason[512], place[96] = "";
	va_list args;

	if (run->status != PTX_OK)
		return;
	run->status = status;
	va_start(args, format);
	vsnprintf(reason, sizeof(reason), format, args);
	va_end(args);
	if (mask) {
		unsigned t = w->index * PTX_WARP + (unsigned)__builtin_ctz(mask);
		snprintf(place, sizeof(place), "thread (%u,%u,%u) of block (%u,%u,%u): ", t % block[0],
			 t / block[0] % block[1], t / block[0] / block[1], w->cta->id[0], w->cta->id[1], w->cta->id[2]);
	}
	snprintf(run->error, run->error_size, "kernel %s, line %u: %s%s", run->kernel->name, op->line, place, reason);
	for (char *c = run->error; run->error_size && *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
}

/* --- chance --- */

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

static uint64_t random_number(struct ptx_run *run)
{
	run->random += 0x9e3779b97f4a7c15ull;
	return mix(run->random);
}

/* The i-th cluster in the order of the seed: a Feistel network, repeated until it hits a cluster. */
static uint64_t cluster_in_order(const struct ptx_run *run, uint64_t i)
{
	uint64_t seed = run->config->schedule_seed, count = run->blocks / run->cluster;
	unsigned half = 1;

	if (!seed)
		return i;
	while (half < 32 && (count - 1) >> 2 * half)
		half++;
	uint64_t ones = (1ull << half) - 1;
	do {
		uint64_t left = i >> half, right = i & ones;
		for (unsigned round = 0; round < 4; round++) {
			uint64_t next = left ^ (mix(seed + round * 0x9e3779b97f4a7c15ull + right) & ones);
			left = right;
			right = next;
		}
		i = left << half | right;
	} while (i >= count);
	return i;
}

/* --- CTAs --- */

static void set_special(struct ptx_warp *w, enum ptx_special which, uint32_t value)
{
	lane_u32 *row = (lane_u32 *)(w->special + which * PTX_WARP * 4u);

	for (int i = 0; i < PTX_WARP; i++)
		row[i] = value;
}

static unsigned in_cluster(const struct ptx_run *run, unsigned d)
{
	return run->config->cluster[d] ? run->config->cluster[d] : 1;
}

static void set_specials(struct ptx_warp *w)
{
	const struct ptx_cta *cta = w->cta;
	const struct ptx_run *run = cta->run;
	const ptx_launch_config *c = run->config;
	lane_u32 *row = (lane_u32 *)w->special;

	for (unsigned i = 0; i < PTX_WARP; i++) {
		unsigned t = w->index * PTX_WARP + i;
		row[PTX_S_TID_X * PTX_WARP + i] = t % c->block[0];
		row[PTX_S_TID_Y * PTX_WARP + i] = t / c->block[0] % c->block[1];
		row[PTX_S_TID_Z * PTX_WARP + i] = t / c->block[0] / c->block[1];
		row[PTX_S_LANEID * PTX_WARP + i] = i;
		row[PTX_S_LANEMASK_EQ * PTX_WARP + i] = 1u << i;
		row[PTX_S_LANEMASK_LT * PTX_WARP + i] = (1u << i) - 1;
		row[PTX_S_LANEMASK_LE * PTX_WARP + i] = (2u << i) - 1;
		row[PTX_S_LANEMASK_GT * PTX_WARP + i] = ~((2u << i) - 1);
		row[PTX_S_LANEMASK_GE * PTX_WARP + i] = ~((1u << i) - 1);
	}
	for (unsigned d = 0; d < 3; d++) {
		set_special(w, PTX_S_NTID_X + d, c->block[d]);
		set_special(w, PTX_S_NCTAID_X + d, c->grid[d]);
	}
	for (unsigned d = 0; d < 3; d++) {
		set_special(w, PTX_S_NCLUSTERID_X + d, c->grid[d] / in_cluster(run, d));
		set_special(w, PTX_S_CLUSTER_NCTAID_X + d, in_cluster(run, d));
	}
	set_special(w, PTX_S_CLUSTER_NCTARANK, run->cluster);
	set_special(w, PTX_S_WARPID, w->index);
	set_special(w, PTX_S_NWARPID, run->warps);
	set_special(w, PTX_S_SMID, (uint32_t)cta->slot);
	set_special(w, PTX_S_NSMID, (uint32_t)run->slot_limit);
	set_special(w, PTX_S_GRIDID, 1);
	set_special(w, PTX_S_DYNAMIC_SHARED_SIZE, c->dynamic_shared);
	set_special(w, PTX_S_TOTAL_SHARED_SIZE, (uint32_t)run->shared_bytes);
	set_special(w, PTX_S_DYNAMIC_SHARED_BASE, (uint32_t)run->static_shared);
	set_special(w, PTX_S_WORKSPACE_HIGH, c->cooperative ? (uint32_t)(PTX_WORKSPACE >> 32) : 0);
	set_special(w, PTX_S_WORKSPACE_LOW, c->cooperative ? (uint32_t)PTX_WORKSPACE : 0);
}

static void release_cta(struct ptx_cta *cta)
{
	for (unsigned i = 0; cta && i < cta->warp_count; i++) {
		ptx_warp_release(&cta->warps[i]);
		free(cta->warps[i].special);
	}
	if (cta) {
		free(cta->warps);
		free(cta->shared);
	}
	free(cta);
}

static struct ptx_cta *new_cta(struct ptx_run *run)
{
	struct ptx_cta *cta = calloc(1, sizeof(*cta));
	size_t shared = ptx_align_up(run->shared_bytes + 1, 128);

	if (!cta)
		return NULL;
	cta->run = run;
	cta->slot = run->slot_count;
	cta->shared = aligned_alloc(128, shared);
	cta->warps = calloc(run->warps, sizeof(*cta->warps));
	cta->warp_count = cta->warps ? run->warps : 0;
	bool made = cta->shared && cta->warps;
	for (unsigned i = 0; i < cta->warp_count; i++) {
		struct ptx_warp *w = &cta->warps[i];
		w->cta = cta;
		w->index = i;
		w->special = aligned_alloc(64, PTX_S_COUNT * PTX_WARP * 4);
		if (w->special)
			set_specials(w);
		made &= w->special != NULL;
	}
	if (made)
		return cta;
	release_cta(cta);
	return NULL;
}

/* Blocks of a cluster begin one after another, in the order of their ranks. */
static void name_block(struct ptx_run *run, struct ptx_cta *cta)
{
	const unsigned *grid = run->config->grid;
	uint64_t rank = run->started % run->cluster, rest = cluster_in_order(run, run->started / run->cluster), place = rank;
	uint32_t cluster[3], own[3];

	run->started++;
	for (unsigned d = 0; d < 3; d++) {
		unsigned count = grid[d] / in_cluster(run, d);
		cluster[d] = (uint32_t)(d < 2 ? rest % count : rest);
		rest /= count;
		own[d] = (uint32_t)(place % in_cluster(run, d));
		place /= in_cluster(run, d);
		cta->id[d] = cluster[d] * in_cluster(run, d) + own[d];
	}
	cta->block = ((uint64_t)cta->id[2] * grid[1] + cta->id[1]) * grid[0] + cta->id[0];
	for (unsigned i = 0; i < run->warps; i++) {
		struct ptx_warp *w = &cta->warps[i];
		for (unsigned d = 0; d < 3; d++) {
			set_special(w, PTX_S_CTAID_X + d, cta->id[d]);
			set_special(w, PTX_S_CLUSTERID_X + d, cluster[d]);
			set_special(w, PTX_S_CLUSTER_CTAID_X + d, own[d]);
		}
		set_special(w, PTX_S_CLUSTER_CTARANK, (uint32_t)rank);
	}
}

/* The next block of the grid begins in cta. */
static bool begin_block(struct ptx_run *run, struct ptx_cta *cta)
{
	name_block(run, cta);
	cta->clock = 0;
	if (run->trace)
		ptx_trace_block(cta);
	cta->live = run->threads;
	cta->resident = true;
	memset(cta->barriers, 0, sizeof(cta->barriers));
	memset(cta->shared, 0, run->shared_bytes);
	for (unsigned i = 0; i < run->warps; i++) {
		unsigned rest = run->threads - i * PTX_WARP;
		cta->warps[i].arrived = 0;
		if (!ptx_warp_begin(&cta->warps[i], rest < PTX_WARP ? (1u << rest) - 1 : PTX_EVERYONE))
			return false;
	}
	return true;
}

ptx_status ptx_refuse(struct ptx_run *run, ptx_status status, const char *format, ...)
{
	int n = snprintf(run->error, run->error_size, "kernel %s: ", run->kernel->name);
	va_list args;

	va_start(args, format);
	if (n >= 0 && (size_t)n < run->error_size)
		vsnprintf(run->error + n, run->error_size - (size_t)n, format, args);
	va_end(args);
	return run->status = status;
}

/* The blocks of one more cluster become resident. */
static bool widen(struct ptx_run *run)
{
	for (unsigned rank = 0; rank < run->cluster; rank++) {
		struct ptx_cta *cta = new_cta(run);
		if (!cta || !begin_block(run, cta)) {
			release_cta(cta);
			ptx_refuse(run, PTX_UNSUPPORTED, "out of memory for %zu resident blocks", run->slot_count + 1);
			return false;
		}
		run->slots[run->slot_count++] = cta;
	}
	return true;
}

static bool may_widen(const struct ptx_run *run)
{
	return run->started < run->end && run->slot_count < run->slot_limit;
}

/* --- turns --- */

/* A finished cluster makes room for the next one. */
static void finish_block(struct ptx_run *run, struct ptx_cta *cta)
{
	struct ptx_cta *other;

	if (cta->live || !cta->resident)
		return;
	cta->resident = false;
	for (unsigned rank = 0; (other = ptx_block_of_cluster(cta, rank)); rank++)
		if (other->resident)
			return;
	for (unsigned rank = 0; run->started < run->end && (other = ptx_block_of_cluster(cta, rank)); rank++)
		if (!begin_block(run, other))
			ptx_refuse(run, PTX_UNSUPPORTED, "out of memory");
}

/* Whether each cluster has a block that runs for long, or none any more. */
static bool all_long(const struct ptx_run *run)
{
	uint64_t least = run->slot_count == run->cluster ? LONG : LONGER;

	for (size_t first = 0; first < run->slot_count; first += run->cluster) {
		bool resident = false, is_long = false;
		for (unsigned rank = 0; rank < run->cluster; rank++) {
			resident |= run->slots[first + rank]->resident;
			is_long |= run->slots[first + rank]->clock >= least;
		}
		if (resident && !is_long)
			return false;
	}
	return true;
}

static bool run_in_order(struct ptx_run *run)
{
	bool ran = false;

	for (size_t s = 0; s < run->slot_count && run->status == PTX_OK; s++) {
		struct ptx_cta *cta = run->slots[s];
		for (unsigned i = 0; cta->resident && i < run->warps && run->status == PTX_OK; i++)
			if (cta->warps[i].runnable && cta->warps[i].until <= run->now) {
				ptx_warp_run(&cta->warps[i], SLICE);
				ran = true;
			}
		finish_block(run, cta);
	}
	/* Endless blocks may be waiting for a block that has not begun. */
	if (may_widen(run) && all_long(run) && run->status == PTX_OK)
		widen(run);
	return ran;
}

static bool run_by_chance(struct ptx_run *run)
{
	size_t warps = run->slot_count * run->warps, first = random_number(run) % warps;

	for (size_t n = 0; n < warps; n++) {
		size_t i = (first + n) % warps;
		struct ptx_cta *cta = run->slots[i / run->warps];
		struct ptx_warp *w = &cta->warps[i % run->warps];
		if (!cta->resident || !w->runnable || w->until > run->now)
			continue;
		ptx_warp_run(w, 1 + random_number(run) % SEEDED_SLICE);
		finish_block(run, cta);
		return true;
	}
	return false;
}

static void report_deadlock(struct ptx_run *run)
{
	for (size_t s = 0; s < run->slot_count; s++)
		for (unsigned i = 0; i < run->slots[s]->warp_count; i++) {
			struct ptx_warp *w = &run->slots[s]->warps[i];
			for (unsigned j = 0; run->slots[s]->resident && j < w->group_count; j++) {
				const struct ptx_group *g = &w->groups[j];
				if (!g->mask)
					continue;
				ptx_fault(w, &run->code[g->pc], g->mask, PTX_TIMEOUT,
					  g->state == PTX_AT_BARRIER
						  ? "deadlock: it waits at a barrier for threads that do not come"
						  : "deadlock: it waits for threads of its warp that do not come");
				return;
			}
		}
	ptx_refuse(run, PTX_TIMEOUT, "deadlock");
}

static bool anything_resident(const struct ptx_run *run)
{
	for (size_t s = 0; s < run->slot_count; s++)
		if (run->slots[s]->resident)
			return true;
	return false;
}

static void run_grid(struct ptx_run *run)
{
	bool cooperative = run->config->cooperative;
	size_t wanted = cooperative ? run->slot_limit : run->config->schedule_seed ? SEEDED_CROWD : 1;

	while (run->slot_count < wanted && run->started < run->end)
		if (!widen(run))
			return;
	while (run->status == PTX_OK && anything_resident(run)) {
		bool ran = run->config->schedule_seed ? run_by_chance(run) : run_in_order(run);
		if (ran || run->status != PTX_OK || !anything_resident(run))
			continue;
		if (run->kernel->module->any_delays && (may_widen(run) ? widen(run) : ptx_pass_time(run)))
			continue;
		while (run->config->deadlocks)
			run->config->pause(true);
		report_deadlock(run);
	}
}

static ptx_status check(struct ptx_run *run)
{
	const ptx_launch_config *c = run->config;
	uint64_t threads = (uint64_t)c->block[0] * c->block[1], blocks = (uint64_t)c->grid[0] * c->grid[1];

	if (run->kernel->unsupported) {
		const struct ptx_op *op = &run->code[run->kernel->unsupported - 1];
		snprintf(run->error, run->error_size, "kernel %s, line %u: unsupported: %s", run->kernel->name,
			 op->line, op->text);
		return run->status = PTX_UNSUPPORTED;
	}
	for (int i = 0; i < 3; i++)
		if (!c->grid[i] || !c->block[i] || c->block[i] > MOST_THREADS)
			return ptx_refuse(run, PTX_UNSUPPORTED, "grid (%u,%u,%u) of blocks (%u,%u,%u)", c->grid[0],
				      c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2]);
	if (threads * c->block[2] > MOST_THREADS)
		return ptx_refuse(run, PTX_UNSUPPORTED, "blocks of %llu threads",
			      (unsigned long long)threads * c->block[2]);
	if (blocks > UINT64_MAX / 2 / c->grid[2])
		return ptx_refuse(run, PTX_UNSUPPORTED, "a grid of more than 2^63 blocks");
	for (unsigned d = 0; d < 3; d++)
		if (c->grid[d] % in_cluster(run, d))
			return ptx_refuse(run, PTX_UNSUPPORTED, "a grid that is no number of clusters");
	if (run->parameter_bytes && !c->params)
		return ptx_refuse(run, PTX_UNSUPPORTED, "launched without its %zu bytes of parameters",
			      run->parameter_bytes);
	run->threads = (unsigned)(threads * c->block[2]);
	run->warps = (run->threads + PTX_WARP - 1) / PTX_WARP;
	run->blocks = blocks * c->grid[2];
	run->cluster = in_cluster(run, 0) * in_cluster(run, 1) * in_cluster(run, 2);
	if (run->blocks % run->cluster || run->cluster > CROWD)
		return ptx_refuse(run, PTX_UNSUPPORTED, "clusters of %u blocks", run->cluster);
	run->started = c->first;
	run->end = c->count && c->count < run->blocks - c->first ? c->first + c->count : run->blocks;
	run->slot_limit = run->blocks < CROWD ? (size_t)run->blocks : CROWD / run->cluster * run->cluster;
	if (c->cooperative && run->blocks > MOST_COOPERATIVE)
		return ptx_refuse(run, PTX_UNSUPPORTED, "cooperative grid of %llu blocks",
			      (unsigned long long)run->blocks);
	if (c->cooperative)
		run->slot_limit = (size_t)run->blocks;
	run->static_shared = ptx_align_up(run->kernel->info.shared_bytes, run->kernel->module->dynamic_align);
	run->shared_bytes = run->kernel->info.shared_bytes;
	if (c->dynamic_shared)
		run->shared_bytes = run->static_shared + c->dynamic_shared;
	run->slots = calloc(run->slot_limit, sizeof(struct ptx_cta *));
	if (!run->slots)
		return ptx_refuse(run, PTX_UNSUPPORTED, "out of memory");
	return c->trace ? ptx_trace_begin(run) : PTX_OK;
}

ptx_status ptx_launch(const ptx_function *f, const ptx_launch_config *config, char *error, size_t error_size)
{
	struct ptx_run *run = aligned_alloc(64, sizeof(*run));
	fenv_t environment;

	if (run)
		memset(run, 0, sizeof(*run));
	if (!run) {
		snprintf(error, error_size, "kernel %s: out of memory", f->name);
		return PTX_UNSUPPORTED;
	}
	run->kernel = f;
	run->config = config;
	run->code = f->module->code;
	run->error = error;
	run->error_size = error_size;
	run->random = config->schedule_seed;
	run->budget = config->budget ? config->budget : BUDGET;
	run->parameter_bytes = f->info.param_bytes;
	if (check(run) == PTX_OK) {
		fegetenv(&environment);
		fesetenv(FE_DFL_ENV);
		run_grid(run);
		fesetenv(&environment);
	}
	for (size_t s = 0; s < run->slot_count; s++)
		release_cta(run->slots[s]);
	free(run->slots);
	free(run->trace);
	ptx_status status = run->status;
	free(run);
	return status;
}
