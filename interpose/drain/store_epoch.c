/*
 * Epochs: the part of the store that blocks, digests and their commits go through. See store.h
 * for the invariant.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../capture/xxh3.h"
#include "../state/clock.h"
#include "store_internal.h"

bool store_begin_segment(store *s, struct file *f, uint32_t index)
{
	char name[32];

	snprintf(name, sizeof(name), "data-%05u.bin", index);
	return file_create_records(f, s->directory, name, true, TT_FILE_DATA, 1, index);
}

void store_roll_back(store *s)
{
	if (!s->active)
		return;
	s->active = false;
	file_rollback(&s->blocks.file, s->blocks.committed);
	file_rollback(&s->digests.file, s->digests.committed);
	if (s->data_before.fd >= 0) {
		file_discard(&s->data);
		s->data = s->data_before;
		s->data_before = FILE_CLOSED;
		s->data_committed = s->data.size;
		__atomic_store_n(&s->segment, s->segment - 1, __ATOMIC_RELAXED);
		dedup_clear(&s->dedup);
	} else {
		file_rollback(&s->data, s->data_committed);
		dedup_drop(&s->dedup, s->data_committed);
	}
}

bool store_epoch_begin(store *s, uint32_t number, bool full)
{
	struct store_visit v;
	struct file next;

	if (!store_enter(s, &s->capture, &v))
		return false;
	store_roll_back(s);
	s->active = true;
	if (number != s->number) {
		char text[32];
		snprintf(text, sizeof(text), "%u instead of %u", number, s->number);
		store_fail(s, "beginning epoch", text, EINVAL);
	} else if (s->retain && full && s->data.size > TT_FILE_HEADER_SIZE) {
		if (store_begin_segment(s, &next, s->segment + 1)) {
			s->data_before = s->data;
			s->data = next;
			s->data_committed = next.size;
			__atomic_store_n(&s->segment, s->segment + 1, __ATOMIC_RELAXED);
			dedup_clear(&s->dedup);
		} else {
			store_fail(s, "beginning a data file in", s->directory, errno);
		}
	}
	s->stored = 0;
	xxh3_stream_begin(&s->digests.check);
	xxh3_stream_begin(&s->blocks.check);
	if (store_has_failed(s))
		store_roll_back(s);
	bool good = s->active;
	store_leave(&s->capture, &v);
	return good;
}

bool store_find(store *s, uint64_t digest, uint32_t length, uint64_t *offset)
{
	struct store_visit v;
	bool found;

	if (!store_enter(s, &s->capture, &v))
		return false;
	found = dedup_find(&s->dedup, digest, length, offset);
	store_leave(&s->capture, &v);
	return found;
}

/* Blocks that lie side by side in `contents` and are new to the files: one write. */
struct group {
	const uint8_t *contents;
	uint64_t first, end; /* offsets in contents; equal: empty */
	uint64_t at;         /* offset of the first in the data file */
};

static bool append_group(store *s, struct group *g)
{
	bool good = g->first == g->end || file_append(&s->data, g->contents + g->first, g->end - g->first) ||
		    store_fail_write(s, &s->data);

	g->first = g->end = 0;
	return good;
}

static bool begin_group(store *s, struct group *g, uint64_t first)
{
	static const uint8_t zeros[TT_CHUNK_ALIGN];
	size_t pad = (size_t)(-s->data.size % TT_CHUNK_ALIGN);

	if (pad && !file_append(&s->data, zeros, pad))
		return store_fail_write(s, &s->data);
	g->first = g->end = first;
	g->at = s->data.size;
	return true;
}

/* Gives each block its offset in the data file, and appends those that it lacks. The caller holds `capture`. */
static bool append_contents(store *s, struct tt_block *blocks, size_t count, const void *contents)
{
	struct group g = {.contents = contents};

	for (struct tt_block *b = blocks; b < blocks + count; b++) {
		uint64_t from = b->offset;
		if (!b->length || b->length > TT_BLOCK_SIZE)
			return false;
		bool has = dedup_find(&s->dedup, b->digest, b->length, &b->offset);
		if ((has || from - g.end >= TT_CHUNK_ALIGN) && !append_group(s, &g))
			return false;
		if (has)
			continue;
		if (g.first == g.end && !begin_group(s, &g, from))
			return false;
		b->offset = g.at + from - g.first;
		g.end = from + b->length;
		s->stored += b->length;
		dedup_put(&s->dedup, b->digest, b->length, b->offset);
	}
	return append_group(s, &g);
}

static bool are_stored(const store *s, const struct tt_block *blocks, size_t count)
{
	bool good = true;

	for (const struct tt_block *b = blocks; b < blocks + count; b++)
		good &= b->length && b->length <= TT_BLOCK_SIZE && b->offset >= TT_FILE_HEADER_SIZE &&
			b->offset <= s->data.size && s->data.size - b->offset >= b->length;
	return good;
}

static bool append_to_span(store *s, struct store_span *p, const void *record, size_t size)
{
	xxh3_stream_add(&p->check, record, size);
	return file_append(&p->file, record, size) || store_fail_write(s, &p->file);
}

bool store_blocks(store *s, struct tt_block *blocks, size_t count, const void *contents)
{
	struct store_visit v;
	bool good;

	if (!store_enter(s, &s->capture, &v))
		return false;
	good = s->active && (contents ? append_contents(s, blocks, count, contents) : are_stored(s, blocks, count));
	for (size_t i = 0; good && i < count; i++)
		blocks[i].segment = s->segment;
	good = good && append_to_span(s, &s->blocks, blocks, count * sizeof(*blocks));
	if (store_has_failed(s))
		store_roll_back(s);
	store_leave(&s->capture, &v);
	return good;
}

bool store_digest(store *s, uint32_t region, uint64_t digest, uint32_t changed)
{
	struct tt_digest d = {region, changed, digest};
	struct store_visit v;
	bool good;

	if (!store_enter(s, &s->capture, &v))
		return false;
	good = s->active && append_to_span(s, &s->digests, &d, sizeof(d));
	if (store_has_failed(s))
		store_roll_back(s);
	store_leave(&s->capture, &v);
	return good;
}

static void place(const struct store_span *p, size_t record_size, uint64_t *first, uint64_t *count, uint64_t *check)
{
	*first = (p->committed - TT_FILE_HEADER_SIZE) / record_size;
	*count = (p->file.size - p->committed) / record_size;
	*check = xxh3_stream_end(&p->check);
}

/* Deletes the data files that no epoch to keep needs. */
static void drop_segments(store *s, const struct tt_epoch *e)
{
	char path[PATH_MAX + 24];
	uint32_t oldest;

	pthread_mutex_lock(&s->records);
	retain_epoch(&s->kept, e);
	oldest = e->number >= s->retain ? retain_oldest(&s->kept, e->number + 1 - s->retain, s->segment) : 0;
	pthread_mutex_unlock(&s->records);
	while (s->oldest_segment < oldest) {
		snprintf(path, sizeof(path), "%s/data-%05u.bin", s->directory, s->oldest_segment);
		if (unlink(path) && errno != ENOENT)
			break; /* tried again at the next epoch */
		s->oldest_segment++;
	}
}

/* The order is the invariant: the epoch's record comes after all that it speaks of. */
static bool commit(store *s, struct tt_epoch *e)
{
	if (!file_flush(&s->data))
		return store_fail_write(s, &s->data);
	if (!file_flush(&s->blocks.file))
		return store_fail_write(s, &s->blocks.file);
	if (!file_flush(&s->digests.file))
		return store_fail_write(s, &s->digests.file);
	place(&s->digests, sizeof(struct tt_digest), &e->digests_first, &e->digests_count, &e->digests_check);
	place(&s->blocks, sizeof(struct tt_block), &e->blocks_first, &e->blocks_count, &e->blocks_check);
	e->segment = s->segment;
	e->bytes_stored = s->stored;
	e->done_ns = s->deterministic ? 0 : clock_ns();
	e->check = xxh3_64(e, offsetof(struct tt_epoch, check));
	return store_append(s, &s->epochs, e, sizeof(*e));
}

bool store_epoch_commit(store *s, struct tt_epoch *e)
{
	struct store_visit v;
	bool good;

	if (!store_enter(s, &s->capture, &v))
		return false;
	good = s->active && e->number == s->number && commit(s, e);
	if (good) {
		s->active = false;
		s->number++;
		s->digests.committed = s->digests.file.size;
		s->blocks.committed = s->blocks.file.size;
		s->data_committed = s->data.size;
		file_close(&s->data_before);
		if (s->retain)
			drop_segments(s, e);
	} else {
		store_roll_back(s);
	}
	store_leave(&s->capture, &v);
	return good;
}

void store_epoch_abandon(store *s)
{
	struct store_visit v;

	if (!store_enter(s, &s->capture, &v))
		return;
	store_roll_back(s);
	store_leave(&s->capture, &v);
}

