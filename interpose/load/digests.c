/*
 * Digests of many short inputs. See digests.h.
 */
#include "load/digests.h"

#include "fill_pattern.h"
#include "format.h"
#include "util/event_check.h"
#include "util/xxh3_stream.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT void tt_digests(const void *items, uint64_t count, uint32_t size, uint32_t covered, uint64_t *digests)
{
	for (uint64_t i = 0; i < count; i++)
		digests[i] = xxh3_64((const char *)items + i * size, covered);
}

EXPORT void tt_span_digests(const void *bytes, uint64_t count, const uint64_t *begins, const uint64_t *ends, uint64_t *digests)
{
	for (uint64_t i = 0; i < count; i++)
		digests[i] = xxh3_64((const char *)bytes + begins[i], ends[i] - begins[i]);
}

static uint64_t pattern_block(uint64_t seed, uint64_t base, uint64_t size)
{
	static _Thread_local uint64_t words[TT_BLOCK_SIZE / 8 + 1];
	uint64_t first = base / 8, last = (base + size - 1) / 8;

	for (uint64_t word = first; word <= last; word++)
		words[word - first] = tt_fill_word(word, seed);
	return xxh3_64((const char *)words + base % 8, size);
}

EXPORT void tt_pattern_digests(uint64_t seed, uint64_t count, const uint64_t *bases, const uint64_t *sizes, uint64_t *digests)
{
	for (uint64_t i = 0; i < count; i++) {
		struct xxh3_stream blocks;
		xxh3_stream_begin(&blocks);
		for (uint64_t at = 0; at < sizes[i]; at += TT_BLOCK_SIZE) {
			uint64_t left = sizes[i] - at;
			uint64_t digest = pattern_block(seed, bases[i] + at, left < TT_BLOCK_SIZE ? left : TT_BLOCK_SIZE);
			xxh3_stream_add(&blocks, &digest, sizeof(digest));
		}
		digests[i] = xxh3_stream_end(&blocks);
	}
}

static uint32_t check_of(const struct tt_event *e)
{
	return event_check(e, e->kind | (uint64_t)e->call << 16);
}

EXPORT void tt_event_checks(const void *events, uint64_t count, uint32_t *checks)
{
	const struct tt_event *e = events;

	for (uint64_t i = 0; i < count; i++)
		checks[i] = check_of(&e[i]);
}

EXPORT uint64_t tt_wrong_event(const void *events, uint64_t count, uint32_t kinds)
{
	const struct tt_event *e = events;
	uint64_t i = 0;

	while (i < count &&
	       ((!e[i].kind && !e[i].check) || (e[i].check == check_of(&e[i]) && e[i].kind && e[i].kind < kinds && e[i].seq)))
		i++;
	return i;
}
