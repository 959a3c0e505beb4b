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

#define COPIES_AHEAD 4 /* copies that may be ahead of the writers, who have the other buffers */
#define BRIDGE ((uint64_t)512 << 10) /* most bytes to copy although they are stored already */
#define HURRY_MS 500 /* limit of a copy while the process ends */
#define LOOK 256 /* entries that are looked up at a time while copies run */

_Static_assert(DRAIN_BUFFERS == WRITERS_QUEUE * TT_DATA_LANES, "a buffer for each piece of a writer's work");

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

static bool fetch_done(struct capture *p, CUstream stream, int buffer)
{
	return came(p, real.cuStreamWriteValue32_v2(stream, capture_copied_address(p, buffer), ++p->copies[buffer], 0),
		    "cuStreamWriteValue32");
}

static bool fetch(struct capture *p, void *to, uint64_t offset, uint64_t size, int buffer)
{
	CUstream stream = p->drain_streams[buffer & 1];

	return came(p, real.cuMemcpyDtoHAsync_v2(to, p->ring.device + offset, size, stream), "cuMemcpyDtoHAsync") &&
	       fetch_done(p, stream, buffer);
}

static bool fetch_packed(struct capture *p, const struct packed *k, int buffer)
{
	struct tt_pack_params params = {(uintptr_t)k->buffer + PACKED_LIST_AT, k->count, 0};
	CUstream stream = p->drain_streams[buffer & 1];
	void *args[] = {&params};

	return came(p, real.cuLaunchKernel(p->pack, k->count, 1, 1, TT_PACK_THREADS, 1, 1, 0, stream, args, NULL),
		    "cuLaunchKernel") &&
	       fetch_done(p, stream, buffer);
}

static bool fetched(struct capture *p, int buffer)
{
	uint64_t since = clock_ns();

	while (!capture_poll(p, capture_copied_word(p, buffer), p->copies[buffer], p->drain_streams[buffer & 1],
			     options.stall_ms)) {
		if (p->broken || drain_is_stopping() || (session_hurried() && clock_ns() - since > HURRY_MS * 1000000ull))
			return false;
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
 * The parts of a chunk that are on the host: header, entries, and in buffer 0 its first `have` bytes.
 *
 * known: for the first `looked` entries, where the files have their contents; 0: they lack them. records: room for
 * the records of the remaining entries.
 */
struct arrived {
	struct tt_chunk header;
	struct tt_chunk_entry *entries;
	uint64_t have, looked;
	uint64_t *known;
	struct tt_block *records;
};

/* One copy for all of the chunk if a buffer holds it, else for its part before the payload. */
static bool read_entries(const struct pending *q, uint64_t at, struct arrived *a)
{
	const struct tt_capture_status *s = &q->status;
	struct capture *p = q->capture;
	uint64_t bytes = s->count * sizeof(struct tt_chunk_entry), front = sizeof(a->header) + bytes, sum = 0;
	bool sound;

	a->have = s->size <= DRAIN_BUFFER && !p->pack ? s->size : front < DRAIN_BUFFER ? front : DRAIN_BUFFER;
	a->entries = malloc(bytes + 1);
	if (!a->entries)
		return no_memory(q);
	sound = front <= s->size && fetch(p, p->pinned[0], at, a->have, 0) && fetched(p, 0);
	if (sound) {
		memcpy(&a->header, p->pinned[0], sizeof(a->header));
		sound = a->header.magic == TT_CHUNK_MAGIC && a->header.kind == TT_CHUNK_EPOCH &&
			a->header.position == s->position && a->header.count == s->count && a->header.size == s->size &&
			a->header.check == tt_chunk_mix(&a->header);
	}
	for (uint64_t done = 0, n; sound && done < bytes; done += n) {
		uint64_t from = sizeof(a->header) + done;
		n = bytes - done < DRAIN_BUFFER ? bytes - done : DRAIN_BUFFER;
		if (from < a->have)
			n = n < a->have - from ? n : a->have - from;
		else
			sound = fetch(p, p->pinned[0], at + from, n, 0) && fetched(p, 0);
		memcpy((char *)a->entries + done, p->pinned[0] + (from < a->have ? from : 0), n);
	}
	for (uint64_t i = 0; sound && i < s->count; i++)
		sum += tt_entry_mix(&a->entries[i]);
	if (sound && sum == a->header.entries_check)
		return true;
	free(a->entries);
	if (!p->broken && !drain_is_stopping())
		session_fail("epoch %u is damaged in the ring", q->epoch.number);
	return false;
}

/* Payload of one copy: entries [first, last), contiguous in the chunk. */
struct run {
	uint64_t first, last, offset, size;
};

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

static bool is_sound(const struct pending *q, const struct arrived *a, const struct tt_chunk_entry *e)
{
	return e->region < q->list->count && e->block < region_blocks(q->list->regions[e->region]) &&
	       (q->digests || e->offset + e->length <= a->header.size - a->header.payload);
}

/* Looks up the contents of some more entries in the files, and takes those that are stored. */
static bool look(struct pending *q, struct arrived *a)
{
	uint64_t first = a->looked, last = first + LOOK < a->header.count ? first + LOOK : a->header.count, n = 0;

	for (uint64_t i = first; i < last; i++) {
		if (!is_sound(q, a, &a->entries[i]))
			return false;
		a->records[i - first] = record_of(q, &a->entries[i], 0);
	}
	a->looked = last;
	if (!store_find(session_store(), a->records, last - first, a->known + first))
		return false;
	for (uint64_t i = first; i < last; i++)
		if (a->known[i]) {
			if (!take(q, &a->entries[i]))
				return false;
			a->records[n++] = record_of(q, &a->entries[i], a->known[i]);
		}
	if (n && !store_blocks(session_store(), a->records, n, NULL, 0))
		return false;
	a->records += n;
	return true;
}

/*
 * The next run of contents that the files lack; empty at the end. It may include a few stored ones, because another
 * copy would cost more. False: failure.
 */
static bool next_run(struct pending *q, struct arrived *a, uint64_t *at, struct run *r)
{
	const struct tt_chunk_entry *e = a->entries;
	uint64_t i = *at, end = 0;
	bool ok = true;

	*r = (struct run){0};
	for (; ok && i < a->header.count; i++) {
		if (i == a->looked && !(ok = look(q, a)))
			break;
		if (!end && a->known[i])
			continue;
		if (!end)
			*r = (struct run){i, i, e[i].offset, 0};
		else if (e[i].offset != r->offset + tt_payload_size(end))
			break;
		end = e[i].offset + e[i].length - r->offset;
		if (end > DRAIN_BUFFER || end - r->size > BRIDGE || (q->capture->pack && i - r->first == PACKED_BLOCKS))
			break;
		if (!a->known[i]) {
			r->size = end;
			r->last = i + 1;
		}
	}
	*at = end ? r->last : i;
	return ok;
}

/* Starts to copy a run to the host; coded there are only the blocks that the files lack. */
static bool fetch_run(const struct pending *q, const struct arrived *a, const struct run *r, uint64_t payload, int buffer)
{
	struct capture *p = q->capture;
	struct packed k = {.buffer = p->pinned[buffer]};

	if (!p->pack)
		return fetch(p, p->pinned[buffer], payload + r->offset, r->size, buffer);
	for (uint64_t i = r->first; i < r->last; i++)
		if (!a->known[i])
			packed_add(&k, p->ring.device + payload + a->entries[i].offset, a->entries[i].length);
	return fetch_packed(p, &k, buffer);
}

/* The contents of a run are on the host: makes records of the blocks that the files lack. */
static bool take_run(struct pending *q, struct arrived *a, const struct run *r, uint64_t *count)
{
	uint64_t at = 0;

	*count = 0;
	for (uint64_t i = r->first; i < r->last; i++) {
		const struct tt_chunk_entry *e = &a->entries[i];
		if (a->known[i])
			continue;
		if (!take(q, e))
			return false;
		a->records[(*count)++] = record_of(q, e, q->capture->pack ? at : e->offset - r->offset);
		at += packed_room(e->length);
	}
	return true;
}

/*
 * Copies runs into the buffers in turn, ahead of the writers, and looks up entries meanwhile. Without writers, or
 * in deterministic runs, which need a fixed order in the files, the drain itself writes.
 */
static bool store_runs(struct pending *q, struct arrived *a, uint64_t payload)
{
	struct capture *p = q->capture;
	bool writers = !options.deterministic && writers_start(), ok = true, more = true;
	struct run runs[DRAIN_BUFFERS];
	uint64_t pieces[DRAIN_BUFFERS] = {0}; /* number of the work in each buffer, for writers_wait */
	uint64_t position = 0, asked = 0, handed = 0, n;

	while (ok && (more || handed < asked)) {
		unsigned b = asked % DRAIN_BUFFERS;
		if (more) {
			ok = next_run(q, a, &position, &runs[b]);
			more = ok && runs[b].size;
		}
		if (more) {
			ok = (!writers || writers_wait(b % TT_DATA_LANES, pieces[b])) &&
			     fetch_run(q, a, &runs[b], payload, (int)b);
			asked++;
		}
		if (!ok || (more && asked - handed < COPIES_AHEAD) || handed == asked)
			continue;
		b = handed++ % DRAIN_BUFFERS;
		ok = fetched(p, (int)b) && take_run(q, a, &runs[b], &n);
		if (ok && writers)
			pieces[b] = writers_put(b % TT_DATA_LANES, a->records, n, p->pinned[b]);
		else if (ok)
			ok = store_blocks(session_store(), a->records, n, p->pinned[b], 0);
		a->records += ok ? n : 0;
	}
	for (unsigned lane = 0; writers && lane < TT_DATA_LANES; lane++)
		ok &= writers_wait(lane, WRITERS_ALL);
	return ok;
}

/* The whole chunk is in buffer 0. */
static bool store_small(struct pending *q, struct arrived *a)
{
	const unsigned char *contents = q->capture->pinned[0] + a->header.payload;
	uint64_t n;

	while (a->looked < a->header.count)
		if (!look(q, a))
			return false;
	return take_run(q, a, &(struct run){.last = a->header.count}, &n) &&
	       store_blocks(session_store(), a->records, n, contents, 0);
}

/* The chunk has no contents. */
static bool store_digests(struct pending *q, struct arrived *a)
{
	for (uint64_t i = 0; i < a->header.count; i++) {
		if (!is_sound(q, a, &a->entries[i]) || !take(q, &a->entries[i]))
			return false;
		a->records[i] = record_of(q, &a->entries[i], 0);
	}
	return store_blocks(session_store(), a->records, a->header.count, NULL, 0);
}

/* Writes a chunk's blocks. Stored contents are not written again, and not copied if that saves a copy. */
static bool store_chunk(struct pending *q, struct arrived *a, uint64_t at)
{
	uint64_t room = a->header.count + 1;
	struct tt_block *records = a->records = malloc(room * sizeof(*records));
	bool ok = (a->known = calloc(room, sizeof(*a->known))) && records;

	if (!ok)
		no_memory(q);
	else if (q->digests)
		ok = store_digests(q, a);
	else if (a->have == a->header.size || !store_takes_contents(session_store())) /* then nothing reads the contents */
		ok = store_small(q, a);
	else
		ok = store_runs(q, a, at + a->header.payload);
	free(records);
	free(a->known);
	return ok;
}

static int by_place(const void *a, const void *b)
{
	const struct tt_chunk_entry *x = a, *y = b;

	if (x->region != y->region)
		return x->region < y->region ? -1 : 1;
	return (x->block > y->block) - (x->block < y->block);
}

static bool drain_chunk(struct pending *q)
{
	struct capture *p = q->capture;
	uint64_t at = q->status.position % p->ring.size;
	struct arrived a = {0};

	/* The status is written shortly before the kernels end: copies must come after their end. */
	for (int i = 0; i < 2; i++)
		real.cuStreamWaitEvent(p->drain_streams[i], p->done[q->slot], 0);
	if (!read_entries(q, at, &a))
		return false;
	if (options.deterministic) /* the order of a delta's entries is not deterministic */
		qsort(a.entries, a.header.count, sizeof(*a.entries), by_place);
	bool ok = store_chunk(q, &a, at);
	free(a.entries);
	atomic_store(&p->tail, q->status.position + q->status.size);
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
