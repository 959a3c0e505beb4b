/*
 * Uses interpose/state/places.c as the arena does: places churn|random NUMBER. churn frees the
 * oldest of NUMBER allocations again and again; random checks NUMBER steps against a list.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena/free_list.h"

#define LIVE 3000
#define CHECK(what) (void)((what) || (printf("line %d: %s\n", __LINE__, #what), exit(1), 0))

static struct places places;

static struct block *take(uint64_t size)
{
	struct mapping *fresh;
	struct block *b = places_take(&places, size, &fresh);

	CHECK(b);
	if (fresh)
		fresh->ready = true;
	places_set_state(&places, b, BLOCK_LIVE);
	return b;
}

static void churn(int n)
{
	struct block **blocks = calloc((size_t)n, sizeof(*blocks));

	for (int i = 0; i < n; i++)
		blocks[i] = take(512);
	for (int i = 0; i < n; i++) {
		places_set_state(&places, blocks[i], BLOCK_FREED);
		CHECK(TAILQ_FIRST(&places.freed) == blocks[i]);
		places_give(&places, blocks[i]);
	}
	free(blocks);
}

static int by_address(const void *a, const void *b)
{
	uint64_t x = (*(struct block *const *)a)->base, y = (*(struct block *const *)b)->base;

	return (x > y) - (x < y);
}

static void check_all(struct block **live, int n)
{
	uint64_t end = places.base;
	struct block *b = places_next(&places, 0);

	qsort(live, (size_t)n, sizeof(*live), by_address);
	for (int i = 0; i < n; i++, b = places_next(&places, end)) {
		CHECK(b == live[i] && b->base >= end && b->base % PLACES_UNIT == 0);
		CHECK(places_find(&places, b->base) == b && places_find(&places, b->base + b->size - 1) == b);
		CHECK(b->room == b->size || !places_find(&places, b->base + b->size));
		CHECK(b->base >= b->mapping->base && b->base + b->room <= b->mapping->base + b->mapping->size);
		end = b->base + b->room;
	}
	CHECK(!b && !places_find(&places, end) && !places_find(&places, places.base - 1));
}

static void random_steps(int n)
{
	struct block *live[LIVE];
	int count = 0;

	srand(1);
	for (int i = 0; i < n; i++) {
		if (count < LIVE && rand() % 100 < (i / 5000 % 2 ? 40 : 60)) {
			uint64_t size = rand() % 10 ? 1 + rand() % 9000 : 1 + rand() % (5 << 20);
			live[count++] = take(size);
		} else if (count) {
			int which = rand() % count;
			places_set_state(&places, live[which], BLOCK_FREED);
			places_give(&places, live[which]);
			live[which] = live[--count];
		}
		if (i % 1000 == 0)
			check_all(live, count);
	}
	while (count)
		places_give(&places, live[--count]);
}

int main(int argc, char **argv)
{
	uint64_t mapped = 0;
	struct mapping *m;

	CHECK(argc == 3);
	places_begin(&places, 1ull << 45, 1ull << 40, 2 << 20);
	(strcmp(argv[1], "churn") ? random_steps : churn)(atoi(argv[2]));
	for (size_t i = 0; i < places.mapping_count; i++)
		mapped += places.mappings[i]->size;
	CHECK(!places_next(&places, 0) && places_idle(&places) == mapped);
	printf("%llu MiB\n", (unsigned long long)mapped >> 20);
	while ((m = places_retire(&places)))
		places_drop(&places, m);
	CHECK(!places.mapping_count);
	places_end(&places);
	return 0;
}
