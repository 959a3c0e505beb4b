/*
 * Reads heartbeats, and puts warps that do the same into groups. See heartbeats.h for the invariant.
 */
#include "instrument/heartbeats.h"

#include <stdlib.h>
#include <string.h>

#include "options/options.h"
#include "util/clock.h"
#include "util/json_writer.h"

#define HEARTBEAT_KIND 6               /* its word in TT_INSTRUMENT, from 0 */
#define MOST_BYTES ((uint64_t)256 << 20)
#define COUNTS 16u                     /* of barriers, before they begin again */
#define GROUPS 64                      /* of a launch; more are counted with one that is alike */
#define LISTED 8                       /* warps of a group that are named */

enum doing { NOT_STARTED, EXITED, AT_BARRIER, AT_SYNC, LOOPS, RUNS, SILENT };

struct group {
	enum doing doing;
	uint32_t instruction, first, last, access;
	uint64_t object, count, warps[LISTED];
	bool objects; /* the warps have different ones */
};

bool heartbeats_late_blocks;

bool heartbeats_wanted(void)
{
	return options.instrument >> HEARTBEAT_KIND & 1 ||
	       (options.instrument && (options.timeout_ms || options.no_progress_ms || options.kernel_timeout.count));
}

uint64_t heartbeats_make(struct heartbeats *h, const uint32_t grid[3], const uint32_t block[3])
{
	uint64_t threads = (uint64_t)block[0] * block[1] * block[2], blocks = (uint64_t)grid[0] * grid[1];
	const uint64_t most = MOST_BYTES / sizeof(struct tt_heartbeat);

	*h = (struct heartbeats){.threads = (uint32_t)threads, .warps_per_block = (uint32_t)((threads + 31) / 32)};
	if (!heartbeats_wanted() || !threads || threads > 1024 || !blocks || blocks > most || grid[2] > most / blocks)
		return 0;
	h->warps = blocks * grid[2] * h->warps_per_block;
	h->before = h->warps > most ? NULL : calloc(2 * (size_t)h->warps, sizeof(*h->before));
	h->now = h->before ? h->before + h->warps : NULL;
	if (!h->before)
		h->warps = 0;
	return h->warps * sizeof(struct tt_heartbeat);
}

void heartbeats_free(struct heartbeats *h)
{
	free(h->before < h->now ? h->before : h->now);
	*h = (struct heartbeats){0};
}

/*
 * Whether the barrier of a warp still waits. A heartbeat remains at a barrier that was passed, until the next one. Then all
 * others have come as well, or have gone on to a later one.
 */
static bool waits(const struct heartbeats *h, uint64_t warp)
{
	const struct tt_heartbeat *block = h->now + warp - warp % h->warps_per_block;
	uint64_t object = h->now[warp].object, threads = object >> 32;
	uint32_t here = 0, live = 0;

	for (uint32_t i = 0; i < h->warps_per_block; i++) {
		here += TT_WARP_STATE(block[i].state) == TT_WARP_AT_BARRIER && block[i].object == object &&
			(block[i].barriers - h->now[warp].barriers) % COUNTS < COUNTS / 2;
		live += TT_WARP_STATE(block[i].state) != TT_WARP_EXITED;
	}
	return (uint32_t)object == TT_CLUSTER_BARRIER || (threads ? here * 32 < threads : here < live);
}

static enum doing doing(const struct heartbeats *h, uint64_t warp)
{
	const struct tt_heartbeat *before = &h->before[warp], *now = &h->now[warp];

	switch (TT_WARP_STATE(now->state)) {
	case TT_WARP_NOT_STARTED:
		return NOT_STARTED;
	case TT_WARP_EXITED:
		return EXITED;
	case TT_WARP_AT_BARRIER:
		return waits(h, warp) ? AT_BARRIER : SILENT;
	case TT_WARP_AT_SYNC:
		return AT_SYNC;
	default:
		if (now->count == before->count)
			return SILENT;
		return now->changed == before->changed && now->repeated != before->repeated ? LOOPS : RUNS;
	}
}

static void note_barrier(struct tt_heartbeat *now)
{
	uint64_t number = now->state >> TT_WARP_NUMBER_SHIFT & 0xff, threads = now->state >> TT_WARP_THREADS_SHIFT & 0xfff;

	now->barriers = now->state >> TT_WARP_COUNT_SHIFT;
	now->state += TT_WARP_AT_BARRIER - TT_WARP_AT_NUMBERED;
	now->object = number | threads << 32;
}

/* Warps at a barrier that their state names, and those whose lanes have all exited. */
static void note_states(struct heartbeats *h)
{
	for (uint64_t i = 0; i < h->warps; i++) {
		if (TT_WARP_STATE(h->now[i].state) == TT_WARP_AT_NUMBERED)
			note_barrier(&h->now[i]);
		uint32_t left = h->threads - (uint32_t)(i % h->warps_per_block) * 32;
		uint32_t lanes = left < 32 ? (1u << left) - 1 : UINT32_MAX;
		if ((h->now[i].exited & lanes) == lanes)
			h->now[i].state = TT_WARP_EXITED;
	}
}

void heartbeats_read(struct heartbeats *h, struct ring *r)
{
	struct tt_heartbeat *older = h->before;

	if (!h->warps || !ring_copy(r, older, h->memory.device, h->warps * sizeof(*older)))
		return;
	h->before = h->now;
	h->now = older;
	note_states(h);
	h->readings++;
	h->read_ns = clock_ns();
	h->begun = false;
	for (uint64_t i = 0; i < h->warps && !h->begun; i++)
		h->begun = TT_WARP_STATE(h->now[i].state) != TT_WARP_NOT_STARTED;
	bool moved = h->readings < 2;
	for (uint64_t i = 0; i < h->warps && !moved; i++) {
		const struct tt_heartbeat *was = &h->before[i], *is = &h->now[i];
		enum doing does = doing(h, i);
		moved = does == RUNS || does == SILENT || (does == NOT_STARTED && heartbeats_late_blocks) ||
			was->state != is->state || (does != LOOPS && was->count != is->count);
	}
	if (moved)
		h->still_ns = h->read_ns;
}

bool heartbeats_silent(const struct heartbeats *h)
{
	for (uint64_t i = 0; h->readings >= 2 && i < h->warps; i++)
		if (doing(h, i) == SILENT)
			return true;
	return false;
}

/* ---- groups ---- */

static struct group of_warp(const struct heartbeats *h, uint64_t warp)
{
	const struct tt_heartbeat *now = &h->now[warp];
	struct group g = {.doing = doing(h, warp)};

	switch (g.doing) {
	case NOT_STARTED:
	case EXITED:
		break;
	case AT_BARRIER:
	case AT_SYNC:
		g.instruction = g.access = now->instruction;
		g.object = now->object;
		break;
	case LOOPS:
	case RUNS:
		g.first = now->first;
		g.last = now->last;
		__attribute__((fallthrough));
	default:
		g.instruction = g.doing == SILENT ? now->instruction : 0;
		g.access = now->access;
		g.object = now->object;
	}
	return g;
}

static bool alike(const struct group *a, const struct group *b, bool full)
{
	return a->doing == b->doing && a->first == b->first && a->last == b->last &&
	       (full || (a->instruction == b->instruction && a->access == b->access && a->object == b->object));
}

static struct group *find(struct group groups[GROUPS], unsigned *count, const struct group *g)
{
	for (unsigned i = 0; i < *count; i++)
		if (alike(&groups[i], g, false))
			return &groups[i];
	if (*count < GROUPS) {
		groups[*count] = *g;
		return &groups[(*count)++];
	}
	for (unsigned i = 0; i < GROUPS; i++)
		if (alike(&groups[i], g, true)) {
			groups[i].objects |= groups[i].object != g->object;
			return &groups[i];
		}
	return &groups[GROUPS - 1];
}

static void write_group(struct json *j, const struct group *g)
{
	static const char *const names[] = {"not started", "exited", "barrier", "sync", "loops", "runs", "silent"};
	bool placed = g->doing != NOT_STARTED && g->doing != EXITED;

	json_open(j, '{');
	json_member_string(j, "state", names[g->doing]);
	json_member_u64(j, "count", g->count);
	json_member_open(j, "warps", '[');
	for (uint64_t i = 0; i < g->count && i < LISTED; i++)
		json_u64(j, g->warps[i]);
	json_close(j, ']');
	if (placed && g->instruction)
		json_member_u64(j, "instruction", g->instruction);
	if (placed && g->last) {
		json_member_u64(j, "first", g->first);
		json_member_u64(j, "last", g->last);
	}
	if (placed && g->access) {
		json_member_u64(j, "access", g->access);
		if (!g->objects && g->object != TT_NO_OBJECT)
			json_member_u64(j, "object", g->object);
	}
	json_close(j, '}');
}

void heartbeats_json(const struct heartbeats *h, struct json *j)
{
	struct group *groups = calloc(GROUPS, sizeof(*groups));
	unsigned count = 0;

	json_member_u64(j, "warps", h->warps);
	json_member_u64(j, "warps_per_block", h->warps_per_block);
	json_member_open(j, "groups", '[');
	for (uint64_t i = 0; groups && h->readings >= 2 && i < h->warps; i++) {
		struct group of = of_warp(h, i), *g = find(groups, &count, &of);
		if (g->count < LISTED)
			g->warps[g->count] = i;
		g->count++;
	}
	for (unsigned i = 0; i < count; i++)
		write_group(j, &groups[i]);
	json_close(j, ']');
	free(groups);
}
