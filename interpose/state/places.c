/*
 * Placement in a range of addresses. See places.h for the invariant.
 */
#include "places.h"

#include <stdlib.h>
#include <string.h>

static uint64_t round_up(uint64_t value, uint64_t unit)
{
	return (value + unit - 1) / unit * unit;
}

/* The list of pointers with room for one more; NULL, and the list as it was, where there is no memory. */
static void *extend(void *list, size_t count, size_t *capacity)
{
	if (count < *capacity)
		return list;
	size_t n = *capacity ? *capacity * 2 : 64;
	void *more = realloc(list, n * sizeof(void *));
	if (more)
		*capacity = n;
	return more;
}

/* ---- mappings ---- */

static struct mapping *mapping_new(uint64_t base, uint64_t size, bool slab)
{
	struct mapping *m = calloc(1, sizeof(*m));
	uint32_t units = (uint32_t)(slab ? size / PLACES_UNIT : 0);

	if (!m)
		return NULL;
	*m = (struct mapping){.base = base, .size = size, .free_units = units};
	if (slab && !(m->used = calloc((units + 63) / 64, sizeof(*m->used)))) {
		free(m);
		return NULL;
	}
	return m;
}

/* In the lowest gap that is large enough. */
static struct mapping *mapping_add(struct places *p, uint64_t size, bool slab)
{
	uint64_t at = p->base;
	size_t i = 0;

	for (; i < p->mapping_count && p->mappings[i]->base - at < size; i++)
		at = p->mappings[i]->base + p->mappings[i]->size;
	if (p->base + p->size - at < size)
		return NULL;
	struct mapping **list = extend(p->mappings, p->mapping_count, &p->mapping_capacity);
	if (!list)
		return NULL;
	p->mappings = list;
	struct mapping *m = mapping_new(at, size, slab);
	if (!m)
		return NULL;
	memmove(p->mappings + i + 1, p->mappings + i, (p->mapping_count - i) * sizeof(*p->mappings));
	p->mappings[i] = m;
	p->mapping_count++;
	return m;
}

void places_drop(struct places *p, struct mapping *m)
{
	size_t i = 0;

	while (p->mappings[i] != m)
		i++;
	p->mapping_count--;
	memmove(p->mappings + i, p->mappings + i + 1, (p->mapping_count - i) * sizeof(*p->mappings));
	free(m->used);
	free(m);
}

static bool is_idle(const struct mapping *m)
{
	return m->ready && !m->blocks;
}

struct mapping *places_retire(struct places *p)
{
	for (size_t i = 0; i < p->mapping_count; i++)
		if (is_idle(p->mappings[i])) {
			p->mappings[i]->ready = false;
			return p->mappings[i];
		}
	return NULL;
}

uint64_t places_idle(const struct places *p)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < p->mapping_count; i++)
		if (is_idle(p->mappings[i]))
			bytes += p->mappings[i]->size;
	return bytes;
}

void places_end(struct places *p)
{
	free(p->mappings);
	free(p->blocks);
	*p = (struct places){0};
}

/* ---- slabs ---- */

static bool unit_used(const struct mapping *m, uint32_t unit)
{
	return m->used[unit / 64] >> unit % 64 & 1;
}

/* The first of so many free units in a row, or -1. */
static int64_t find_units(const struct mapping *m, uint32_t units)
{
	uint32_t all = (uint32_t)(m->size / PLACES_UNIT), run = 0;

	for (uint32_t i = 0; i < all; i++) {
		if (i % 64 == 0 && m->used[i / 64] == UINT64_MAX) {
			run = 0;
			i += 63;
			continue;
		}
		run = unit_used(m, i) ? 0 : run + 1;
		if (run == units)
			return (int64_t)(i + 1 - units);
	}
	return -1;
}

static void set_units(struct mapping *m, uint64_t base, uint64_t size, bool used)
{
	uint32_t first = (uint32_t)((base - m->base) / PLACES_UNIT), units = (uint32_t)(size / PLACES_UNIT);

	for (uint32_t i = first; i < first + units; i++)
		if (used)
			m->used[i / 64] |= 1ull << i % 64;
		else
			m->used[i / 64] &= ~(1ull << i % 64);
	m->free_units = used ? m->free_units - units : m->free_units + units;
}

/* ---- blocks ---- */

/* Index of the first block that ends behind address. */
static size_t lower(const struct places *p, uint64_t address)
{
	size_t low = 0, n = p->block_count;

	while (n) {
		size_t half = n / 2;
		const struct block *b = p->blocks[low + half];
		if (b->base + b->room <= address) {
			low += half + 1;
			n -= half + 1;
		} else {
			n = half;
		}
	}
	return low;
}

struct block *places_find(const struct places *p, uint64_t address)
{
	size_t i = lower(p, address);
	struct block *b = i < p->block_count ? p->blocks[i] : NULL;

	return b && b->base <= address && address - b->base < b->size ? b : NULL;
}

static struct block *block_add(struct places *p, struct mapping *m, uint64_t base, uint64_t size, uint64_t room)
{
	struct block **list = extend(p->blocks, p->block_count, &p->block_capacity);
	struct block *b = list ? calloc(1, sizeof(*b)) : NULL;

	if (list)
		p->blocks = list;
	if (!b)
		return NULL;
	size_t i = lower(p, base);
	*b = (struct block){.base = base, .size = size, .room = room, .mapping = m, .state = BLOCK_NEW};
	memmove(p->blocks + i + 1, p->blocks + i, (p->block_count - i) * sizeof(*p->blocks));
	p->blocks[i] = b;
	p->block_count++;
	m->blocks++;
	if (m->used)
		set_units(m, base, room, true);
	return b;
}

static bool finds_place(const struct mapping *m, uint64_t room, uint64_t *base)
{
	int64_t unit;

	if (!m->ready)
		return false;
	*base = m->base;
	if (room > PLACES_LARGE)
		return !m->used && !m->blocks && m->size == room;
	if (!m->used || m->free_units < room / PLACES_UNIT ||
	    (unit = find_units(m, (uint32_t)(room / PLACES_UNIT))) < 0)
		return false;
	*base += (uint64_t)unit * PLACES_UNIT;
	return true;
}

/* Up to PLACES_LARGE: in a slab. */
static uint64_t room_for(const struct places *p, uint64_t size)
{
	return round_up(size, size <= PLACES_LARGE ? PLACES_UNIT : p->granule);
}

struct block *places_take(struct places *p, uint64_t size, struct mapping **fresh)
{
	uint64_t base;

	*fresh = NULL;
	if (!size || size > p->size)
		return NULL;
	uint64_t room = room_for(p, size);
	bool slab = room <= PLACES_LARGE;
	for (size_t i = 0; i < p->mapping_count; i++)
		if (finds_place(p->mappings[i], room, &base))
			return block_add(p, p->mappings[i], base, size, room);
	*fresh = mapping_add(p, slab ? p->granule : room, slab);
	if (!*fresh)
		return NULL;
	struct block *b = block_add(p, *fresh, (*fresh)->base, size, room);
	if (!b) {
		places_drop(p, *fresh);
		*fresh = NULL;
	}
	return b;
}

struct block *places_take_freed(struct places *p, uint64_t size, const struct stream *s, uint64_t stream_id)
{
	uint64_t room = size <= p->size ? room_for(p, size) : 0;

	for (size_t i = 0; room && p->freed && i < p->block_count; i++) {
		struct block *b = p->blocks[i];
		if (b->state != BLOCK_FREED || b->freed_on != s || b->freed_stream != stream_id ||
		    b->room < room || b->room / 2 >= room)
			continue;
		places_set_state(p, b, BLOCK_NEW);
		b->size = size;
		return b;
	}
	return NULL;
}

void places_set_state(struct places *p, struct block *b, enum block_state state)
{
	p->freed += (state == BLOCK_FREED) - (size_t)(b->state == BLOCK_FREED);
	b->state = state;
}

void places_give(struct places *p, struct block *b)
{
	size_t i = lower(p, b->base);

	places_set_state(p, b, BLOCK_NEW);
	if (b->mapping->used)
		set_units(b->mapping, b->base, b->room, false);
	b->mapping->blocks--;
	p->block_count--;
	memmove(p->blocks + i, p->blocks + i + 1, (p->block_count - i) * sizeof(*p->blocks));
	free(b);
}
