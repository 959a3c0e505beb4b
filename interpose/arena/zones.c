/*
 * Zones: patterns before and after each block, and over freed blocks. The rest of the recorder sees them as
 * regions, so epochs capture them.
 *
 * Invariant: a zone's region begins after the pattern is in memory, and ends before another allocation can get its
 * block, unless that has the same place and size: then the zones go on.
 */
#include "arena/parts.h"
#include "track/regions.h"
#include "track/thread.h"

static struct tt_fill_range zone_range(uint64_t base, uint64_t size)
{
	return (struct tt_fill_range){.base = base, .size = size, .seed = TT_ZONE_SEED};
}

unsigned zones_ranges(const struct block *b, struct tt_fill_range ranges[3])
{
	uint64_t end = b->base + b->size;

	unsigned count = 0;

	if (options.zones && !b->has_zones) {
		ranges[count++] = zone_range(block_start(b), b->before);
		ranges[count++] = zone_range(end, block_end(b) - end);
	}
	if (options.fill.kind != FILL_KEEP)
		ranges[count++] = fill_range(b->base, (options.zones ? end : block_end(b)) - b->base);
	return count;
}

bool arena_zones(CUdeviceptr base, uint32_t region, uint64_t *start, uint64_t *end)
{
	pthread_mutex_lock(&arena.lock);
	struct block *b = free_list_find(&arena_range_of(base)->free_list, base);
	bool found = b && b->base == base && !b->has_zones;
	if (b && b->base == base && options.regions == REGIONS_ZONES) {
		b->has_region = true;
		b->region = region;
	}
	if (found) {
		*start = block_start(b);
		*end = block_end(b);
		b->has_zones = true;
	}
	pthread_mutex_unlock(&arena.lock);
	return found;
}

bool arena_region_goes_on(const struct block *b)
{
	return b->has_region;
}

/* ---- freed memory ---- */

bool zones_concern(void)
{
	return options.zones && atomic_load(&session_state) == SESSION_ON;
}

static bool is_worth_holding(const struct context *c, const struct block *b)
{
	return b->context == c && b->room <= HELD_BYTES / 4;
}

/*
 * Ends the zone over a block, or those around it too. Within the gate, no epoch is cut. Earlier epochs may read the
 * zones until the next wait for the block.
 */
static void end_zones(struct block *b, bool around)
{
	struct region_origin origin = {.seq = session_last_seq(), .call = TT_NO_ID, .label = TT_NO_ID};
	struct thread *t = thread_current();
	bool inside = atomic_load(&t->inside);

	if (!inside)
		gate_enter(t);
	region_died(b->base, &origin);
	b->has_region = false;
	if (around) {
		region_died(block_start(b), &origin);
		region_died(b->base + b->size, &origin);
	}
	if (!inside)
		gate_leave(t);
	b->has_zones &= !around;
}

static struct block *take_kept(struct free_list *p, bool all, bool *was_spare)
{
	pthread_mutex_lock(&arena.lock);
	struct block *b = free_list_take_kept(p, all, was_spare);
	pthread_mutex_unlock(&arena.lock);
	return b;
}

static void let_go(struct block *b, bool all)
{
	end_zones(b, all);
	pthread_mutex_lock(&arena.lock);
	free_list_set_state(&arena_range_of(b->base)->free_list, b, BLOCK_ENDED);
	pthread_mutex_unlock(&arena.lock);
}

/* Blocks that no capture reads any longer are spare if they have zones, else free. True: some are spare. */
static bool release_ended(struct free_list *p)
{
	const struct context *asked = NULL;
	bool ended = false, spare = false;

	pthread_mutex_lock(&arena.lock);
	for (struct block *b = TAILQ_FIRST(&p->ended), *next; b; b = next) {
		next = TAILQ_NEXT(b, freed);
		if (b->context != asked)
			ended = session_listeners.captures_ended(b->context);
		asked = b->context;
		spare |= ended && b->has_zones;
		if (ended && b->has_zones)
			free_list_set_state(p, b, BLOCK_SPARE);
		else if (ended)
			free_list_give(p, b);
	}
	pthread_mutex_unlock(&arena.lock);
	return spare;
}

bool zones_let_go(bool all)
{
	bool left = false, was_spare;
	struct block *b;

	for (int i = 0; i < ARENA_DEVICES; i++) {
		struct free_list *p = &arena.ranges[i].free_list;
		if (!atomic_load(&arena_state.reserved[i]))
			continue;
		do
			while ((b = take_kept(p, all, &was_spare)))
				let_go(b, all || was_spare);
		while (release_ended(p) && all);
		left |= !TAILQ_EMPTY(&p->ended);
	}
	return left;
}

/* The pattern is in memory: later epochs capture it. */
static void hold(struct block *b)
{
	struct region_origin origin = {.seq = session_last_seq(), .call = TT_NO_ID, .label = TT_NO_ID};

	if (b->has_region)
		region_died(b->base, &origin);
	b->has_region = false;
	region_born(b->context, TT_REGION_ZONE, b->base, b->size, TT_NO_ID, &origin);
	pthread_mutex_lock(&arena.lock);
	free_list_set_state(&arena_range_of(b->base)->free_list, b, BLOCK_HELD);
	pthread_mutex_unlock(&arena.lock);
}

static void keep_spare(struct block *b)
{
	pthread_mutex_lock(&arena.lock);
	free_list_set_state(&arena_range_of(b->base)->free_list, b, BLOCK_SPARE);
	pthread_mutex_unlock(&arena.lock);
}

/*
 * How many more blocks may be held back now. Each takes the time of a launch or so: a program with a free for each
 * launch would notice. The number of calls decides, not the time, so that other runs of the program have the same
 * addresses.
 */
static uint64_t may_hold(void)
{
	uint64_t allowed = HELD_ALWAYS + session_last_seq() / HELD_CALLS, held = atomic_load(&arena.held);

	return held < allowed ? allowed - held : 0;
}

/* Of freed blocks, the last ones that are within the limits: the others would be let go at once. False: none. */
static bool choose_held(const struct context *c, struct blocks *freed)
{
	uint64_t bytes = 0, count = 0, units = 0, most = may_hold();
	bool first = atomic_load(&arena.held) < HELD_ALWAYS;
	struct block *b;

	TAILQ_FOREACH_REVERSE(b, freed, blocks, freed)
	{
		uint64_t more = 1 + b->room / HELD_UNIT;
		b->hold = is_worth_holding(c, b) && bytes + b->room <= HELD_BYTES && count < HELD_COUNT && units + more <= most;
		bytes += b->hold ? b->room : 0;
		count += b->hold;
		units += b->hold ? more : 0;
	}
	atomic_fetch_add(&arena.held, first || !units || units > HELD_BATCH ? units : HELD_BATCH);
	return count;
}

/* Fills chosen ones in the arena's stream of the current context, and waits. */
static bool fill_freed(struct arena_resources *h, const struct blocks *freed)
{
	struct tt_fill_range ranges[TT_FILL_RANGES];
	unsigned count = 0;
	struct block *b;
	CUresult r = CUDA_SUCCESS;

	TAILQ_FOREACH(b, freed, freed)
	{
		if (b->hold)
			ranges[count++] = zone_range(b->base, b->size);
		if (r == CUDA_SUCCESS && count && (count == TT_FILL_RANGES || !TAILQ_NEXT(b, freed))) {
			r = arena_submit(h, h->stream, ranges, count);
			count = 0;
		}
	}
	return r == CUDA_SUCCESS && arena_await(h) == CUDA_SUCCESS;
}

void zones_take(struct context *c, struct blocks *freed)
{
	struct arena_resources *h = NULL;
	struct block *b;

	if (TAILQ_EMPTY(freed))
		return;
	bool entered = choose_held(c, freed) && context_push(c->handle);
	bool ok = entered && (h = arena_resources_of(c)) && h->fill && fill_freed(h, freed);
	if (entered)
		context_pop();
	while ((b = TAILQ_FIRST(freed))) {
		TAILQ_REMOVE(freed, b, freed);
		if (ok && b->hold)
			hold(b);
		else if (b->has_zones)
			keep_spare(b);
		else
			let_go(b, true);
	}
	zones_let_go(false);
}
