/*
 * Reports in-flight work. See crash_report.h for the invariant.
 *
 * Callers own the only result of inflight.c, and so the texts here.
 */
#include "lifecycle/crash_report.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "instrument/flights.h"
#include "store/file.h"
#include "lifecycle/crash_report_json.h"
#include "lifecycle/inflight.h"
#include "options/options.h"
#include "session/session.h"
#include "util/clock.h"
#include "track/functions.h"
#include "util/vector.h"

#define STREAMS 8 /* streams with lines; the others are only counted */
#define STACKS 3  /* of these, streams with call stacks */
#define CALLS 4   /* calls of each stream, if any of them may be the cause */
#define FRAMES 8        /* frames of a stack; half of that for native ones, which have no names yet */
#define NAME 160  /* most bytes of the name of a kernel, file or function */
#define LOOK_MS 1000
#define WARPS_NS (UINT64_C(1500) * 1000000)

static struct {
	char text[16384]; /* lines that were not written yet */
	size_t used;
	struct calling_threads threads;
} report;
static struct {
	pthread_mutex_t lock;
	struct tt_epoch record;
	_Atomic bool any;
	_Atomic bool awaited; /* a report was written, except its last epoch */
} last = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- texts ---- */

/* depth: indentation. */
__attribute__((format(printf, 2, 3))) static void line(int depth, const char *format, ...)
{
	size_t room = sizeof(report.text) - report.used;
	char text[700];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	int n = snprintf(report.text + report.used, room, "ttanalyze: %*s%s\n", 2 * depth, "", text);
	if (n > 0 && (size_t)n < room)
		report.used += (size_t)n;
	report.text[report.used] = 0;
}

static void say_page(void)
{
	session_say(report.text, report.used);
	report.used = 0;
}

static const char *age(uint64_t since, char out[32])
{
	uint64_t now = clock_ns();
	double seconds = now > since ? (double)(now - since) / 1e9 : 0;

	snprintf(out, 32, seconds < 100 ? "%.1f s ago" : "%.0f s ago", seconds);
	return out;
}

/*
 * The readable part of a mangled name, because demangling allocates: "at::native::fill<...>" for
 * _ZN2at6native4fillIfEEvPT_i. Other names stay unchanged.
 */
static void short_name(const char *name, char out[NAME])
{
	const char *p = name;
	size_t used = 0;

	if (strncmp(p, "_Z", 2)) {
		snprintf(out, NAME, "%s", name);
		return;
	}
	bool nested = p[2] == 'N';
	for (p += nested ? 3 : 2; nested && *p && strchr("rVKRO", *p); p++)
		;
	while (used < NAME - 40) {
		p += *p == 'L'; /* internal linkage */
		bool std = !strncmp(p, "St", 2);
		size_t length = std ? 3 : strtoul(p, (char **)&p, 10);
		if (!length || strnlen(p, length) < length)
			break;
		bool unnamed = !strncmp(p, "_GLOBAL__N", 10);
		const char *text = std ? "std" : unnamed ? "(anonymous namespace)" : p;
		size_t n = unnamed ? strlen(text) : length;
		n = n < NAME - 40 - used ? n : NAME - 40 - used;
		used += (size_t)snprintf(out + used, NAME - used, "%s%.*s", used ? "::" : "", (int)n, text);
		p += std ? 2 : length;
		if (!nested && !std)
			break;
	}
	if (!used)
		snprintf(out, NAME, "%s", name);
	else if (*p == 'I')
		strcpy(out + used, "<...>");
}

static void dimensions(const uint32_t d[3], char out[40])
{
	if (d[1] == 1 && d[2] == 1)
		snprintf(out, 40, "%u", d[0]);
	else
		snprintf(out, 40, "%ux%ux%u", d[0], d[1], d[2]);
}

static void describe_call(const struct tt_event *e, char out[NAME + 160])
{
	const char *kernel = e->kind == TT_EVENT_LAUNCH ? function_name(e->id) : NULL;
	char name[NAME], grid[40], block[40], when[32];

	age(e->time_ns, when);
	if (kernel) {
		short_name(kernel, name);
		dimensions(e->grid, grid);
		dimensions(e->block, block);
		snprintf(out, NAME + 160, "%s<<<%s, %s>>> (call %" PRIu64 ", %s)", name, grid, block, e->seq, when);
	} else if (e->bytes) {
		snprintf(out, NAME + 160, "%s of %" PRIu64 " bytes (call %" PRIu64 ", %s)", call_name(e->call), e->bytes,
			 e->seq, when);
	} else {
		snprintf(out, NAME + 160, "%s (call %" PRIu64 ", %s)", call_name(e->call), e->seq, when);
	}
}

static void describe_stream(const struct inflight_stream *s, char out[80])
{
	char context[32] = "";

	if (context_first() && context_first()->next)
		snprintf(context, sizeof(context), "context %u, ", s->context);
	if (s->id == STREAM_ID_PER_THREAD)
		snprintf(out, 80, "%sdefault stream of thread %u", context, s->thread);
	else
		snprintf(out, 80, s->id == STREAM_ID_LEGACY ? "%sdefault stream" : "%sstream %" PRIu64 "%s", context, s->id,
			 s->destroyed ? " (destroyed)" : "");
}

/* ---- call stacks, from the files ---- */

static int open_file(const char *name)
{
	return file_open_existing(store_folder(session_store()), name);
}

static void read_text(int file, uint32_t offset, char out[NAME])
{
	uint32_t length = 0;

	*out = 0;
	if (offset == TT_NO_ID || file_read_some(file, &length, sizeof(length), offset) != sizeof(length))
		return;
	length = length < NAME - 1 ? length : NAME - 1;
	ssize_t n = file_read_some(file, out, length, offset + TT_TEXT_HEAD);
	out[n < 0 ? 0 : n] = 0;
}

static bool read_frame(int file, uint64_t at, struct tt_frame *f)
{
	return file_read_some(file, f, sizeof(*f), TT_FILE_HEADER_SIZE + at * sizeof(*f)) == sizeof(*f);
}

/* The position of the first frame of a stack; the file is sorted by stack number. */
static uint64_t find_stack(int file, uint32_t stack)
{
	off_t size = lseek(file, 0, SEEK_END);
	size_t count = size > TT_FILE_HEADER_SIZE ? (size_t)(size - TT_FILE_HEADER_SIZE) / sizeof(struct tt_frame) : 0;
	struct tt_frame f;

	return lower_bound(count, i, read_frame(file, i, &f) && f.stack < stack);
}

static void write_stack(uint32_t stack)
{
	int frames = stack ? open_file("frames.bin") : -1, strings = frames >= 0 ? open_file("strings.bin") : -1;
	char function[NAME], path[NAME];
	struct tt_frame f;

	for (uint64_t at = strings >= 0 ? find_stack(frames, stack) : 0, i = 0; strings >= 0 && i < FRAMES; i++) {
		if (!read_frame(frames, at + i, &f) || f.stack != stack || (f.kind == TT_FRAME_NATIVE && i >= FRAMES / 2))
			break;
		read_text(strings, f.function, function);
		read_text(strings, f.file, path);
		const char *file = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
		if (f.kind == TT_FRAME_PYTHON)
			line(3, "%s (%s:%u)", function, file, f.line);
		else
			line(3, "%s+0x%" PRIx64, *file ? file : "?", f.address);
		if (i + 1 == FRAMES && f.count > FRAMES)
			line(3, "... and %u more", f.count - FRAMES);
	}
	if (strings >= 0)
		close(strings);
	if (frames >= 0)
		close(frames);
}

/* ---- lines ---- */

/* all: any of its calls may be the cause, not just the first. */
static void write_stream(const struct inflight_stream *s, bool all, bool stacks)
{
	char stream[80], other[80], call[NAME + 160], behind[100] = "", count[80] = "";

	describe_stream(s, stream);
	if (s->behind) {
		describe_stream(s->behind, other);
		snprintf(behind, sizeof(behind), ", waits for %s", other);
	}
	if (!s->listed) {
		line(1, "%s: work of unrecorded calls%s", stream, behind);
		return;
	}
	describe_call(s->calls[0], call);
	if (s->more)
		snprintf(count, sizeof(count), "%" PRIu64 " or more calls, the first known ", s->count);
	else if (s->count > 1)
		snprintf(count, sizeof(count), "%" PRIu64 " calls, the first ", s->count);
	line(1, "%s: %s%s%s", stream, count, call, behind);
	if (stacks && !s->behind)
		write_stack(s->calls[0]->stack);
	for (uint32_t i = 1; all && i < s->listed && i < CALLS; i++) {
		describe_call(s->calls[i], call);
		line(2, "then %s", call);
		if (stacks)
			write_stack(s->calls[i]->stack);
	}
	if (all && s->count > CALLS)
		line(2, "and %" PRIu64 " more", s->count - CALLS);
}

static void write_streams(const struct inflight *in, bool all)
{
	uint32_t n = in->count < STREAMS ? in->count : STREAMS;
	bool stacks = false;

	for (uint32_t i = 0; i < n; i++) {
		write_stream(in->streams[i], all, i < STACKS);
		stacks |= in->streams[i]->listed && in->streams[i]->calls[0]->stack;
	}
	if (in->count > n)
		line(1, "and work in %u more streams", in->count - n);
	if (n && options.events && !stacks)
		line(1, "no call stacks: --cpu-callstack auto records them");
	if (n && !options.events)
		line(1, "calls are not recorded (--no-events)");
}

static void note_thread(uint32_t tid, uint32_t call, uint32_t stack, void *unused)
{
	(void)unused;
	if (report.threads.count < CALLING_THREADS && call != TT_NO_ID)
		report.threads.list[report.threads.count++] = (struct calling_thread){tid, call, stack};
}

static void write_threads(void)
{
	for (unsigned i = 0; i < report.threads.count && i < STREAMS; i++) {
		if (report.threads.list[i].tid == (uint32_t)getpid())
			line(1, "the main thread is in %s", call_name(report.threads.list[i].call));
		else
			line(1, "thread %u is in %s", report.threads.list[i].tid, call_name(report.threads.list[i].call));
		write_stack(report.threads.list[i].stack);
	}
}

static void write_last_epoch(void)
{
	char when[32];

	if (!atomic_load(&last.any)) {
		line(1, "no epoch is complete");
		return;
	}
	pthread_mutex_lock(&last.lock);
	struct tt_epoch e = last.record;
	pthread_mutex_unlock(&last.lock);
	line(1, "last complete epoch: %u (call %" PRIu64 ", %s)", e.number, e.seq, age(e.time_ns, when));
}

/* ---- what happens ---- */

void crash_report_epoch(const struct tt_epoch *e)
{
	struct context *c = context_first();

	if (e->flags & (TT_EPOCHF_REFUSED | TT_EPOCHF_DROPPED))
		return;
	pthread_mutex_lock(&last.lock);
	last.record = *e;
	pthread_mutex_unlock(&last.lock);
	atomic_store(&last.any, true);
	while (c && c->index != e->context)
		c = c->next;
	if (c && !(e->flags & TT_EPOCHF_LOOSE))
		inflight_completed(c, e->seq + (e->trigger != TT_TRIGGER_KERNEL_BEFORE));
}

void crash_report_result(struct context *c, CUresult r, const char *call, uint64_t seq)
{
	const struct inflight *in;
	const char *name = "?";
	char at[40] = "";

	if (!driver_context_lost(r) || atomic_exchange(&c->lost, true) || session_state != SESSION_ON ||
	    !(in = inflight_look(c, false)))
		return;
	report.threads.count = 0;
	real.cuGetErrorName(r, &name);
	if (seq)
		snprintf(at, sizeof(at), " (call %" PRIu64 ")", seq);
	line(0, "%s from %s%s: the context is lost, with %s in flight", name, call, at,
	     in->count ? "this work" : "no known work");
	write_streams(in, true);
	if (options.guard && r == CUDA_ERROR_ILLEGAL_ADDRESS)
		line(1,
		     "a launch may have accessed memory past the end of an allocation (--guard): `ttanalyze info` names those "
		     "that it reaches");
	write_last_epoch();
	say_page();
	crash_report_keep(in, &report.threads, NULL, name, call, seq);
	inflight_done();
	session_listeners.changed();
}

/* The command that says more, if a launch is the first work of a stream that waits for no other. */
static void offer_heartbeats(const struct inflight *in)
{
	const struct inflight_stream *s = in->streams[0];
	const struct tt_event *e = s->listed && !s->behind ? s->calls[0] : NULL;
	const char *kernel = e && e->kind == TT_EVENT_LAUNCH ? function_name(e->id) : NULL;

	if (kernel && !options.instrument)
		line(1,
		     "what its warps do: run `ttanalyze instrument --kind heartbeat --kernel '^%.200s$'` with the same limits "
		     "and "
		     "program",
		     kernel);
}

/* Another thread may look at the same time, to find hangs. */
static const struct inflight *look_patiently(void)
{
	const struct inflight *in;

	for (int ms = 0; !(in = inflight_look(NULL, true)) && ms < LOOK_MS; ms++)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	return in;
}

void crash_report_ending(const char *what, const char *reason, bool limit)
{
	const struct inflight *in;
	const char *name = "?";
	bool lost = false;

	for (struct context *c = context_first(); c; c = c->next)
		lost |= atomic_load(&c->lost);
	if (lost || session_state != SESSION_ON || !(in = look_patiently()))
		return;
	report.threads.count = 0;
	threads_in_calls(note_thread, NULL);
	line(0, "ended by %s, %s%s", what, in->count ? "with work in flight" : "nothing in flight",
	     in->answered ? "" : " (the driver does not answer)");
	if (in->lost) {
		real.cuGetErrorName(in->lost, &name);
		line(1, "context %u was lost: %s", in->lost_context, name);
	}
	write_streams(in, in->lost);
	if (in->count)
		write_threads();
	say_page();
	char *warps = in->count ? flights_warps(WARPS_NS) : NULL;
	if (in->count && !warps && limit) {
		offer_heartbeats(in);
		say_page();
	}
	crash_report_keep(in, &report.threads, warps, reason, NULL, 0);
	free(warps);
	atomic_store(&last.awaited, true);
	inflight_done();
}

/* Only the first thread that calls it reports. */
void crash_report_ended(void)
{
	if (!atomic_exchange(&last.awaited, false))
		return;
	write_last_epoch();
	say_page();
}
