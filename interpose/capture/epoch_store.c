/*
 * Moves epochs from the ring to the files. See epoch_store.h for the invariant.
 */
#include "capture/epoch_store.h"

#include <stdlib.h>
#include <string.h>

#include "capture/capture.h"
#include "capture/packed.h"
#include "capture/writers.h"
#include "options/options.h"
#include "session/session.h"
#include "store/store.h"
#include "util/clock.h"
#include "util/xxh3.h"

#define BRIDGE ((uint64_t)512 << 10) /* most bytes to copy although they are stored already */
#define HURRY_MS 500 /* limit of a copy while the process ends */
#define LOOK 256 /* entries that are looked up at a time while copies run */
#define PIECE (DRAIN_BUFFER / TT_DATA_LANES) /* bytes that a writer writes at a time */
#define PAUSE_NS 10000
#define PAUSES 20

_Static_assert(DRAIN_BUFFERS == WRITERS_QUEUE, "a writer has one piece of each buffer");

/* The epoch that is being stored, over all its parts. */
static struct assembled {
	struct {
		bool listed;
		uint32_t changed; /* blocks */
	} *regions; /* by index */
	uint64_t bytes_changed;
	bool written; /* a block was written while the epoch read it */
} assembled;

static bool came(struct capture *p, CUresult r, const char *call)
{
	drain_progressed();
	if (r != CUDA_SUCCESS)
		capture_failed(p, r, call);
	return r == CUDA_SUCCESS;
}

static CUstream copies_of(const struct capture *p, int buffer)
{
	return p->drain_streams[buffer & 1];
}

static bool fetch(struct capture *p, int buffer, uint64_t at, uint64_t offset, uint64_t size)
{
	return came(p, real.cuMemcpyDtoHAsync_v2(p->pinned[buffer] + at, p->ring.device + offset, size, copies_of(p, buffer)),
		    "cuMemcpyDtoHAsync");
}

static bool fetch_packed(struct capture *p, int buffer, const struct packed *k)
{
	struct tt_pack_params params = {(uintptr_t)k->buffer + PACKED_LIST_AT, k->count, 0};
	void *args[] = {&params};

	return came(p, real.cuLaunchKernel(p->pack, k->count, 1, 1, TT_PACK_THREADS, 1, 1, 0, copies_of(p, buffer), args, NULL),
		    "cuLaunchKernel");
}

/* All copies into the buffer have been asked for. */
static bool fetch_done(struct capture *p, int buffer)
{
	return came(p,
		    real.cuStreamWriteValue32_v2(copies_of(p, buffer), capture_copied_address(p, buffer), ++p->copies[buffer],
						 0),
		    "cuStreamWriteValue32");
}

static bool fetched(struct capture *p, int buffer)
{
	uint64_t since = clock_ns();

	while (!capture_poll(p, capture_copied_word(p, buffer), p->copies[buffer], copies_of(p, buffer), options.stall_ms)) {
		if (p->broken || drain_is_stopping() || (session_hurried() && clock_ns() - since > HURRY_MS * 1000000ull))
			return false;
		drain_cancel_later(p);
		nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
	}
	drain_progressed();
	return true;
}

static bool no_memory(const struct pending *q)
{
	session_fail("no host memory for epoch %u", q->epoch.number);
	return false;
}

/*
 * A chunk that is on its way to the host. Copies of the next chunk begin while the last buffers of this one are
 * written, so that the copy engine does not wait for a commit.
 */
struct chunk {
	struct pending *q; /* NULL: none */
	uint32_t epoch, part;
	uint64_t at; /* in the ring */
	struct tt_chunk header;
	struct tt_chunk_entry *entries; /* NULL: the list has not come yet */
	uint64_t have; /* its first bytes, in the list's buffer */
	uint64_t *known; /* by entry, where the files have its contents; 0: they lack them */
	struct tt_block *records; /* room for a record of each entry */
	uint64_t looked, asked, taken, recorded; /* entries that were looked up, copied, stored; records made */
	unsigned copies; /* that are not handed to writers yet */
	bool bad;
};

static struct chunk ahead;

/* Buffers, in turn: copies into them were asked for; they were handed to the writers. */
static struct {
	uint64_t asked, handed;
	unsigned lane; /* of the next piece */
	struct buffer {
		uint64_t size, last; /* it has contents of entries before this one */
		uint64_t pieces[TT_DATA_LANES]; /* of each writer, for writers_have */
	} of[DRAIN_BUFFERS];
} buffers;

/* Asks for the chunk's list, and for all of the chunk if a buffer holds it. */
static bool ask_list(struct pending *q, struct chunk *c)
{
	const struct tt_capture_status *s = &q->status;
	struct capture *p = q->capture;
	uint64_t front = sizeof(c->header) + s->count * sizeof(struct tt_chunk_entry);

	*c = (struct chunk){.q = q, .epoch = q->epoch.number, .part = q->part, .at = s->position % p->ring.size};
	/* The status is written shortly before the kernels end: copies must come after their end. */
	for (int i = 0; i < 2; i++)
		real.cuStreamWaitEvent(p->drain_streams[i], p->done[q->slot], 0);
	c->have = s->size <= DRAIN_LIST_SIZE && !p->pack ? s->size : front < DRAIN_LIST_SIZE ? front : DRAIN_LIST_SIZE;
	return front <= s->size && fetch(p, DRAIN_LIST, 0, c->at, c->have) && fetch_done(p, DRAIN_LIST);
}

/* The list is in its buffer, or the part of it that the buffer holds. */
static bool take_list(const struct pending *q, struct chunk *c)
{
	const struct tt_capture_status *s = &q->status;
	struct capture *p = q->capture;
	uint64_t bytes = s->count * sizeof(struct tt_chunk_entry), sum = 0;
	const unsigned char *list = p->pinned[DRAIN_LIST];
	bool sound;

	c->entries = malloc(bytes + 1);
	c->known = calloc(s->count + 1, sizeof(*c->known));
	c->records = malloc((s->count + 1) * sizeof(*c->records));
	if (!c->entries || !c->known || !c->records)
		return no_memory(q);
	memcpy(&c->header, list, sizeof(c->header));
	sound = c->header.magic == TT_CHUNK_MAGIC && c->header.kind == TT_CHUNK_EPOCH && c->header.position == s->position &&
		c->header.count == s->count && c->header.size == s->size && c->header.check == tt_chunk_mix(&c->header);
	for (uint64_t done = 0, n; sound && done < bytes; done += n) {
		uint64_t from = sizeof(c->header) + done;
		n = bytes - done < DRAIN_LIST_SIZE ? bytes - done : DRAIN_LIST_SIZE;
		if (from < c->have)
			n = n < c->have - from ? n : c->have - from;
		else
			sound = fetch(p, DRAIN_LIST, 0, c->at + from, n) && fetch_done(p, DRAIN_LIST) && fetched(p, DRAIN_LIST);
		memcpy((char *)c->entries + done, list + (from < c->have ? from : 0), n);
	}
	for (uint64_t i = 0; sound && i < s->count; i++)
		sum += tt_entry_mix(&c->entries[i]);
	if (sound && sum == c->header.entries_check)
		return true;
	if (!p->broken && !drain_is_stopping())
		session_fail("epoch %u is damaged in the ring", q->epoch.number);
	return false;
}

static void close_chunk(struct chunk *c)
{
	free(c->entries);
	free(c->known);
	free(c->records);
	*c = (struct chunk){0};
}

static bool take(struct pending *q, const struct tt_chunk_entry *e)
{
	struct region *r = q->list->regions[e->region];

	if (!r->mirror && !(r->mirror = calloc(region_blocks(r), sizeof(*r->mirror))))
		return no_memory(q);
	/* The digest belongs to the stored contents, but the cut was not exact. */
	assembled.written |= (e->more & TT_ENTRY_WRITTEN) != 0;
	/* A snapshot lists all blocks; deltas may list unchanged blocks too. */
	bool changed = q->epoch.flags & TT_EPOCHF_FULL || r->mirror[e->block] != e->digest;
	r->mirror[e->block] = e->digest;
	assembled.regions[e->region].listed = true;
	assembled.regions[e->region].changed += changed;
	assembled.bytes_changed += changed ? e->length : 0;
	return true;
}

static struct tt_block record_of(const struct pending *q, const struct tt_chunk_entry *e, uint64_t offset)
{
	return (struct tt_block){q->list->regions[e->region]->id, e->block, e->digest, offset, e->length, 0};
}

static bool is_sound(const struct pending *q, const struct chunk *c, const struct tt_chunk_entry *e)
{
	return e->region < q->list->count && e->block < region_blocks(q->list->regions[e->region]) &&
	       (q->digests || e->offset + e->length <= c->header.size - c->header.payload);
}

/* Looks up the contents of some more entries in the files. */
static bool look(struct chunk *c)
{
	uint64_t first = c->looked, last = first + LOOK < c->header.count ? first + LOOK : c->header.count;
	struct tt_block *blocks = c->records + first; /* not used before these entries are stored */

	for (uint64_t i = first; i < last; i++) {
		if (!is_sound(c->q, c, &c->entries[i]))
			return false;
		blocks[i - first] = record_of(c->q, &c->entries[i], 0);
	}
	c->looked = last;
	return store_find(session_store(), blocks, last - first, c->known + first);
}

/* Contents of one copy: entries [first, last), contiguous in the chunk. */
struct run {
	uint64_t first, last, offset, size;
};

/*
 * The next run of contents that the files lack, of at most so many bytes and blocks; empty at the end. It may include a
 * few stored ones, because another copy would cost more. False: failure.
 */
static bool next_run(struct chunk *c, struct run *r, uint64_t room, uint64_t blocks)
{
	const struct tt_chunk_entry *e = c->entries;
	uint64_t i = c->asked, end = 0;
	bool ok = true;

	*r = (struct run){0};
	for (; ok && i < c->header.count; i++) {
		if (i == c->looked && !(ok = look(c)))
			break;
		if (!end && c->known[i])
			continue;
		if (!end)
			*r = (struct run){i, i, e[i].offset, 0};
		else if (e[i].offset != r->offset + tt_payload_size(end))
			break;
		end = e[i].offset + e[i].length - r->offset;
		if (end > room || end - r->size > BRIDGE || i - r->first == blocks)
			break;
		if (!c->known[i]) {
			r->size = end;
			r->last = i + 1;
		}
	}
	c->asked = end ? r->last : i;
	return ok;
}

/*
 * Starts to copy a run into a buffer from `at` on, or adds it to what will be coded there: only blocks that the files
 * lack. Their entries get the offset in the buffer.
 */
static bool fetch_run(struct chunk *c, const struct run *r, int buffer, uint64_t at, struct packed *k)
{
	struct capture *p = c->q->capture;
	uint64_t payload = c->at + c->header.payload;

	if (!p->pack && !fetch(p, buffer, at, payload + r->offset, r->size))
		return false;
	for (uint64_t i = r->first; i < r->last; i++) {
		struct tt_chunk_entry *e = &c->entries[i];
		uint64_t from = payload + e->offset;
		if (c->known[i])
			continue;
		e->offset = p->pack ? k->size : at + e->offset - r->offset;
		if (p->pack)
			packed_add(k, p->ring.device + from, e->length);
	}
	return true;
}

/* Without writers, or in deterministic runs, which need a fixed order in the files, the drain itself writes. */
static bool has_writers(void)
{
	return !options.deterministic && writers_start();
}

/* Whether the writers have done with a buffer. */
static bool is_written(const struct buffer *b)
{
	bool all = true;

	for (unsigned lane = 0; all && has_writers() && lane < TT_DATA_LANES; lane++)
		all = writers_have(lane, b->pieces[lane]);
	return all;
}

/* Starts copies of the next contents into a buffer. */
static bool ask_buffer(struct chunk *c, int buffer)
{
	struct buffer *b = &buffers.of[buffer];
	struct capture *p = c->q->capture;
	struct packed k = {.buffer = p->pinned[buffer]};
	struct run r;
	bool ok;

	b->size = 0;
	while ((ok = next_run(c, &r, DRAIN_BUFFER - b->size, PACKED_BLOCKS - k.count)) && r.size) {
		if (!fetch_run(c, &r, buffer, b->size, &k))
			return false;
		b->size += tt_payload_size(r.size);
	}
	b->last = c->asked;
	if (!ok || !b->size)
		return ok;
	buffers.asked++;
	c->copies++;
	return (!p->pack || fetch_packed(p, buffer, &k)) && fetch_done(p, buffer);
}

/* Starts copies of the chunk into free buffers. */
static bool ask_buffers(struct chunk *c)
{
	bool ok = true;

	while (ok && c->asked < c->header.count && buffers.asked - buffers.handed < DRAIN_BUFFERS &&
	       is_written(&buffers.of[buffers.asked % DRAIN_BUFFERS]))
		ok = ask_buffer(c, (int)(buffers.asked % DRAIN_BUFFERS));
	return ok;
}

/* A snapshot may begin new files, which lack what the files of today have. */
static bool may_go_ahead(const struct pending *q)
{
	return !q->refused && !q->digests && !(options.retain && q->epoch.flags & TT_EPOCHF_FULL) && has_writers() &&
	       store_takes_contents(session_store()) && q->status.size > DRAIN_LIST_SIZE &&
	       sizeof(struct tt_chunk) + q->status.count * sizeof(struct tt_chunk_entry) <= DRAIN_LIST_SIZE;
}

/* Asks for the list of the part after q, and for its contents if all of q's were asked for. A failure is that part's. */
static void ask_ahead(const struct pending *q, bool contents)
{
	struct chunk *c = &ahead;
	struct pending *next;

	if (!c->q && (next = drain_following(q)) && may_go_ahead(next))
		c->bad = !ask_list(next, c);
	if (c->q && !c->bad && !c->entries && capture_copied(c->q->capture, DRAIN_LIST))
		c->bad = !take_list(c->q, c);
	if (contents && c->entries && !c->bad)
		c->bad = !ask_buffers(c);
}

/* Takes the entries up to `last` that the files have, or those whose contents came, and makes records of them. */
static struct tt_block *take_entries(struct chunk *c, uint64_t last, bool known, uint64_t *count)
{
	struct tt_block *records = c->records + c->recorded;

	*count = 0;
	for (uint64_t i = c->taken; i < last; i++) {
		const struct tt_chunk_entry *e = &c->entries[i];
		if (!c->known[i] == known)
			continue;
		if (!take(c->q, e))
			return NULL;
		records[(*count)++] = record_of(c->q, e, known ? c->known[i] : e->offset);
	}
	c->recorded += *count;
	return records;
}

static bool store_known(struct chunk *c, uint64_t last)
{
	uint64_t n;
	struct tt_block *records = take_entries(c, last, true, &n);

	return records && (!n || store_blocks(session_store(), records, n, NULL, 0));
}

static uint64_t piece_of(const struct tt_block *b)
{
	uint64_t piece = b->offset / PIECE;

	return piece < TT_DATA_LANES ? piece : TT_DATA_LANES - 1; /* coded blocks have more room */
}

/* Gives the contents of the oldest buffer to the writers. */
static bool store_buffer(struct chunk *c)
{
	int buffer = (int)(buffers.handed++ % DRAIN_BUFFERS);
	struct buffer *b = &buffers.of[buffer];
	struct capture *p = c->q->capture;
	struct tt_block *records;
	uint64_t n;

	c->copies--;
	if (!store_known(c, b->last) || !fetched(p, buffer) || !(records = take_entries(c, b->last, false, &n)))
		return false;
	c->taken = b->last;
	if (!has_writers())
		return store_blocks(session_store(), records, n, p->pinned[buffer], 0);
	for (uint64_t i = 0, next; i < n; i = next) {
		unsigned lane = buffers.lane++ % TT_DATA_LANES;
		for (next = i + 1; next < n && piece_of(&records[next]) == piece_of(&records[i]);)
			next++;
		b->pieces[lane] = writers_put(lane, records + i, next - i, p->pinned[buffer]);
	}
	return true;
}

/* Asks for contents as soon as a buffer is written, and hands on what came meanwhile. */
static bool store_runs(struct chunk *c)
{
	unsigned pauses = 0;
	bool ok;

	while ((ok = ask_buffers(c))) {
		ask_ahead(c->q, c->asked == c->header.count);
		if (!c->copies && c->asked == c->header.count)
			break;
		bool all = buffers.asked - buffers.handed == DRAIN_BUFFERS;
		if (c->copies &&
		    (all || capture_copied(c->q->capture, (int)(buffers.handed % DRAIN_BUFFERS)) || pauses == PAUSES)) {
			if (!(ok = store_buffer(c)))
				break;
			pauses = 0;
		} else {
			nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
			pauses += c->copies > 0;
		}
	}
	ok = ok && store_known(c, c->header.count);
	for (unsigned lane = 0; has_writers() && lane < TT_DATA_LANES; lane++)
		ok &= writers_wait(lane);
	if (ok)
		ask_ahead(c->q, true);
	return ok;
}

/* The whole chunk is in the list's buffer. */
static bool store_small(struct chunk *c)
{
	const unsigned char *contents = c->q->capture->pinned[DRAIN_LIST] + c->header.payload;
	struct tt_block *records;
	uint64_t n;

	while (c->looked < c->header.count)
		if (!look(c))
			return false;
	return store_known(c, c->header.count) && (records = take_entries(c, c->header.count, false, &n)) &&
	       store_blocks(session_store(), records, n, contents, 0);
}

/* The chunk has no contents. */
static bool store_digests(struct chunk *c)
{
	for (uint64_t i = 0; i < c->header.count; i++) {
		if (!is_sound(c->q, c, &c->entries[i]) || !take(c->q, &c->entries[i]))
			return false;
		c->records[i] = record_of(c->q, &c->entries[i], 0);
	}
	return store_blocks(session_store(), c->records, c->header.count, NULL, 0);
}

/* Writes a chunk's blocks. Stored contents are not written again, and not copied if that saves a copy. */
static bool store_chunk(struct chunk *c)
{
	if (c->q->digests)
		return store_digests(c);
	if (c->have == c->header.size || !store_takes_contents(session_store())) /* then nothing reads the contents */
		return store_small(c);
	return store_runs(c);
}

static int by_place(const void *a, const void *b)
{
	const struct tt_chunk_entry *x = a, *y = b;

	if (x->region != y->region)
		return x->region < y->region ? -1 : 1;
	return (x->block > y->block) - (x->block < y->block);
}

/* Takes over the chunk if its copies began with those of the part before. */
static void take_over(struct pending *q, struct chunk *c)
{
	*c = ahead;
	ahead = (struct chunk){0};
	if (c->q == q && c->epoch == q->epoch.number && c->part == q->part)
		return;
	close_chunk(c);
	buffers.asked = buffers.handed = 0;
	c->bad = !ask_list(q, c);
}

static bool drain_chunk(struct pending *q)
{
	struct chunk c;

	take_over(q, &c);
	bool ok = !c.bad && (c.entries || (fetched(q->capture, DRAIN_LIST) && take_list(q, &c)));
	if (ok && options.deterministic) /* the order of a delta's entries is not deterministic */
		qsort(c.entries, c.header.count, sizeof(*c.entries), by_place);
	ok = ok && store_chunk(&c);
	close_chunk(&c);
	atomic_store(&q->capture->tail, q->status.position + q->status.size);
	return ok;
}

/* Only for the first epoch without contents. */
static void tell_of_limit(const struct tt_epoch *e)
{
	char reason[200];
	uint32_t since;

	if (!store_digests_only(session_store(), &since, reason, sizeof(reason)) || since != e->number)
		return;
	session_lost("epochs from %u on have digests only: %s", since, reason);
	session_listeners.changed();
}

static bool begin(struct pending *q)
{
	free(assembled.regions);
	assembled = (struct assembled){0};
	assembled.regions = calloc((q->list ? q->list->count : 0) + 1, sizeof(*assembled.regions));
	return (assembled.regions || no_memory(q)) &&
	       store_epoch_begin(session_store(), q->epoch.number, q->epoch.flags & TT_EPOCHF_FULL, !q->digests);
}

static bool commit(struct pending *q)
{
	store *s = session_store();
	bool ok = true;

	q->epoch.flags |= assembled.written ? TT_EPOCHF_LOOSE : 0;
	q->epoch.bytes_changed = assembled.bytes_changed;
	/* Lists the regions that were read, if the epoch did not read all. */
	for (uint32_t i = 0; ok && q->list && i < q->list->count; i++)
		if (assembled.regions[i].listed || (q->epoch.flags & TT_EPOCHF_TOUCHED && q->list->regions[i]->mirror))
			ok = store_digest(s, q->list->regions[i]->id,
					  xxh3_64(q->list->regions[i]->mirror, region_blocks(q->list->regions[i]) * 8),
					  assembled.regions[i].changed);
	if (!ok || !store_epoch_commit(s, &q->epoch))
		return false;
	session_listeners.epoch_stored(&q->epoch);
	tell_of_limit(&q->epoch);
	bool dropped = q->epoch.flags & TT_EPOCHF_DROPPED;
	atomic_fetch_add(&session_counters.epochs, 1);
	atomic_fetch_add(&session_counters.epochs_refused, q->refused && !dropped);
	atomic_fetch_add(&session_counters.epochs_dropped, dropped);
	atomic_fetch_add(&session_counters.bytes_read, q->epoch.bytes_read);
	atomic_fetch_add(&session_counters.bytes_changed, q->epoch.bytes_changed);
	atomic_fetch_add(&session_counters.bytes_stored, q->epoch.bytes_stored);
	return true;
}

bool epoch_store_part(struct pending *q)
{
	return (q->part || begin(q)) && (q->refused || drain_chunk(q)) && (!q->final || commit(q));
}

void epoch_store_forget(void)
{
	memset(&ahead, 0, sizeof(ahead));
	memset(&buffers, 0, sizeof(buffers));
}
