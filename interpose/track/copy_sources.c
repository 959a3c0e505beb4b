/*
 * Watches the sources of asynchronous copies. See copy_sources.h for the invariant.
 *
 * A copy is cut where blocks of the destination's region begin: a digest of a whole block can be compared with
 * those of epochs. Of a long copy only some blocks are read, and of many copies only the last are watched.
 */
#include "track/copy_sources.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "store/events.h"
#include "track/regions.h"
#include "track/thread.h"
#include "util/clock.h"
#include "util/xxh3.h"

#define COPIES 64
#define BLOCKS 16 /* of a copy */
#define RECORDS 256 /* of events; a program that waits for an older one has its copies compared more often */

struct source {
	uint64_t seq; /* of the copy; 0: free */
	uint64_t dst, src, bytes;
	uint64_t first, end; /* of the destination's region */
	const struct stream *stream; /* its struct may be reused */
	const struct context *context;
	struct region *region; /* of the source */
	uint64_t digests[BLOCKS];
};

struct part {
	uint64_t at, bytes; /* in the copy */
	bool whole; /* it is a whole block of the destination's region */
};

/* An event and the work before it. */
struct completed {
	const void *event;
	const struct context *context;
	const struct stream *stream; /* NULL: any */
	uint64_t seq;
};

static struct {
	pthread_mutex_t lock;
	struct source list[COPIES];
	struct completed records[RECORDS];
	uint64_t recorded; /* count */
	char buffer[TT_BLOCK_SIZE];
} sources = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t blocks_of(const struct source *s)
{
	return (s->dst + s->bytes - 1 - s->first) / TT_BLOCK_SIZE - (s->dst - s->first) / TT_BLOCK_SIZE + 1;
}

static unsigned parts_of(const struct source *s)
{
	uint64_t blocks = blocks_of(s);

	return blocks < BLOCKS ? (unsigned)blocks : BLOCKS;
}

static struct part part_of(const struct source *s, unsigned i)
{
	uint64_t blocks = blocks_of(s), n = blocks <= BLOCKS ? i : i * (blocks - 1) / (BLOCKS - 1);
	uint64_t low = s->first + ((s->dst - s->first) / TT_BLOCK_SIZE + n) * TT_BLOCK_SIZE, high = low + TT_BLOCK_SIZE;
	uint64_t begin = low > s->dst ? low : s->dst, end = high < s->dst + s->bytes ? high : s->dst + s->bytes;

	return (struct part){begin - s->dst, end - begin, begin == low && (end == high || end == s->end)};
}

/* Into the buffer. False: the memory is not mapped any more, or may not be read so. */
static bool read_registered(void *bytes, size_t size)
{
	struct iovec to = {sources.buffer, size}, from = {bytes, size};

	if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) == (ssize_t)size)
		return true;
	if (errno != EFAULT)
		session_warn("host memory that the program registered is not watched: process_vm_readv: %m");
	return false;
}

static bool digest_of(const struct source *s, struct part p, uint64_t *digest)
{
	void *bytes = (void *)(uintptr_t)(s->src + p.at);

	if (s->region->kind == TT_REGION_HOST_REGISTERED) {
		if (!read_registered(bytes, p.bytes))
			return false;
		bytes = sources.buffer;
	}
	*digest = xxh3_64(bytes, p.bytes);
	return true;
}

static void drop(struct source *s)
{
	region_release(s->region);
	s->seq = 0;
}

/* The number is taken after the change was seen: a call with an earlier number did not tell the host too late. */
static void write_event(const struct source *s, struct part p, const uint64_t digests[2])
{
	uint64_t seq = session_next_seq();
	struct tt_event *e = events_next();

	if (!e)
		return;
	e->seq = seq;
	e->time_ns = clock_ns();
	e->thread = thread_current()->tid;
	e->context = s->context->index;
	e->call = TT_NO_CALL;
	e->id = TT_NO_ID;
	e->dst = s->src + p.at;
	e->src = s->seq;
	e->bytes = p.bytes;
	memcpy(e->grid, &digests[0], sizeof(digests[0]));
	memcpy(e->block, &digests[1], sizeof(digests[1]));
	events_publish(e, TT_EVENT_SOURCE_CHANGE);
}

/* Prefers a part whose digest can be compared with that of an epoch. */
static void compare(struct source *s)
{
	struct part part, found = {0};
	uint64_t digests[2], now;
	bool readable = atomic_load(&s->region->alive);

	for (unsigned i = 0; readable && i < parts_of(s); i++) {
		part = part_of(s, i);
		readable = digest_of(s, part, &now);
		if (!readable || now == s->digests[i] || (found.bytes && (found.whole || !part.whole)))
			continue;
		found = part;
		digests[0] = s->digests[i];
		digests[1] = now;
	}
	if (found.bytes)
		write_event(s, found, digests);
	if (found.bytes || !readable)
		drop(s);
}

void copy_sources_compare(void)
{
	pthread_mutex_lock(&sources.lock);
	for (unsigned i = 0; i < COPIES; i++)
		if (sources.list[i].seq)
			compare(&sources.list[i]);
	pthread_mutex_unlock(&sources.lock);
}

/* A free slot. If there is none, the oldest copy is compared for the last time. */
static struct source *slot(void)
{
	struct source *oldest = &sources.list[0];

	for (unsigned i = 1; i < COPIES && oldest->seq; i++)
		if (sources.list[i].seq < oldest->seq)
			oldest = &sources.list[i];
	if (oldest->seq)
		compare(oldest);
	if (oldest->seq)
		drop(oldest);
	return oldest;
}

static bool is_page_locked(const struct region *r, uint64_t src, uint64_t bytes)
{
	return (r->kind == TT_REGION_HOST || r->kind == TT_REGION_HOST_REGISTERED) && bytes <= r->base + r->size - src;
}

static void watch(const struct source *given)
{
	struct source *s = slot();

	*s = *given;
	for (unsigned i = 0; i < parts_of(s); i++)
		if (!atomic_load(&s->region->alive) || !digest_of(s, part_of(s, i), &s->digests[i])) {
			drop(s);
			return;
		}
}

void copy_sources_watch(const struct stream *stream, uint64_t seq, uint64_t dst, uint64_t src, uint64_t bytes)
{
	struct region *from = src && bytes ? region_find(src) : NULL;

	if (!from)
		return;
	if (!is_page_locked(from, src, bytes)) {
		region_release(from);
		return;
	}
	struct region *to = region_find(dst);
	struct source s = {seq, dst, src, bytes, dst, dst + bytes, stream, stream->context, from, {0}};
	if (to) {
		s.first = to->base;
		s.end = to->base + to->size;
		region_release(to);
	}
	pthread_mutex_lock(&sources.lock);
	watch(&s);
	pthread_mutex_unlock(&sources.lock);
}

static void drop_each(bool (*which)(const struct source *, const void *), const void *what)
{
	for (unsigned i = 0; i < COPIES; i++)
		if (sources.list[i].seq && which(&sources.list[i], what))
			drop(&sources.list[i]);
}

static void drop_where(bool (*which)(const struct source *, const void *), const void *what)
{
	pthread_mutex_lock(&sources.lock);
	drop_each(which, what);
	pthread_mutex_unlock(&sources.lock);
}

static bool is_complete(const struct source *s, const void *what)
{
	const struct completed *c = what;

	return s->seq < c->seq && (c->stream ? s->stream == c->stream : s->context == c->context);
}

void copy_sources_complete(const struct context *c, const struct stream *s, uint64_t seq)
{
	if (unlikely(options.host_writes))
		drop_where(is_complete, &(struct completed){NULL, c, s, seq});
}

void copy_sources_recorded(const struct stream *s, const void *event, uint64_t seq)
{
	if (likely(!options.host_writes))
		return;
	pthread_mutex_lock(&sources.lock);
	sources.records[sources.recorded++ % RECORDS] = (struct completed){event, s->context, s, seq};
	pthread_mutex_unlock(&sources.lock);
}

void copy_sources_event_complete(const void *event)
{
	if (likely(!options.host_writes))
		return;
	pthread_mutex_lock(&sources.lock);
	for (uint64_t i = sources.recorded; i && sources.recorded - i < RECORDS; i--)
		if (sources.records[(i - 1) % RECORDS].event == event) {
			drop_each(is_complete, &sources.records[(i - 1) % RECORDS]);
			break;
		}
	pthread_mutex_unlock(&sources.lock);
}

static bool is_in_region(const struct source *s, const void *what)
{
	const uint64_t *base = what;

	return s->region->base == *base;
}

void copy_sources_freed(uint64_t base)
{
	if (unlikely(options.host_writes))
		drop_where(is_in_region, &base);
}

static bool is_of_context(const struct source *s, const void *what)
{
	return s->context == what || s->region->context == what;
}

void copy_sources_context_ends(const struct context *c)
{
	if (unlikely(options.host_writes))
		drop_where(is_of_context, c);
}

void copy_sources_forget(void)
{
	pthread_mutex_init(&sources.lock, NULL);
	memset(sources.list, 0, sizeof(sources.list));
	sources.recorded = 0;
}
