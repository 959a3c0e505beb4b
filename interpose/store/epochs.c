/*
 * Writes epochs: blocks, digests and commits. See store.h for the invariant.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>

#include "util/xxh3.h"
#include "util/clock.h"
#include "store/disk.h"
#include "store/internal.h"

#define AHEAD 8 /* concurrent lookups, because each is a cache miss */

bool store_begin_data(store *s, struct store_lane *lane, uint32_t index)
{
	char name[32];

	snprintf(name, sizeof(name), "data-%05u.bin", index);
	if (!file_create_records(&lane->file, &s->folder, name, true, TT_FILE_DATA, 1, index, s->encoding))
		return false;
	lane->planned = lane->file.size;
	return true;
}

static void roll_back_lane(struct store_lane *lane)
{
	if (lane->committed)
		file_rollback(&lane->file, lane->committed);
	else
		file_discard(&lane->file);
	lane->planned = lane->committed;
}

/* Drops the contents of the active epoch and their positions. */
static void roll_back_contents(store *s)
{
	uint64_t from[TT_DATA_LANES];
	bool began = s->data_before[0].file.fd >= 0;

	file_rollback(&s->blocks.file, s->blocks.committed);
	xxh3_stream_begin(&s->blocks.check);
	s->stored = 0;
	for (unsigned i = 0; i < TT_DATA_LANES; i++) {
		if (began) {
			file_discard(&s->data[i].file);
			s->data[i] = s->data_before[i];
			s->data_before[i].file = FILE_CLOSED;
		} else {
			roll_back_lane(&s->data[i]);
		}
		from[i] = s->data[i].committed;
	}
	if (began) {
		__atomic_store_n(&s->segment, s->segment - TT_DATA_LANES, __ATOMIC_RELAXED);
		dedup_clear(&s->dedup);
	} else {
		dedup_drop(&s->dedup, from);
	}
}

void store_roll_back(store *s)
{
	if (!s->active)
		return;
	s->active = false;
	roll_back_contents(s);
	file_rollback(&s->digests.file, s->digests.committed);
}

bool store_takes_contents(const store *s)
{
	return !__atomic_load_n(&s->digests_only, __ATOMIC_ACQUIRE);
}

/*
 * No room for contents: the active epoch and all later ones have digests only. Caller holds `capture`. True if
 * errno says that there is no room, which is no failure.
 */
static bool leave_contents_out(store *s, const char *path)
{
	if (!file_no_room(errno))
		return false;
	if (store_takes_contents(s)) {
		if (errno == FILE_LIMIT)
			disk_explain(s->digests_only_reason, sizeof(s->digests_only_reason));
		else
			file_explain(s->digests_only_reason, sizeof(s->digests_only_reason), "writing", path, errno);
		s->digests_only_since = s->number;
		__atomic_store_n(&s->digests_only, true, __ATOMIC_RELEASE);
	}
	s->lacks = true;
	return true;
}

/* Drops the contents of an epoch that lacks some, to make room for its digests. No lane is being written. */
static void drop_contents(store *s)
{
	if (s->lacks && !s->dropped)
		roll_back_contents(s);
	s->dropped = s->lacks;
}

static bool begin_segment(store *s)
{
	struct store_lane next = {.file = FILE_CLOSED};

	if (!store_begin_data(s, &next, s->segment + TT_DATA_LANES))
		return leave_contents_out(s, s->folder.path) ||
		       store_fail(s, "beginning a data file in", s->folder.path, errno);
	for (unsigned i = 0; i < TT_DATA_LANES; i++) {
		s->data_before[i] = s->data[i];
		s->data[i] = i ? (struct store_lane){.file = FILE_CLOSED} : next;
	}
	__atomic_store_n(&s->segment, s->segment + TT_DATA_LANES, __ATOMIC_RELAXED);
	dedup_clear(&s->dedup);
	return true;
}

static bool has_data(const store *s)
{
	bool has = s->data[0].file.size > TT_FILE_HEADER_SIZE;

	for (unsigned i = 1; i < TT_DATA_LANES; i++)
		has |= s->data[i].file.fd >= 0;
	return has;
}

bool store_epoch_begin(store *s, uint32_t number, bool full, bool contents)
{
	struct visit v;

	if (!store_enter(s, &s->capture, &v))
		return false;
	store_roll_back(s);
	s->active = true;
	s->bare = !contents;
	s->lacks = s->dropped = false;
	if (number != s->number) {
		char text[32];
		snprintf(text, sizeof(text), "%u instead of %u", number, s->number);
		store_fail(s, "beginning epoch", text, EINVAL);
	} else if (s->retain && full && contents && has_data(s) && store_takes_contents(s)) {
		begin_segment(s);
	}
	s->stored = 0;
	xxh3_stream_begin(&s->digests.check);
	xxh3_stream_begin(&s->blocks.check);
	if (store_has_failed(s))
		store_roll_back(s);
	bool good = s->active;
	store_leave(&s->capture, v);
	return good;
}

bool store_find(store *s, const struct tt_block *blocks, size_t count, uint64_t *places)
{
	struct visit v;

	if (!store_enter(s, &s->capture, &v))
		return false;
	for (size_t i = 0; i < count; i++) {
		if (count - i > AHEAD)
			dedup_prefetch(&s->dedup, blocks[i + AHEAD].digest);
		if (!dedup_find(&s->dedup, blocks[i].digest, blocks[i].length, &places[i]))
			places[i] = 0;
	}
	store_leave(&s->capture, v);
	return true;
}

/* Bytes of a block in the data file; contents: those of the block. */
static uint64_t stored_size(const store *s, const struct tt_block *b, const uint8_t *contents)
{
	return s->encoding != TT_ENCODING_PLAIN ? compress_size(contents) : b->length;
}

/*
 * Gives each block its position. For blocks that the files lack, `segment` becomes their offset in the contents /
 * TT_CHUNK_ALIGN + 1; for others 0.
 */
static bool plan(store *s, struct tt_block *blocks, size_t count, const uint8_t *contents, unsigned lane)
{
	uint64_t end = s->data[lane].planned;

	for (struct tt_block *b = blocks; b < blocks + count; b++) {
		uint32_t from = (uint32_t)(b->offset / TT_CHUNK_ALIGN) + 1;
		uint64_t size = stored_size(s, b, contents + b->offset);
		if (blocks + count - b > AHEAD)
			dedup_prefetch(&s->dedup, b[AHEAD].digest);
		if (!b->length || b->length > TT_BLOCK_SIZE)
			return false;
		b->segment = 0;
		if (dedup_find(&s->dedup, b->digest, b->length, &b->offset))
			continue;
		uint64_t at = (end + TT_CHUNK_ALIGN - 1) / TT_CHUNK_ALIGN * TT_CHUNK_ALIGN;
		b->offset = at | lane;
		b->segment = from;
		end = at + size;
		s->stored += size;
		s->data[lane].planned = end;
		dedup_put(&s->dedup, b->digest, b->length, b->offset);
	}
	return true;
}

/* Appends the planned contents; blocks that are adjacent in them with one write. */
static bool append_contents(store *s, const struct tt_block *blocks, size_t count, const uint8_t *contents,
			    struct store_lane *lane)
{
	static const uint8_t zeros[TT_CHUNK_ALIGN];
	struct file *f = &lane->file;

	for (size_t i = 0, next; i < count; i = next) {
		const struct tt_block *first = &blocks[i];
		next = i + 1;
		if (!first->segment)
			continue;
		const uint8_t *from = contents + (uint64_t)(first->segment - 1) * TT_CHUNK_ALIGN;
		uint64_t begin = first->offset & PLACE_OFFSET, size = stored_size(s, first, from);
		for (; next < count && blocks[next].segment &&
		       (blocks[next].segment - first->segment) * (uint64_t)TT_CHUNK_ALIGN ==
			       (blocks[next].offset & PLACE_OFFSET) - begin;
		     next++)
			size = (blocks[next].offset & PLACE_OFFSET) - begin +
			       stored_size(s, &blocks[next], from + ((blocks[next].offset & PLACE_OFFSET) - begin));
		if ((begin > f->size && !file_append(f, zeros, (size_t)(begin - f->size))) || !file_append(f, from, size))
			return false;
	}
	return true;
}

/* Whether all are stored, or will be before the commit. */
static bool are_stored(const store *s, const struct tt_block *blocks, size_t count)
{
	bool good = true;

	for (const struct tt_block *b = blocks; b < blocks + count; b++) {
		uint64_t at = b->offset & PLACE_OFFSET, lane = b->offset & PLACE_LANE;
		uint64_t size = lane < TT_DATA_LANES ? s->data[lane].planned : 0;
		good &= b->length && b->length <= TT_BLOCK_SIZE && at >= TT_FILE_HEADER_SIZE && at <= size &&
			size - at >= (s->encoding != TT_ENCODING_PLAIN ? 1 : b->length);
	}
	return good;
}

static bool append_to_span(store *s, struct store_span *p, const void *record, size_t size)
{
	xxh3_stream_add(&p->check, record, size);
	return file_append(&p->file, record, size) || (p == &s->blocks && leave_contents_out(s, p->file.path)) ||
	       store_fail_write(s, &p->file);
}

/* Caller holds `capture`. */
static bool append_records(store *s, struct tt_block *blocks, size_t count)
{
	for (struct tt_block *b = blocks; b < blocks + count; b++) {
		b->segment = s->bare ? TT_NO_SEGMENT : s->segment + (uint32_t)(b->offset & PLACE_LANE);
		b->offset = s->bare ? TT_FILE_HEADER_SIZE : b->offset & PLACE_OFFSET;
	}
	return append_to_span(s, &s->blocks, blocks, count * sizeof(*blocks));
}

static bool begin_contents(store *s, struct tt_block *blocks, size_t count, const void *contents, unsigned lane)
{
	struct store_lane *l = &s->data[lane];
	struct visit v;

	if (!store_enter(s, &s->capture, &v))
		return false;
	bool good = s->active &&
		    (l->file.fd >= 0 || store_begin_data(s, l, s->segment + lane) || leave_contents_out(s, s->folder.path) ||
		     store_fail(s, "beginning a data file in", s->folder.path, errno));
	uint64_t before = l->planned;
	if (good && store_takes_contents(s) && (good = plan(s, blocks, count, contents, lane)) &&
	    !disk_take(DISK_CONTENTS, l->planned - before)) {
		errno = FILE_LIMIT;
		leave_contents_out(s, l->file.path);
	}
	store_leave(&s->capture, v);
	return good;
}

/* A write of contents failed with errno. */
static bool contents_failed(store *s, const struct file *f)
{
	struct visit v;
	int error = errno;

	if (!store_enter(s, &s->capture, &v))
		return false;
	errno = error;
	bool good = leave_contents_out(s, f->path) || store_fail_write(s, f);
	store_leave(&s->capture, v);
	return good;
}

/* Does not hold `capture` while it writes contents, so that lanes are written in parallel. */
static bool store_contents(store *s, struct tt_block *blocks, size_t count, const void *contents, unsigned lane)
{
	struct visit v;

	if (!store_enter(s, &s->writing[lane], &v))
		return false;
	struct compressor *c = &s->compressors[lane];
	bool zstd = s->encoding == TT_ENCODING_ZSTD;
	bool good = !zstd || compress_blocks(c, s->level, blocks, count, contents) ||
		    store_fail(s, "compressing for", s->folder.path, ENOMEM);
	contents = zstd ? c->out : contents;
	good = good && begin_contents(s, blocks, count, contents, lane) &&
	       (!store_takes_contents(s) || append_contents(s, blocks, count, contents, &s->data[lane]) ||
		contents_failed(s, &s->data[lane].file));
	store_leave(&s->writing[lane], v);
	return good;
}

bool store_blocks(store *s, struct tt_block *blocks, size_t count, const void *contents, unsigned lane)
{
	struct visit v;

	bool good = !contents || !store_takes_contents(s) || store_contents(s, blocks, count, contents, lane);
	if (!store_enter(s, &s->capture, &v))
		return false;
	good = good && s->active;
	if (!store_takes_contents(s))
		s->lacks |= count > 0;
	else
		good = good && (s->bare || contents || are_stored(s, blocks, count)) && append_records(s, blocks, count);
	store_leave(&s->capture, v);
	return good;
}

bool store_digest(store *s, uint32_t region, uint64_t digest, uint32_t changed)
{
	struct tt_digest d = {region, changed, digest};
	struct visit v;
	bool good;

	if (!store_enter(s, &s->capture, &v))
		return false;
	drop_contents(s);
	good = s->active && append_to_span(s, &s->digests, &d, sizeof(d));
	if (store_has_failed(s))
		store_roll_back(s);
	store_leave(&s->capture, v);
	return good;
}

static void place(const struct store_span *p, size_t record_size, uint64_t *first, uint64_t *count, uint64_t *check)
{
	*first = (p->committed - TT_FILE_HEADER_SIZE) / record_size;
	*count = (p->file.size - p->committed) / record_size;
	*check = xxh3_stream_end(&p->check);
}

/* Deletes the data files that no kept epoch needs. */
static void drop_segments(store *s, const struct tt_epoch *e)
{
	char name[32];
	uint32_t oldest;

	pthread_mutex_lock(&s->records);
	retain_epoch(&s->kept, e);
	oldest = e->number >= s->retain ? retain_oldest(&s->kept, e->number + 1 - s->retain, s->segment) : 0;
	pthread_mutex_unlock(&s->records);
	for (; s->oldest_segment < oldest; s->oldest_segment++) {
		snprintf(name, sizeof(name), "data-%05u.bin", s->oldest_segment);
		if (!folder_unlink(&s->folder, name) && errno != ENOENT)
			break; /* the next epoch tries again */
	}
}

static bool flush_records(store *s)
{
	pthread_mutex_lock(&s->records);
	bool good = store_flush_records(s);
	pthread_mutex_unlock(&s->records);
	return good;
}

static bool flush_contents(store *s)
{
	for (unsigned i = 0; i < TT_DATA_LANES; i++) {
		struct file *f = &s->data[i].file;
		if (f->fd >= 0 && !file_flush(f))
			return leave_contents_out(s, f->path) || store_fail_write(s, f);
	}
	return file_flush(&s->blocks.file) || leave_contents_out(s, s->blocks.file.path) ||
	       store_fail_write(s, &s->blocks.file);
}

/* The order keeps the invariant: an epoch's record follows everything that it refers to. */
static bool commit(store *s, struct tt_epoch *e)
{
	drop_contents(s);
	if (!flush_contents(s))
		return false;
	drop_contents(s);
	e->flags |= s->lacks ? TT_EPOCHF_DROPPED : 0;
	if (!file_flush(&s->digests.file))
		return store_fail_write(s, &s->digests.file);
	if (!flush_records(s))
		return false;
	place(&s->digests, sizeof(struct tt_digest), &e->digests_first, &e->digests_count, &e->digests_check);
	place(&s->blocks, sizeof(struct tt_block), &e->blocks_first, &e->blocks_count, &e->blocks_check);
	e->segment = s->bare && e->blocks_count ? TT_NO_SEGMENT : s->segment;
	e->bytes_stored = s->stored;
	e->done_ns = s->deterministic ? 0 : clock_ns();
	e->check = xxh3_64(e, offsetof(struct tt_epoch, check));
	return store_append(s, &s->epochs, e, sizeof(*e));
}

bool store_epoch_commit(store *s, struct tt_epoch *e)
{
	struct visit v;
	bool good;

	if (!store_enter(s, &s->capture, &v))
		return false;
	good = s->active && e->number == s->number && commit(s, e);
	if (good) {
		s->active = false;
		s->number++;
		s->digests.committed = s->digests.file.size;
		s->blocks.committed = s->blocks.file.size;
		for (unsigned i = 0; i < TT_DATA_LANES; i++) {
			s->data[i].committed = s->data[i].file.size;
			file_close(&s->data_before[i].file);
		}
		if (s->retain)
			drop_segments(s, e);
	} else {
		store_roll_back(s);
	}
	store_leave(&s->capture, v);
	return good;
}

void store_epoch_abandon(store *s)
{
	struct visit v;

	if (!store_enter(s, &s->capture, &v))
		return;
	store_roll_back(s);
	store_leave(&s->capture, v);
}
