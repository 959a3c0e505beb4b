/*
 * The drain thread. See drain.h for the invariant.
 */
#include "drain.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "../capture/capture.h"
#include "../capture/xxh3.h"
#include "../incident.h"
#include "../options.h"
#include "../recorder.h"
#include "../state/clock.h"
#include "store.h"
#include "writers.h"

#define COPIES_AHEAD 4 /* of what is handed to the writers, who have the other buffers */
#define BRIDGE ((uint64_t)512 << 10) /* more than this is not copied for nothing */
#define HURRY_MS 500 /* in a hurry, for a copy */
#define LOOK 256 /* entries looked up at a time, while copies are under way */

static struct pending queue[CAPTURE_PENDING];
_Static_assert(DRAIN_BUFFERS == WRITERS_QUEUE * TT_DATA_LANES, "a buffer for each piece of a writer's work");

static uint64_t added, drained; /* ever */
static _Atomic uint64_t progress; /* changes while the drain gets on */
static bool running;
static _Atomic bool stopping;
static bool given_up; /* an epoch was left out: none can come after it */
static pthread_t thread;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

/* The epoch being assembled, over its parts: of each of its regions, by index. */
static struct {
	bool listed;
	uint32_t changed; /* blocks */
} *assembled;

static bool came(struct capture *p, CUresult r, const char *call)
{
	atomic_fetch_add_explicit(&progress, 1, memory_order_relaxed);
	if (r != CUDA_SUCCESS)
		capture_failed(p, r, call);
	return r == CUDA_SUCCESS;
}

static bool fetch(struct capture *p, void *to, uint64_t offset, uint64_t size, int buffer)
{
	CUstream stream = p->drain_streams[buffer & 1];

	return came(p, real.cuMemcpyDtoHAsync_v2(to, p->ring.device + offset, size, stream),
		    "cuMemcpyDtoHAsync") &&
	       came(p, real.cuStreamWriteValue32_v2(stream, capture_copied_address(p, buffer),
						    ++p->copies[buffer], 0),
		    "cuStreamWriteValue32");
}

static bool fetched(struct capture *p, int buffer)
{
	uint64_t since = clock_ns();

	while (!capture_poll(p, capture_copied_word(p, buffer), p->copies[buffer],
			     p->drain_streams[buffer & 1], options.stall_ms)) {
		if (p->broken || atomic_load(&stopping) || (capture_hurried() && clock_ns() - since > HURRY_MS * 1000000ull))
			return false;
		nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
	}
	atomic_fetch_add_explicit(&progress, 1, memory_order_relaxed);
	return true;
}

static bool no_memory(const struct pending *q)
{
	recorder_fail("no host memory for epoch %u", q->epoch.number);
	return false;
}

/*
 * What of a chunk came to the host: its header, its entries, and in buffer 0 its first `have` bytes.
 * known: of the first `looked` entries, where the files have their contents, 0 where they lack them.
 * records: room for those of the entries that were not taken yet.
 */
struct arrived {
	struct tt_chunk header;
	struct tt_chunk_entry *entries;
	uint64_t have, looked;
	uint64_t *known;
	struct tt_block *records;
};

/* One copy for all of a chunk that a buffer holds, else for what comes before the payload. */
static bool read_entries(const struct pending *q, uint64_t at, struct arrived *a)
{
	const struct tt_capture_status *s = &q->status;
	struct capture *p = q->capture;
	uint64_t bytes = s->count * sizeof(struct tt_chunk_entry), front = sizeof(a->header) + bytes, sum = 0;
	bool sound;

	a->have = s->size <= DRAIN_BUFFER ? s->size : front < DRAIN_BUFFER ? front : DRAIN_BUFFER;
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
	if (!p->broken && !atomic_load(&stopping))
		recorder_fail("epoch %u came damaged out of the ring", q->epoch.number);
	return false;
}

/* Payload that is copied at once: entries [first, last), contiguous in the chunk. */
struct run {
	uint64_t first, last, offset, size;
};

static bool take(struct pending *q, const struct tt_chunk_entry *e)
{
	struct region *r = q->list->regions[e->region];

	if (!r->mirror && !(r->mirror = calloc(region_blocks(r), sizeof(*r->mirror))))
		return no_memory(q);
	/* What is stored has its own digest, whatever it is; but the cut was not exact. */
	if (e->more & TT_ENTRY_WRITTEN)
		q->epoch.flags |= TT_EPOCHF_LOOSE;
	/* A snapshot lists all blocks; others may list some that are as they were. */
	bool changed = q->epoch.flags & TT_EPOCHF_FULL || r->mirror[e->block] != e->digest;
	r->mirror[e->block] = e->digest;
	assembled[e->region].listed = true;
	assembled[e->region].changed += changed;
	q->epoch.bytes_changed += changed ? e->length : 0;
	return true;
}

static struct tt_block record_of(const struct pending *q, const struct tt_chunk_entry *e, uint64_t offset)
{
	return (struct tt_block){q->list->regions[e->region]->id, e->block, e->digest, offset, e->length, 0};
}

static bool is_sound(const struct pending *q, const struct arrived *a, const struct tt_chunk_entry *e)
{
	return e->region < q->list->count && e->block < region_blocks(q->list->regions[e->region]) &&
	       e->offset + e->length <= a->header.size - a->header.payload;
}

/* Looks for some more entries' contents in the files, and takes those that are there. */
static bool look(struct pending *q, struct arrived *a)
{
	uint64_t first = a->looked, last = first + LOOK < a->header.count ? first + LOOK : a->header.count, n = 0;

	for (uint64_t i = first; i < last; i++) {
		if (!is_sound(q, a, &a->entries[i]))
			return false;
		a->records[i - first] = record_of(q, &a->entries[i], 0);
	}
	a->looked = last;
	if (!store_find(recorder_store(), a->records, last - first, a->known + first))
		return false;
	for (uint64_t i = first; i < last; i++)
		if (a->known[i]) {
			if (!take(q, &a->entries[i]))
				return false;
			a->records[n++] = record_of(q, &a->entries[i], a->known[i]);
		}
	if (n && !store_blocks(recorder_store(), a->records, n, NULL, 0))
		return false;
	a->records += n;
	return true;
}

/*
 * The next run of what the files lack, empty at the end. A little of what they have may be in it: to
 * copy that costs less than another copy would. False: something failed.
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
		if (end > DRAIN_BUFFER || end - r->size > BRIDGE)
			break;
		if (!a->known[i]) {
			r->size = end;
			r->last = i + 1;
		}
	}
	*at = end ? r->last : i;
	return ok;
}

/* A run whose contents came to the host: the records of the blocks that the files lack. */
static bool take_run(struct pending *q, struct arrived *a, const struct run *r, uint64_t *count)
{
	*count = 0;
	for (uint64_t i = r->first; i < r->last; i++) {
		const struct tt_chunk_entry *e = &a->entries[i];
		if (a->known[i])
			continue;
		if (!take(q, e))
			return false;
		a->records[(*count)++] = record_of(q, e, e->offset - r->offset);
	}
	return true;
}

/*
 * Copies run after run into the buffers in turn, ahead of what is handed to the writers; what
 * the files have is looked up meanwhile. Without writers, or where the order in the files has to
 * be the same each time, the drain writes by itself.
 */
static bool store_runs(struct pending *q, struct arrived *a, uint64_t payload)
{
	struct capture *p = q->capture;
	bool writers = !options.deterministic && writers_start(), ok = true, more = true;
	struct run runs[DRAIN_BUFFERS];
	uint64_t pieces[DRAIN_BUFFERS] = {0}; /* of the writers' work, by the buffer that it is in */
	uint64_t position = 0, asked = 0, handed = 0, n;

	while (ok && (more || handed < asked)) {
		unsigned b = asked % DRAIN_BUFFERS;
		if (more) {
			ok = next_run(q, a, &position, &runs[b]);
			more = ok && runs[b].size;
		}
		if (more) {
			ok = (!writers || writers_wait(b % TT_DATA_LANES, pieces[b])) &&
			     fetch(p, p->pinned[b], payload + runs[b].offset, runs[b].size, (int)b);
			asked++;
		}
		if (!ok || (more && asked - handed < COPIES_AHEAD) || handed == asked)
			continue;
		b = handed++ % DRAIN_BUFFERS;
		ok = fetched(p, (int)b) && take_run(q, a, &runs[b], &n);
		if (ok && writers)
			pieces[b] = writers_put(b % TT_DATA_LANES, a->records, n, p->pinned[b]);
		else if (ok)
			ok = store_blocks(recorder_store(), a->records, n, p->pinned[b], 0);
		a->records += ok ? n : 0;
	}
	for (unsigned lane = 0; writers && lane < TT_DATA_LANES; lane++)
		ok &= writers_wait(lane, WRITERS_ALL);
	return ok;
}

/* All of the chunk is in buffer 0. */
static bool store_small(struct pending *q, struct arrived *a)
{
	const unsigned char *contents = q->capture->pinned[0] + a->header.payload;
	uint64_t n;

	while (a->looked < a->header.count)
		if (!look(q, a))
			return false;
	return take_run(q, a, &(struct run){.last = a->header.count}, &n) &&
	       store_blocks(recorder_store(), a->records, n, contents, 0);
}

/* Writes a chunk's blocks; contents stored before are not written again, nor, where that saves a copy, copied. */
static bool store_chunk(struct pending *q, struct arrived *a, uint64_t at)
{
	uint64_t room = a->header.count + 1;
	struct tt_block *records = a->records = malloc(room * sizeof(*records));
	bool ok = (a->known = calloc(room, sizeof(*a->known))) && records;

	if (!ok)
		no_memory(q);
	else if (a->have == a->header.size || !store_takes_contents(recorder_store())) /* which nobody looks at then */
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

	/* The kernels have said that they are through: the copies come after their very end. */
	for (int i = 0; i < 2; i++)
		real.cuStreamWaitEvent(p->drain_streams[i], p->done[q->slot], 0);
	if (!read_entries(q, at, &a))
		return false;
	if (options.deterministic) /* the kernels list blocks in the order in which they came to them */
		qsort(a.entries, a.header.count, sizeof(*a.entries), by_place);
	bool ok = store_chunk(q, &a, at);
	free(a.entries);
	atomic_store(&p->tail, q->status.position + q->status.size);
	return ok;
}

static bool commit(struct pending *q)
{
	store *s = recorder_store();
	bool ok = true;

	for (uint32_t i = 0; ok && q->list && i < q->list->count; i++)
		if (assembled[i].listed)
			ok = store_digest(s, q->list->regions[i]->id,
					  xxh3_64(q->list->regions[i]->mirror, region_blocks(q->list->regions[i]) * 8),
					  assembled[i].changed);
	return ok && store_epoch_commit(s, &q->epoch);
}

/* Once, with the first epoch that lacks contents. */
static void tell_of_limit(const struct tt_epoch *e)
{
	char reason[200];
	uint32_t since;

	if (!store_digests_only(recorder_store(), &since, reason, sizeof(reason)) || since != e->number)
		return;
	recorder_lost("epochs from %u on have digests only: %s", since, reason);
	recorder_note();
}

/* Waits for an epoch to be captured; one that work of the program holds up for too long is called off. */
static bool wait_captured(struct pending *q)
{
	struct capture *p = q->capture;
	bool captured = capture_wait(p, q->slot, options.stall_ms);

	if (!captured && capture_hurried())
		return false;
	if (!captured && !p->broken) {
		recorder_warn("epoch %u waited more than %u ms for work of the program: it was called off", q->epoch.number,
			      options.stall_ms);
		capture_let_go(p);
	}
	while (!captured && !p->broken && !atomic_load(&stopping) && !capture_hurried())
		captured = capture_wait(p, q->slot, 100);
	if (captured)
		capture_take_status(q, capture_status(p, q->slot));
	return captured;
}

static bool drain_one(struct pending *q)
{
	struct capture *p = q->capture;
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUcontext popped;

	if (recorder_state != RECORDER_ON || given_up)
		return false;
	CUresult r = real.cuCtxPushCurrent_v2(p->context->handle);
	if (r != CUDA_SUCCESS) {
		capture_failed(p, r, "cuCtxPushCurrent");
		return false;
	}
	real.cuThreadExchangeStreamCaptureMode(&mode); /* in each context: a capture of the program forbids nothing here */
	bool ok = q->read || wait_captured(q);
	if (q->watch) {
		real.cuCtxPopCurrent_v2(&popped);
		return ok;
	}
	if (ok && q->part == 0) {
		ok = store_epoch_begin(recorder_store(), q->epoch.number, q->epoch.flags & TT_EPOCHF_FULL);
		assembled = calloc((q->list ? q->list->count : 0) + 1, sizeof(*assembled));
		ok = ok && (assembled || no_memory(q));
	}
	static uint64_t carried;
	q->epoch.bytes_changed = q->part ? carried : 0;
	if (ok && !q->refused)
		ok = drain_chunk(q);
	carried = q->epoch.bytes_changed;
	if (ok && q->final) {
		ok = commit(q);
		if (ok) {
			incident_epoch(&q->epoch);
			tell_of_limit(&q->epoch);
		}
		atomic_fetch_add(&recorder_counters.epochs, 1);
		bool dropped = q->epoch.flags & TT_EPOCHF_DROPPED;
		atomic_fetch_add(&recorder_counters.epochs_refused, q->refused && !dropped);
		atomic_fetch_add(&recorder_counters.epochs_dropped, dropped);
		atomic_fetch_add(&recorder_counters.bytes_read, q->epoch.bytes_read);
		atomic_fetch_add(&recorder_counters.bytes_changed, q->epoch.bytes_changed);
		atomic_fetch_add(&recorder_counters.bytes_stored, q->epoch.bytes_stored);
	}
	if (!ok || q->final) {
		free(assembled);
		assembled = NULL;
	}
	real.cuCtxPopCurrent_v2(&popped);
	if (!ok) {
		char reason[256] = "";
		given_up = true;
		store_epoch_abandon(recorder_store());
		if (store_failed(recorder_store(), reason, sizeof(reason)))
			recorder_fail("%s", reason);
		else if (!p->broken && !atomic_load(&stopping))
			recorder_fail("epoch %u can't be stored", q->epoch.number);
	}
	return ok;
}

/* With the lock held. */
static void wait_for_change(unsigned ms)
{
	struct timespec until = clock_in(ms);

	pthread_cond_timedwait(&changed, &lock, &until);
}

static void *work(void *unused)
{
	(void)unused;

	prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0); /* the waits for copies are shorter than what is usual */
	thread_current()->busy = 1;
	pthread_mutex_lock(&lock);
	for (;;) {
		clock_tune();
		while (added == drained && !stopping) {
			wait_for_change(clock_line ? 1000 : 25);
			clock_tune();
		}
		if (added == drained)
			break;
		struct pending *q = &queue[drained % CAPTURE_PENDING];
		pthread_mutex_unlock(&lock);
		drain_one(q);
		if (q->final)
			region_list_release(q->list);
		pthread_mutex_lock(&lock);
		drained++;
		progress++;
		pthread_cond_broadcast(&changed);
	}
	running = false;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	return NULL;
}

bool drain_start(void)
{
	sigset_t all, before;
	pthread_attr_t attributes;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 512 << 10);
	running = pthread_create(&thread, &attributes, work, NULL) == 0;
	pthread_attr_destroy(&attributes);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (running)
		pthread_setname_np(thread, "tt-drain");
	return running;
}

uint32_t drain_slot(struct capture *p)
{
	(void)p;
	pthread_mutex_lock(&lock);
	while (running && added - drained >= CAPTURE_PENDING)
		pthread_cond_wait(&changed, &lock);
	uint32_t slot = (uint32_t)(added % CAPTURE_PENDING);
	pthread_mutex_unlock(&lock);
	return slot;
}

bool drain_add(const struct pending *p)
{
	pthread_mutex_lock(&lock);
	while (running && added - drained >= CAPTURE_PENDING)
		pthread_cond_wait(&changed, &lock);
	bool ok = running;
	if (ok) {
		queue[added % CAPTURE_PENDING] = *p;
		added++;
		pthread_cond_broadcast(&changed);
	}
	pthread_mutex_unlock(&lock);
	return ok;
}

/* Until all that was added is drained, or as much of it as lets chunks into the ring of p. */
static bool wait_drained(struct capture *p, uint64_t size, uint64_t largest, uint32_t timeout_ms)
{
	uint32_t bound = timeout_ms ? timeout_ms : options.stall_ms;
	uint64_t seen = progress, since = clock_ns();

	pthread_mutex_lock(&lock);
	uint64_t target = added;
	while (running && drained < target && !(p && capture_fits(p, size, largest))) {
		if (!timeout_ms && seen != progress) {
			seen = progress;
			since = clock_ns();
		}
		if (clock_ns() > capture_deadline(since + bound * 1000000ull, true))
			break;
		wait_for_change(100);
	}
	bool ok = drained >= target || (p && capture_fits(p, size, largest));
	pthread_mutex_unlock(&lock);
	return ok && recorder_state == RECORDER_ON;
}

bool drain_flush(uint32_t timeout_ms)
{
	return wait_drained(NULL, 0, 0, timeout_ms);
}

bool drain_make_room(struct capture *p, uint64_t size, uint64_t largest)
{
	return wait_drained(p, size, largest, 0);
}

bool drain_stop(uint32_t timeout_ms)
{
	bool ok = drain_flush(timeout_ms);

	pthread_mutex_lock(&lock);
	stopping = true;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	return ok;
}

void drain_forget(void)
{
	pthread_mutex_init(&lock, NULL);
	pthread_cond_init(&changed, NULL);
	writers_forget();
	running = stopping = given_up = false;
	added = drained = 0;
}
