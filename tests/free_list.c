/*
 * Uses interpose/arena/free_list.c as the arena does: free_list churn|random|guards|zones NUMBER. churn frees the
 * oldest of NUMBER allocations again and again; random checks NUMBER steps against a list; guards does so with guards,
 * and zones with memory that is held back and spare.
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

/* ---- zones ---- */

#define ZONE 512
#define CONTEXTS 2
#define STREAMS 3
#define SIZES 40

static struct context *context_of(int n)
{
	return (struct context *)(uintptr_t)(0x1000 + n);
}

static struct stream *stream_of(int n)
{
	return (struct stream *)(uintptr_t)(0x2000 + n);
}

/* All blocks, and what their states add up to. */
static void check_zones(void)
{
	struct amount live = {0}, held = {0}, spare = {0};
	uint64_t end = list.base, blocks = 0, of_mappings = 0, kept = 0, of_kept = 0;

	for (struct block *b = free_list_next(&list, 0); b; b = free_list_next(&list, end), blocks++) {
		struct amount *of = b->state == BLOCK_LIVE    ? &live
				    : b->state == BLOCK_HELD  ? &held
				    : b->state == BLOCK_SPARE ? &spare
							      : NULL;
		CHECK(block_start(b) >= end && b->base - block_start(b) >= ZONE && block_end(b) - b->base - b->size >= ZONE);
		CHECK(block_start(b) >= b->mapping->base && block_end(b) <= b->mapping->base + b->mapping->size);
		CHECK(b->state != BLOCK_NEW && (b->state != BLOCK_SPARE || b->has_zones));
		if (of) {
			of->bytes += b->room;
			of->count++;
		}
		kept += of == &held || of == &spare || b->state == BLOCK_ENDED;
		end = block_end(b);
	}
	for (size_t i = 0; i < list.mapping_count; i++) {
		of_mappings += list.mappings[i].mapping->blocks;
		of_kept += list.mappings[i].mapping->held;
	}
	CHECK(blocks == of_mappings && kept == of_kept);
	CHECK(live.bytes == list.live.bytes && live.count == list.live.count);
	CHECK(held.bytes == list.held_now.bytes && held.count == list.held_now.count);
	CHECK(spare.bytes == list.spare_now.bytes && spare.count == list.spare_now.count);
	CHECK(held.bytes <= HELD_BYTES && held.count <= HELD_COUNT);
	CHECK(spare.bytes <= HELD_BYTES + list.live_most.bytes && spare.count <= HELD_COUNT + list.live_most.count);
}

/* stream 0: not ordered by one. */
static struct block *take_in(uint64_t size, int context, int stream)
{
	struct block *b = free_list_take_freed(&list, size, context_of(context), stream ? stream_of(stream) : NULL, 7);

	if (b) {
		CHECK(b->size == size && b->state == BLOCK_NEW && b->context == context_of(context));
		CHECK(b->has_zones || (stream && b->freed_on == stream_of(stream)));
		free_list_set_state(&list, b, BLOCK_LIVE);
	} else {
		b = take(size);
		CHECK(!b->has_zones);
	}
	b->context = context_of(context);
	b->has_zones = true;
	return b;
}

static void freed(struct block *b, int stream)
{
	b->freed_on = stream ? stream_of(stream) : NULL;
	b->freed_stream = 7;
	free_list_set_state(&list, b, BLOCK_FREED);
}

/* What zones.c lets go of: the zone over a block that was held, and those around a spare one. */
static void let_go(bool all)
{
	bool was_spare;
	struct block *b;

	while ((b = free_list_take_kept(&list, all, &was_spare))) {
		CHECK(b->state == BLOCK_NEW);
		b->has_zones &= !all && !was_spare;
		free_list_set_state(&list, b, BLOCK_ENDED);
	}
}

/* No capture reads zones that have ended. */
static void release_ended(void)
{
	struct block *b;

	while ((b = TAILQ_FIRST(&list.ended)))
		if (b->has_zones)
			free_list_set_state(&list, b, BLOCK_SPARE);
		else
			free_list_give(&list, b);
}

/* All work is complete. */
static void waited(void)
{
	struct block *last = TAILQ_LAST(&list.freed, blocks), *next;

	if (rand() % 2)
		release_ended();
	for (struct block *b = last ? TAILQ_FIRST(&list.freed) : NULL; b; b = b == last ? NULL : next) {
		bool hold = rand() % 3;
		next = TAILQ_NEXT(b, freed);
		if (!hold && !b->has_zones) {
			free_list_give(&list, b);
			continue;
		}
		free_list_set_state(&list, b, BLOCK_NEW);
		free_list_set_state(&list, b, hold ? BLOCK_HELD : BLOCK_SPARE);
	}
	let_go(false);
}

static void zoned_steps(int n)
{
	static struct block *live[LIVE];
	uint64_t sizes[SIZES], reused = 0;
	int count = 0;

	srand(1);
	for (int i = 0; i < SIZES; i++)
		sizes[i] = rand() % 8 ? 1 + rand() % 20000 : 1 + rand() % (5 << 20);
	for (int i = 0; i < n; i++) {
		if (count < LIVE && rand() % 100 < (i / 5000 % 2 ? 40 : 60)) {
			live[count] = take_in(sizes[rand() % SIZES], rand() % CONTEXTS, rand() % STREAMS);
			reused += live[count++]->freed_stream == 7;
		} else if (count) {
			int which = rand() % count;
			freed(live[which], rand() % STREAMS);
			live[which] = live[--count];
		}
		if (rand() % 50 == 0)
			waited();
		if (i % 500 == 0) {
			waited();
			check_zones();
		}
	}
	CHECK(reused > (uint64_t)n / 20);
	while (count)
		freed(live[--count], 0);
	waited();
	for (int i = 0; i < 2; i++) {
		let_go(true);
		release_ended();
	}
	CHECK(TAILQ_EMPTY(&list.ended) && !list.held_now.count && !list.spare_now.count && !list.live.count);
}

int main(int argc, char **argv)
{
	uint64_t mapped = 0;
	struct mapping *m;

	CHECK(argc == 3);
	bool guards = !strcmp(argv[1], "guards"), zones = !strcmp(argv[1], "zones");
	/* guards come to its end */
	free_list_begin(&list, 1ull << 45, guards ? 1ull << 34 : 1ull << 40, 2 << 20, zones ? ZONE : 0);
	if (guards)
		free_list_guard(&list, GUARD, (uint64_t)GUARDED * list.granule);
	(zones ? zoned_steps : strcmp(argv[1], "churn") ? random_steps : churn)(atoi(argv[2]));
	for (size_t i = 0; i < list.mapping_count; i++)
		mapped += list.mappings[i].mapping->size;
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
