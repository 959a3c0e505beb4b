/*
 * Writes crash reports for process.json.
 */
#include "lifecycle/crash_report_json.h"

#include <string.h>

#include "driver/driver.h"
#include "lifecycle/inflight.h"
#include "track/functions.h"
#include "util/clock.h"
#include "util/json_writer.h"

#define KIND_NAME 32 /* bytes of the name of an event kind */
#define REPORTS 8

static struct {
	char *reports[REPORTS]; /* JSON */
	unsigned _Atomic count;
} kept;

/* The spelling of readers: "graph-launch" for TT_EVENT_GRAPH_LAUNCH. */
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

static void json_dimensions(struct json *j, const char *key, const uint32_t d[3])
{
	json_member_open(j, key, '[');
	for (int i = 0; i < 3; i++)
		json_u64(j, d[i]);
	json_close(j, ']');
}

static void json_call(struct json *j, const struct tt_event *e)
{
	char kind[KIND_NAME];

	json_open(j, '{');
	json_member_u64(j, "seq", e->seq);
	json_member_u64(j, "submitted_ns", e->time_ns);
	json_member_string(j, "kind", kind_name(e->kind, kind));
	json_member_string(j, "call", call_name(e->call));
	json_member_u64(j, "thread", e->thread);
	json_member_u64(j, "stack", e->stack);
	if (e->kind == TT_EVENT_LAUNCH) {
		json_member_string(j, "kernel", function_name(e->id));
		json_dimensions(j, "grid", e->grid);
		json_dimensions(j, "block", e->block);
	} else if (e->bytes) {
		json_member_u64(j, "bytes", e->bytes);
	}
	json_close(j, '}');
}

static void json_place(struct json *j, const struct inflight_stream *s)
{
	json_member_u64(j, "context", s->context);
	json_member_u64(j, "stream", s->id);
	if (s->thread)
		json_member_u64(j, "thread", s->thread);
}

static void json_stream(struct json *j, const struct inflight_stream *s)
{
	json_open(j, '{');
	json_place(j, s);
	if (s->behind) {
		json_member_open(j, "behind", '{');
		json_place(j, s->behind);
		json_close(j, '}');
	}
	json_member_u64(j, "count", s->count);
	json_member_bool(j, "more", s->more);
	json_member_bool(j, "destroyed", s->destroyed);
	json_member_open(j, "calls", '[');
	for (uint32_t i = 0; i < s->listed; i++)
		json_call(j, s->calls[i]);
	json_close(j, ']');
	json_close(j, '}');
}

void crash_report_keep(const struct inflight *in, const struct calling_threads *threads, const char *warps, const char *reason,
		       const char *call, uint64_t seq)
{
	unsigned at = atomic_load(&kept.count);
	struct json j;

	if (at == REPORTS)
		return;
	json_begin(&j, NULL, NULL);
	json_open(&j, '{');
	json_member_string(&j, "reason", reason);
	json_member_string(&j, "call", call);
	json_member_u64(&j, "seq", seq);
	json_member_u64(&j, "time_ns", clock_ns());
	json_member_bool(&j, "answered", in->answered);
	json_member_u64(&j, "streams", in->count);
	json_member_open(&j, "in_flight", '[');
	for (uint32_t i = 0; i < in->count && i < INFLIGHT_STREAMS; i++)
		json_stream(&j, in->streams[i]);
	json_close(&j, ']');
	json_member_open(&j, "threads", '[');
	for (unsigned i = 0; i < threads->count; i++) {
		json_open(&j, '{');
		json_member_u64(&j, "thread", threads->list[i].tid);
		json_member_string(&j, "call", call_name(threads->list[i].call));
		json_member_u64(&j, "stack", threads->list[i].stack);
		json_close(&j, '}');
	}
	json_close(&j, ']');
	if (warps) {
		json_key(&j, "launches");
		json_raw(&j, warps);
	}
	json_close(&j, '}');
	if (json_text(&j) && (kept.reports[at] = strdup(json_text(&j))))
		atomic_store(&kept.count, at + 1);
	json_free(&j);
}

void crash_reports_json(struct json *j)
{
	json_open(j, '[');
	for (unsigned i = 0; i < atomic_load(&kept.count); i++)
		json_raw(j, kept.reports[i]);
	json_close(j, ']');
}
