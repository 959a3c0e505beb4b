/*
 * Looks at in-flight work from time to time. See hang_watch.h for the invariant.
 *
 * The time of a launch counts from when it is seen to be the first unfinished work of its stream. Progress is: other work
 * is the first of a stream, or warps of a traced launch do something that is not a repetition.
 */
#include "lifecycle/hang_watch.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "instrument/flights.h"
#include "lifecycle/inflight.h"
#include "lifecycle/signals.h"
#include "options/options.h"
#include "session/session.h"
#include "timeline/timeline.h"
#include "track/functions.h"
#include "track/thread.h"
#include "util/clock.h"
#include "util/recorder_thread.h"

#define SHORTEST (10 * MS) /* between two looks */
#define LONGEST (500 * MS)
#define PATIENCE (5 * SECOND) /* more than the limit, with a driver that does not answer: what has ended is known late */

struct first {
	uint32_t context, thread;
	uint64_t stream, seq, since_ns;
};

static struct {
	struct first firsts[INFLIGHT_STREAMS]; /* by their places in the last look */
	unsigned count;
	uint64_t moved_ns;
	bool unsure;
	char why[200];
	_Atomic bool found;
} watch;

static double seconds(uint64_t ns)
{
	return (double)ns / 1e9;
}

static void found(const char *what, uint64_t limit_ns, const char *more, uint64_t seq)
{
	int n = snprintf(watch.why, sizeof(watch.why), "the limit of %.10g s %s%.120s", seconds(limit_ns), what, more);

	if (seq && n > 0 && (size_t)n < sizeof(watch.why))
		snprintf(watch.why + n, sizeof(watch.why) - (size_t)n, " (call %" PRIu64 ")", seq);
	atomic_store(&watch.found, true);
	signals_expire();
}

/* When this stream had this first work for the first time. */
static uint64_t since(const struct inflight_stream *s, uint64_t now)
{
	for (unsigned i = 0; i < watch.count; i++) {
		const struct first *f = &watch.firsts[i];
		if (f->context == s->context && f->thread == s->thread && f->stream == s->id && f->seq == s->calls[0]->seq)
			return f->since_ns;
	}
	watch.moved_ns = now;
	return now;
}

static void look_at(const struct inflight *in, uint64_t now)
{
	struct first firsts[INFLIGHT_STREAMS];
	unsigned count = 0;

	for (uint32_t i = 0; i < in->count && i < INFLIGHT_STREAMS; i++) {
		const struct inflight_stream *s = in->streams[i];
		if (!s->listed)
			continue;
		const struct tt_event *e = s->calls[0];
		watch.unsure |= s->id == STREAM_ID_PER_THREAD; /* ends of its work are not known */
		const char *name = e->kind == TT_EVENT_LAUNCH && s->id != STREAM_ID_PER_THREAD ? function_name(e->id) : NULL;
		uint64_t limit = name ? time_limit_of(&options.kernel_timeout, name) : 0, began = since(s, now);
		if (s->behind) /* it waits for others, and counts from when it does not */
			began = now;
		firsts[count++] = (struct first){s->context, s->thread, s->id, e->seq, began};
		if (limit && now - began >= limit && !watch.found)
			found("for launches of ", limit, name, e->seq);
	}
	if (count < watch.count)
		watch.moved_ns = now;
	memcpy(watch.firsts, firsts, count * sizeof(*firsts));
	watch.count = count;
}

static void look(void)
{
	const struct inflight *in = atomic_load(&timeline_source) == TIMELINE_EVENTS ? inflight_look(NULL, true) : NULL;
	uint64_t limit = options.no_progress_ms * MS;

	if (!in)
		return;
	uint64_t now = clock_ns();
	watch.unsure = false;
	look_at(in, now);
	if (!in->count || !watch.moved_ns || (watch.unsure && flights_still() == UINT64_MAX))
		watch.moved_ns = now;
	uint64_t patience = in->answered ? 0 : PATIENCE;
	if (limit && now - watch.moved_ns >= limit + patience && flights_still() >= limit && !watch.found)
		found("without progress", limit, "", 0);
	inflight_done();
}

static uint64_t between_looks(void)
{
	uint64_t least = options.no_progress_ms ? options.no_progress_ms * MS : UINT64_MAX;

	for (unsigned i = 0; i < options.kernel_timeout.count; i++)
		least = least < options.kernel_timeout.list[i].ns ? least : options.kernel_timeout.list[i].ns;
	least /= 8;
	return least < SHORTEST ? SHORTEST : least > LONGEST ? LONGEST : least;
}

static void *body(void *unused)
{
	uint64_t pause = between_looks();

	(void)unused;
	thread_current()->busy = 1;
	while (!watch.found && session_state != SESSION_OFF) {
		nanosleep(&(struct timespec){.tv_sec = (time_t)(pause / SECOND), .tv_nsec = (long)(pause % SECOND)}, NULL);
		if (session_state == SESSION_ON)
			look();
	}
	return NULL;
}

void hang_watch_open(void)
{
	if ((options.no_progress_ms || options.kernel_timeout.count) &&
	    recorder_thread(NULL, "tt-hangs", 256 << 10, body, NULL))
		session_warn("cannot start the thread that finds hangs: only --timeout ends the program");
}

bool hang_found(char *why, size_t size)
{
	if (!atomic_load(&watch.found))
		return false;
	snprintf(why, size, "%s", watch.why);
	return true;
}
