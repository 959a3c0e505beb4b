/*
 * Uses interpose/arena/free_list.c as the arena does: free_list churn|random|guards NUMBER. churn frees the
 * oldest of NUMBER allocations again and again; random checks NUMBER steps against a list; guards does so with guards.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena/free_list.h"

#define LIVE 3000
#define GUARD 16
#define GUARDED 1000 /* small blocks that may have one */
#define CHECK(what) (void)((what) || (printf("line %d: %s\n", __LINE__, #what), exit(1), 0))

static struct free_list list;

static struct block *take(uint64_t size)
{
	struct mapping *fresh;
	struct block *b = free_list_take(&list, size, true, &fresh);

	CHECK(b);
	if (fresh)
		fresh->ready = true;
	free_list_set_state(&list, b, BLOCK_LIVE);
	return b;
}

static void churn(int n)
{
	struct block **blocks = calloc((size_t)n, sizeof(*blocks));

	for (int i = 0; i < n; i++)
		blocks[i] = take(512);
	for (int i = 0; i < n; i++) {
		free_list_set_state(&list, blocks[i], BLOCK_FREED);
		CHECK(TAILQ_FIRST(&list.freed) == blocks[i]);
		free_list_give(&list, blocks[i]);
	}
	free(blocks);
}

static int by_address(const void *a, const void *b)
{
	uint64_t x = (*(struct block *const *)a)->base, y = (*(struct block *const *)b)->base;

	return (x > y) - (x < y);
}

static void check_guard(const struct block *b)
{
	const struct mapping *m = b->mapping;
	uint64_t end = m->base + m->size;

	CHECK(b->base % GUARD == 0 && end - b->base - b->size < GUARD);
	CHECK(!free_list_find(&list, end) && !free_list_find(&list, end + list.granule - 1));
}

static void check_all(struct block **live, int n)
{
	uint64_t end = list.base;
	struct block *b = free_list_next(&list, 0);

	qsort(live, (size_t)n, sizeof(*live), by_address);
	for (int i = 0; i < n; i++, b = free_list_next(&list, end)) {
		CHECK(b == live[i] && b->base >= end);
		if (free_list_has_guard(&list, b))
			check_guard(b);
		else
			CHECK(b->base % FREE_LIST_UNIT == 0);
		CHECK(free_list_find(&list, b->base) == b && free_list_find(&list, b->base + b->size - 1) == b);
		CHECK(b->room == b->size || !free_list_find(&list, b->base + b->size));
		CHECK(block_start(b) >= b->mapping->base && block_end(b) <= b->mapping->base + b->mapping->size);
		end = block_end(b);
	}
	CHECK(!b && !free_list_find(&list, end) && !free_list_find(&list, list.base - 1));
}

/* As a free does in a deterministic run. */
static void unmap_idle(void)
{
	struct mapping *m = list.guard ? free_list_retire(&list, 0) : NULL;

	if (m)
		free_list_drop(&list, m);
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
			free_list_set_state(&list, live[which], BLOCK_FREED);
			free_list_give(&list, live[which]);
			live[which] = live[--count];
			unmap_idle();
		}
		if (i % 1000 == 0)
			check_all(live, count);
	}
	while (count)
		free_list_give(&list, live[--count]);
}

int main(int argc, char **argv)
{
	uint64_t mapped = 0;
	struct mapping *m;

	CHECK(argc == 3);
	bool guards = !strcmp(argv[1], "guards");
	free_list_begin(&list, 1ull << 45, guards ? 1ull << 34 : 1ull << 40, 2 << 20, 0); /* guards come to its end */
	if (guards)
		free_list_guard(&list, GUARD, (uint64_t)GUARDED * list.granule);
	(strcmp(argv[1], "churn") ? random_steps : churn)(atoi(argv[2]));
	for (size_t i = 0; i < list.mapping_count; i++)
		mapped += list.mappings[i]->size;
	CHECK(!guards || list.guard_left == (uint64_t)GUARDED * list.granule);
	CHECK(!free_list_next(&list, 0) && free_list_idle(&list) == mapped);
	printf("%llu MiB\n", (unsigned long long)mapped >> 20);
	CHECK(!free_list_retire(&list, mapped)); /* all are idle, and are to stay */
	while ((m = free_list_retire(&list, 0)))
		free_list_drop(&list, m);
	CHECK(!list.mapping_count && !list.idle_bytes);
	free_list_end(&list);
	return 0;
}
