/*
 * Placement in a range of addresses. See free_list.h for the invariant.
 */
#include "arena/free_list.h"

#include "util/vector.h"

static uint64_t round_up(uint64_t value, uint64_t unit)
{
	return (value + unit - 1) / unit * unit;
}

void free_list_begin(struct free_list *p, uint64_t base, uint64_t size, uint64_t granule, uint64_t zone)
{
	*p = (struct free_list){.base = base, .size = size, .granule = granule, .zone = round_up(zone, FREE_LIST_UNIT)};
	TAILQ_INIT(&p->slabs);
	for (unsigned i = 0; i < FREE_LIST_SIZES; i++)
		TAILQ_INIT(&p->idle[i]);
	for (unsigned i = 0; i < sizeof(p->alike) / sizeof(*p->alike); i++)
		TAILQ_INIT(&p->alike[i]);
	TAILQ_INIT(&p->freed);
	TAILQ_INIT(&p->held);
	TAILQ_INIT(&p->ended);
	TAILQ_INIT(&p->spare);
}

void free_list_guard(struct free_list *p, uint64_t align, uint64_t most)
{
	p->guard = align;
	p->guard_left = most;
	p->next = p->base;
}

/* ---- mappings ---- */

static struct mapping *mapping_new(uint64_t base, uint64_t size, bool slab)
{
	uint32_t units = (uint32_t)(slab ? size / FREE_LIST_UNIT : 1);
	struct mapping *m = calloc(1, sizeof(*m) + units * sizeof(*m->at));

	if (m)
		*m = (struct mapping){.base = base, .size = size, .slab = slab, .free_units = units};
	return m;
}

/* Index of the first mapping that ends after address. */
static size_t lower(const struct free_list *p, uint64_t address)
{
	return lower_bound(p->mapping_count, i, p->mappings[i].end <= address);
}

/* Uses the lowest gap that is large enough; with guards, addresses that were never used, if any are left. */
static struct mapping *mapping_add(struct free_list *p, uint64_t size, bool slab)
{
	uint64_t end = p->base + p->size, gap = p->guard ? p->granule : 0;
	uint64_t at = p->guard && end - p->next >= size + gap ? p->next : p->base;
	size_t i = lower(p, at);

	for (; i < p->mapping_count && p->mappings[i].mapping->base - at < size + gap; i++)
		at = p->mappings[i].end + gap;
	if (end - at < size + gap)
		return NULL;
	if (!make_room(&p->mappings, &p->mapping_capacity, p->mapping_count, 1, sizeof(*p->mappings)))
		return NULL;
	struct mapping *m = mapping_new(at, size, slab);
	if (!m)
		return NULL;
	memmove(p->mappings + i + 1, p->mappings + i, (p->mapping_count - i) * sizeof(*p->mappings));
	p->mappings[i] = (struct mapping_place){at + size, m};
	p->mapping_count++;
	if (slab)
		TAILQ_INSERT_TAIL(&p->slabs, m, peers);
	if (at + size + gap > p->next)
		p->next = at + size + gap;
	return m;
}

void free_list_drop(struct free_list *p, struct mapping *m)
{
	size_t i = lower(p, m->base);

	if (m->slab)
		TAILQ_REMOVE(&p->slabs, m, peers);
	p->mapping_count--;
	memmove(p->mappings + i, p->mappings + i + 1, (p->mapping_count - i) * sizeof(*p->mappings));
	free(m);
}

static struct mappings *idle_of(struct free_list *p, uint64_t size)
{
	return &p->idle[size / p->granule % FREE_LIST_SIZES];
}

static void idle_begins(struct free_list *p, struct mapping *m)
{
	p->idle_bytes += m->size;
	if (!m->slab)
		TAILQ_INSERT_TAIL(idle_of(p, m->size), m, peers);
}

static void idle_ends(struct free_list *p, struct mapping *m)
{
	p->idle_bytes -= m->size;
	if (!m->slab)
		TAILQ_REMOVE(idle_of(p, m->size), m, peers);
}

static struct mapping *any_idle(const struct free_list *p)
{
	struct mapping *m = NULL;

	for (unsigned i = 0; i < FREE_LIST_SIZES && !m; i++)
		m = TAILQ_FIRST(&p->idle[i]);
	if (m)
		return m;
	TAILQ_FOREACH(m, &p->slabs, peers)
	if (m->ready && !m->blocks)
		break;
	return m;
}

struct mapping *free_list_retire(struct free_list *p, uint64_t keep)
{
	struct mapping *m = p->idle_bytes > keep ? any_idle(p) : NULL;

	if (m) {
		idle_ends(p, m);
		m->ready = false;
	}
	return m;
}

/* Free memory as the program would see it; includes the zones and guards in blocks' own mappings. */
uint64_t free_list_idle(const struct free_list *p)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < p->mapping_count; i++) {
		const struct mapping *m = p->mappings[i].mapping;
		if (m->ready && m->blocks == m->held)
			bytes += m->size;
		else if (m->ready && !m->slab)
			bytes += m->size -
				 round_up(m->at[0]->size, m->at[0]->size > FREE_LIST_LARGE ? p->granule : FREE_LIST_UNIT);
	}
	return bytes;
}

void free_list_end(struct free_list *p)
{
	free(p->mappings);
	*p = (struct free_list){0};
}

/* ---- blocks ---- */

static uint32_t unit_of(const struct mapping *m, uint64_t address)
{
	return m->slab ? (uint32_t)((address - m->base) / FREE_LIST_UNIT) : 0;
}

static uint32_t units_of(const struct mapping *m, uint64_t room)
{
	return m->slab ? (uint32_t)(room / FREE_LIST_UNIT) : 1;
}

/* Start of the first run of `units` free units, or -1. */
static int64_t find_units(const struct mapping *m, uint32_t units)
{
	uint32_t all = units_of(m, m->size), run = 0;

	for (uint32_t i = m->full_units; i < all;) {
		const struct block *b = m->at[i];
		i += b ? units_of(m, b->room) : 1;
		run = b ? 0 : run + 1;
		if (run == units)
			return (int64_t)(i - units);
	}
	return -1;
}

/* b NULL: marks the units free. */
static void set_units(struct mapping *m, uint64_t base, uint64_t room, struct block *b)
{
	uint32_t first = unit_of(m, base), units = units_of(m, room);

	for (uint32_t i = first; i < first + units; i++)
		m->at[i] = b;
	m->free_units = b ? m->free_units - units : m->free_units + units;
	if (b && m->full_units == first)
		m->full_units += units;
	else if (!b && m->full_units > first)
		m->full_units = first;
}

struct block *free_list_next(const struct free_list *p, uint64_t address)
{
	for (size_t i = lower(p, address); i < p->mapping_count; i++) {
		const struct mapping *m = p->mappings[i].mapping;
		uint32_t all = units_of(m, m->size);
		for (uint32_t unit = address > m->base ? unit_of(m, address) : 0; unit < all; unit++)
			if (m->at[unit] && block_end(m->at[unit]) > address)
				return m->at[unit];
	}
	return NULL;
}

struct block *free_list_find(const struct free_list *p, uint64_t address)
{
	if (p->recent && address - p->recent->base < p->recent->size)
		return p->recent;
	size_t i = lower(p, address);
	const struct mapping *m = i < p->mapping_count ? p->mappings[i].mapping : NULL;
	struct block *b = m && m->base <= address ? m->at[unit_of(m, address)] : NULL;

	return b && address - b->base < b->size ? b : NULL;
}

bool free_list_has_guard(const struct free_list *p, const struct block *b)
{
	return p->guard && !b->mapping->slab;
}

static uint64_t guard_cost(const struct free_list *p, const struct block *b)
{
	return free_list_has_guard(p, b) && b->size <= FREE_LIST_LARGE ? b->room : 0;
}

static struct block *block_add(struct free_list *p, struct mapping *m, uint64_t start, uint64_t size, uint64_t room)
{
	uint64_t before = p->guard && !m->slab ? room - round_up(size, p->guard) : p->zone;
	struct block *b = calloc_at_line(sizeof(*b));

	if (!b)
		return NULL;
	*b = (struct block){
		.base = start + before, .size = size, .room = room, .before = before, .mapping = m, .state = BLOCK_NEW};
	if (m->ready && !m->blocks)
		idle_ends(p, m);
	m->blocks++;
	p->recent = b;
	set_units(m, start, room, b);
	p->guard_left -= guard_cost(p, b);
	return b;
}

/* Freed blocks with this room, and others. */
static struct blocks *alike_of(struct free_list *p, uint64_t room)
{
	return &p->alike[(room / FREE_LIST_UNIT * 0x9e3779b97f4a7c15u) >> (64 - FREE_LIST_ALIKE_BITS)]; /* Fibonacci hashing */
}

/* A mapping with free room, and where in it. NULL: there is none. */
static struct mapping *find_place(struct free_list *p, uint64_t room, uint64_t *base)
{
	uint32_t units = (uint32_t)(room / FREE_LIST_UNIT);
	struct mapping *m;
	int64_t unit;

	if (room > FREE_LIST_LARGE) {
		TAILQ_FOREACH(m, idle_of(p, room), peers)
		if (m->size == room)
			break;
		*base = m ? m->base : 0;
		return m;
	}
	TAILQ_FOREACH(m, &p->slabs, peers)
	if (m->ready && m->free_units >= units && (unit = find_units(m, units)) >= 0) {
		*base = m->base + (uint64_t)unit * FREE_LIST_UNIT;
		break;
	}
	return m;
}

/* Bytes that a block takes: in a slab up to FREE_LIST_LARGE, else in its own mapping. A guard needs one. */
static uint64_t room_for(const struct free_list *p, uint64_t size, bool guarded)
{
	size += 2 * p->zone;
	return round_up(size, size <= FREE_LIST_LARGE && !guarded ? FREE_LIST_UNIT : p->granule);
}

struct block *free_list_take(struct free_list *p, uint64_t size, bool guarded, struct mapping **fresh)
{
	uint64_t base;

	*fresh = NULL;
	if (!size || size > p->size || 2 * p->zone > p->size - size)
		return NULL;
	guarded = p->guard && (size > FREE_LIST_LARGE || (guarded && p->guard_left >= p->granule));
	uint64_t room = room_for(p, size, guarded);
	bool slab = !guarded && room <= FREE_LIST_LARGE;
	struct mapping *m = guarded ? NULL : find_place(p, room, &base);
	if (m)
		return block_add(p, m, base, size, room);
	*fresh = mapping_add(p, slab ? p->granule : room, slab);
	if (!*fresh)
		return NULL;
	struct block *b = block_add(p, *fresh, (*fresh)->base, size, room);
	if (!b) {
		free_list_drop(p, *fresh);
		*fresh = NULL;
	}
	return b;
}

static bool held_long_enough(const struct free_list *p, const struct block *b)
{
	return p->freed_bytes - b->freed_bytes > HELD_BYTES || p->freed_count - b->freed_count > HELD_COUNT;
}

/* A spare block of this size, else the oldest that was freed in the stream and need not be held back. */
static struct block *take_zoned(struct free_list *p, uint64_t size, const struct context *c, const struct stream *s,
				uint64_t stream_id)
{
	struct block *b;

	TAILQ_FOREACH(b, alike_of(p, room_for(p, size, false)), alike)
	{
		bool spare = b->state == BLOCK_SPARE;
		if (!spare && (!s || !held_long_enough(p, b)))
			break;
		if (b->size != size || (spare ? b->context != c : b->freed_on != s || b->freed_stream != stream_id))
			continue;
		free_list_set_state(p, b, BLOCK_NEW);
		return p->recent = b;
	}
	return NULL;
}

struct block *free_list_take_freed(struct free_list *p, uint64_t size, const struct context *c, const struct stream *s,
				   uint64_t stream_id)
{
	/* memory with guards is unmapped */
	uint64_t room = size <= p->size && !p->guard ? room_for(p, size, false) : 0;
	struct block *b;

	if (!room || p->zone)
		return room ? take_zoned(p, size, c, s, stream_id) : NULL;
	if (!s)
		return NULL;
	TAILQ_FOREACH(b, &p->freed, freed)
	{
		if (b->freed_on != s || b->freed_stream != stream_id || b->room < room || b->room / 2 >= room)
			continue;
		free_list_set_state(p, b, BLOCK_NEW);
		b->size = size;
		return b;
	}
	return NULL;
}

/* The list of blocks in this state, if there is one. */
static struct blocks *list_of(struct free_list *p, enum block_state state)
{
	switch (state) {
	case BLOCK_FREED:
		return &p->freed;
	case BLOCK_HELD:
		return &p->held;
	case BLOCK_ENDED:
		return &p->ended;
	case BLOCK_SPARE:
		return &p->spare;
	default:
		return NULL;
	}
}

/* Adds a block to those in its state, or takes it away. */
static void count_state(struct free_list *p, const struct block *b, int sign)
{
	struct amount *of = b->state == BLOCK_HELD    ? &p->held_now
			    : b->state == BLOCK_SPARE ? &p->spare_now
			    : b->state == BLOCK_LIVE  ? &p->live
						      : NULL;

	if (!of)
		return;
	of->bytes += (uint64_t)sign * b->room;
	of->count += (uint64_t)sign;
	if (of == &p->live && of->bytes > p->live_most.bytes)
		p->live_most.bytes = of->bytes;
	if (of == &p->live && of->count > p->live_most.count)
		p->live_most.count = of->count;
}

static bool is_over(const struct amount *of, const struct amount *beyond)
{
	return of->bytes > HELD_BYTES + beyond->bytes || of->count > HELD_COUNT + beyond->count;
}

struct block *free_list_take_kept(struct free_list *p, bool all, bool *was_spare)
{
	struct block *b = all || is_over(&p->held_now, &(struct amount){0}) ? TAILQ_FIRST(&p->held) : NULL;

	*was_spare = !b;
	if (!b && (all || is_over(&p->spare_now, &p->live_most)))
		b = TAILQ_FIRST(&p->spare);
	if (b)
		free_list_set_state(p, b, BLOCK_NEW);
	return b;
}

void free_list_set_state(struct free_list *p, struct block *b, enum block_state state)
{
	if (list_of(p, b->state))
		TAILQ_REMOVE(list_of(p, b->state), b, freed);
	if (list_of(p, state))
		TAILQ_INSERT_TAIL(list_of(p, state), b, freed);
	if (b->state == BLOCK_FREED || b->state == BLOCK_SPARE)
		TAILQ_REMOVE(alike_of(p, b->room), b, alike);
	if (state == BLOCK_SPARE) {
		TAILQ_INSERT_HEAD(alike_of(p, b->room), b, alike);
	}
	if (state == BLOCK_FREED) {
		p->freed_bytes += b->room;
		p->freed_count++;
		b->freed_bytes = p->freed_bytes;
		b->freed_count = p->freed_count;
		TAILQ_INSERT_TAIL(alike_of(p, b->room), b, alike);
	}
	count_state(p, b, -1);
	b->mapping->held += (uint32_t)block_is_kept(state) - (uint32_t)block_is_kept(b->state);
	b->state = state;
	count_state(p, b, 1);
}

void free_list_give(struct free_list *p, struct block *b)
{
	free_list_set_state(p, b, BLOCK_NEW);
	if (p->recent == b)
		p->recent = NULL;
	p->guard_left += guard_cost(p, b);
	set_units(b->mapping, block_start(b), b->room, NULL);
	if (!--b->mapping->blocks && b->mapping->ready)
		idle_begins(p, b->mapping);
	free(b);
}
