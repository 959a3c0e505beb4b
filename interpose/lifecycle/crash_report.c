/*
 * Reports of work in flight. See incident.h for the invariant.
 *
 * Who looks holds the one answer of inflight.c, and with it the texts here.
 */
#include "lifecycle/crash_report.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "store/file.h"
#include "util/json_writer.h"
#include "lifecycle/inflight.h"
#include "options/options.h"
#include "session/session.h"
#include "util/clock.h"
#include "track/functions.h"

#define KIND_NAME 32 /* bytes of a name of a kind of event */
#define INCIDENTS 8
#define STREAMS 8 /* that get lines; the others are counted */
#define STACKS 3  /* of these, that get theirs */
#define CALLS 4   /* of each, where any of them may have done it */
#define FRAMES 8        /* of a stack; of native ones, which have no names yet, half */
#define THREADS 16
#define NAME 160  /* most of a kernel's name, file or function */

struct thread_in_call {
	uint32_t tid, call, stack;
};

static struct {
	char text[16384];
	size_t used;
} page;
static char *incidents[INCIDENTS]; /* JSON */
static unsigned _Atomic incident_count;
static struct thread_in_call threads[THREADS];
static unsigned thread_count;

static pthread_mutex_t epoch_lock = PTHREAD_MUTEX_INITIALIZER;
static struct tt_epoch last_epoch;
static _Atomic bool any_epoch;
static _Atomic bool ending; /* told, but for the last epoch */

/* ---- texts ---- */

/* depth: below what it belongs to. */
__attribute__((format(printf, 2, 3))) static void line(int depth, const char *format, ...)
{
	size_t room = sizeof(page.text) - page.used;
	char text[700];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	int n = snprintf(page.text + page.used, room, "ttanalyze: %*s%s\n", 2 * depth, "", text);
	if (n > 0 && (size_t)n < room)
		page.used += (size_t)n;
	page.text[page.used] = 0;
}

static void say_page(void)
{
	session_say(page.text, page.used);
	page.used = 0;
}

static const char *age(uint64_t since, char out[32])
{
	uint64_t now = clock_ns();
	double seconds = now > since ? (double)(now - since) / 1e9 : 0;

	snprintf(out, 32, seconds < 100 ? "%.1f s ago" : "%.0f s ago", seconds);
	return out;
}

/*
 * Of a mangled name what can be read without demangling, which allocates: "at::native::fill<...>"
 * for _ZN2at6native4fillIfEEvPT_i. Other names stay as they are.
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
		p += *p == 'L'; /* of this file alone */
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

static const char *call_name(uint32_t call)
{
	return call < CALL_COUNT ? call_names[call] : "a call";
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

/* Stacks are in the file by their numbers: the first frame of one. */
static uint64_t find_stack(int file, uint32_t stack)
{
	off_t size = lseek(file, 0, SEEK_END);
	uint64_t low = 0,
		 high = size > TT_FILE_HEADER_SIZE ? (uint64_t)(size - TT_FILE_HEADER_SIZE) / sizeof(struct tt_frame) : 0;
	struct tt_frame f;

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;
		if (!read_frame(file, middle, &f))
			return UINT64_MAX;
		if (f.stack < stack)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
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

/* all: any of its calls may be the one, not just the first. */
static void write_stream(const struct inflight_stream *s, bool all, bool stacks)
{
	char stream[80], other[80], call[NAME + 160], behind[100] = "", count[80] = "";

	describe_stream(s, stream);
	if (s->behind) {
		describe_stream(s->behind, other);
		snprintf(behind, sizeof(behind), ", behind %s", other);
	}
	if (!s->listed) {
		line(1, "%s: work whose calls are not recorded%s", stream, behind);
		return;
	}
	describe_call(s->calls[0], call);
	if (s->more)
		snprintf(count, sizeof(count), "%" PRIu64 " calls or more, the first known ", s->count);
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
		line(1, "--cpu-callstack auto records who made these calls");
	if (n && !options.events)
		line(1, "calls are not recorded (--no-events)");
}

static void note_thread(uint32_t tid, uint32_t call, uint32_t stack, void *unused)
{
	(void)unused;
	if (thread_count < THREADS && call != TT_NO_ID)
		threads[thread_count++] = (struct thread_in_call){tid, call, stack};
}

static void write_threads(void)
{
	for (unsigned i = 0; i < thread_count && i < STREAMS; i++) {
		if (threads[i].tid == (uint32_t)getpid())
			line(1, "the main thread is in %s", call_name(threads[i].call));
		else
			line(1, "thread %u is in %s", threads[i].tid, call_name(threads[i].call));
		write_stack(threads[i].stack);
	}
}

static void write_last_epoch(void)
{
	char when[32];

	if (!atomic_load(&any_epoch)) {
		line(1, "no epoch is complete");
		return;
	}
	pthread_mutex_lock(&epoch_lock);
	struct tt_epoch e = last_epoch;
	pthread_mutex_unlock(&epoch_lock);
	line(1, "last complete epoch: %u (call %" PRIu64 ", %s)", e.number, e.seq, age(e.time_ns, when));
}

/* ---- process.json ---- */

/* As readers spell kinds: TT_EVENT_GRAPH_LAUNCH is "graph-launch". */
static const char *kind_name(uint32_t kind, char name[KIND_NAME])
{
#define ROW(name, number, properties) [number] = #name,
	static const char *const names[] = {TT_EVENT_KINDS(ROW)};
#undef ROW
	const char *from = kind < sizeof(names) / sizeof(names[0]) && names[kind] ? names[kind] : "UNKNOWN";
	size_t i = 0;

	for (; from[i] && i + 1 < KIND_NAME; i++)
		name[i] = from[i] == '_' ? '-' : (char)(from[i] - 'A' + 'a');
	name[i] = 0;
	return name;
}

static void member(struct json *j, const char *key, uint64_t value)
{
	json_key(j, key);
	json_u64(j, value);
}

static void json_dimensions(struct json *j, const char *key, const uint32_t d[3])
{
	json_key(j, key);
	json_open(j, '[');
	for (int i = 0; i < 3; i++)
		json_u64(j, d[i]);
	json_close(j, ']');
}

static void json_call(struct json *j, const struct tt_event *e)
{
	char kind[KIND_NAME];

	json_open(j, '{');
	member(j, "seq", e->seq);
	member(j, "submitted_ns", e->time_ns);
	json_key(j, "kind");
	json_string(j, kind_name(e->kind, kind));
	json_key(j, "call");
	json_string(j, call_name(e->call));
	member(j, "thread", e->thread);
	member(j, "stack", e->stack);
	if (e->kind == TT_EVENT_LAUNCH) {
		json_key(j, "kernel");
		json_string(j, function_name(e->id));
		json_dimensions(j, "grid", e->grid);
		json_dimensions(j, "block", e->block);
	} else if (e->bytes) {
		member(j, "bytes", e->bytes);
	}
	json_close(j, '}');
}

static void json_place(struct json *j, const struct inflight_stream *s)
{
	member(j, "context", s->context);
	member(j, "stream", s->id);
	if (s->thread)
		member(j, "thread", s->thread);
}

static void json_stream(struct json *j, const struct inflight_stream *s)
{
	json_open(j, '{');
	json_place(j, s);
	if (s->behind) {
		json_key(j, "behind");
		json_open(j, '{');
		json_place(j, s->behind);
		json_close(j, '}');
	}
	member(j, "count", s->count);
	json_key(j, "more");
	json_bool(j, s->more);
	json_key(j, "destroyed");
	json_bool(j, s->destroyed);
	json_key(j, "calls");
	json_open(j, '[');
	for (uint32_t i = 0; i < s->listed; i++)
		json_call(j, s->calls[i]);
	json_close(j, ']');
	json_close(j, '}');
}

/* call: NULL where it was no result of one. */
static void keep(const struct inflight *in, const char *reason, const char *call, uint64_t seq)
{
	unsigned at = atomic_load(&incident_count);
	struct json j;

	if (at == INCIDENTS)
		return;
	json_begin(&j, NULL, NULL);
	json_open(&j, '{');
	json_key(&j, "reason");
	json_string(&j, reason);
	json_key(&j, "call");
	json_string(&j, call);
	member(&j, "seq", seq);
	member(&j, "time_ns", clock_ns());
	json_key(&j, "answered");
	json_bool(&j, in->answered);
	member(&j, "streams", in->count);
	json_key(&j, "in_flight");
	json_open(&j, '[');
	for (uint32_t i = 0; i < in->count && i < INFLIGHT_STREAMS; i++)
		json_stream(&j, in->streams[i]);
	json_close(&j, ']');
	json_key(&j, "threads");
	json_open(&j, '[');
	for (unsigned i = 0; i < thread_count; i++) {
		json_open(&j, '{');
		member(&j, "thread", threads[i].tid);
		json_key(&j, "call");
		json_string(&j, call_name(threads[i].call));
		member(&j, "stack", threads[i].stack);
		json_close(&j, '}');
	}
	json_close(&j, ']');
	json_close(&j, '}');
	if (json_text(&j) && (incidents[at] = strdup(json_text(&j))))
		atomic_store(&incident_count, at + 1);
	json_free(&j);
}

void incidents_json(struct json *j)
{
	json_open(j, '[');
	for (unsigned i = 0; i < atomic_load(&incident_count); i++)
		json_raw(j, incidents[i]);
	json_close(j, ']');
}

/* ---- what happens ---- */

void incident_epoch(const struct tt_epoch *e)
{
	struct context *c = context_first();

	if (e->flags & (TT_EPOCHF_REFUSED | TT_EPOCHF_DROPPED))
		return;
	pthread_mutex_lock(&epoch_lock);
	last_epoch = *e;
	pthread_mutex_unlock(&epoch_lock);
	atomic_store(&any_epoch, true);
	while (c && c->index != e->context)
		c = c->next;
	if (c && !(e->flags & TT_EPOCHF_LOOSE))
		inflight_completed(c, e->seq + (e->trigger != TT_TRIGGER_KERNEL_BEFORE));
}

void incident_result(struct context *c, CUresult r, const char *call, uint64_t seq)
{
	const struct inflight *in;
	const char *name = "?";
	char at[40] = "";

	if (!driver_context_lost(r) || atomic_exchange(&c->lost, true) || session_state != SESSION_ON ||
	    !(in = inflight_look(c, false)))
		return;
	thread_count = 0;
	real.cuGetErrorName(r, &name);
	if (seq)
		snprintf(at, sizeof(at), " (call %" PRIu64 ")", seq);
	line(0, "%s from %s%s: the context is lost, with %s in flight", name, call, at,
	     in->count ? "this work" : "no known work");
	write_streams(in, true);
	write_last_epoch();
	say_page();
	keep(in, name, call, seq);
	inflight_done();
	session_listeners.changed();
}

void incident_ending(const char *what, const char *reason)
{
	const struct inflight *in;
	const char *name = "?";
	bool lost = false;

	for (struct context *c = context_first(); c; c = c->next)
		lost |= atomic_load(&c->lost);
	if (lost || session_state != SESSION_ON || !(in = inflight_look(NULL, true)))
		return;
	thread_count = 0;
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
	keep(in, reason, NULL, 0);
	atomic_store(&ending, true);
	inflight_done();
}

/* By whichever thread comes first. */
void incident_ended(void)
{
	if (!atomic_exchange(&ending, false))
		return;
	write_last_epoch();
	say_page();
}
