/*
 * Writes process.json: what the process is, its options, and the state of the recording.
 */
#include "lifecycle/process_json.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "capture/budget.h"
#include "entry/entry.h"
#include "lifecycle/crash_report_json.h"
#include "nvtx/nvtx.h"
#include "options/options.h"
#include "options/rank.h"
#include "session/session.h"
#include "store/activities.h"
#include "store/events.h"
#include "store/params.h"
#include "timeline/timeline.h"
#include "track/streams.h"
#include "util/clock.h"
#include "util/json_writer.h"
#include "util/recorder_thread.h"

static uint64_t started_ns, started_monotonic_ns;

void process_json_begin(void)
{
	started_ns = clock_real_ns();
	started_monotonic_ns = clock_ns();
}

/* What relates times to those of other processes: those of one boot have one clock. */
static void json_clock(struct json *j)
{
	char boot[64] = "";
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

	if (f && !fgets(boot, sizeof(boot), f))
		*boot = 0;
	if (f)
		fclose(f);
	boot[strcspn(boot, "\n")] = 0;
	json_member_open(j, "clock", '{');
	json_member_string(j, "boot", boot);
	json_member_u64(j, "monotonic_ns", started_monotonic_ns);
	json_member_u64(j, "real_ns", started_ns);
	json_close(j, '}');
}

static void json_arguments(struct json *j)
{
	char text[65536];
	FILE *f = fopen("/proc/self/cmdline", "re");
	size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;

	if (f)
		fclose(f);
	text[n] = 0;
	json_open(j, '[');
	for (size_t at = 0; at < n; at += strlen(text + at) + 1)
		json_string(j, text + at);
	json_close(j, ']');
}

static void json_devices(struct json *j)
{
	json_open(j, '[');
	for (struct context *c = context_first(); c; c = c->next) {
		bool listed = false;
		for (struct context *o = context_first(); o != c; o = o->next)
			listed |= o->device == c->device;
		if (listed)
			continue;
		json_open(j, '{');
		json_member_u64(j, "ordinal", (uint64_t)c->device);
		json_member_string(j, "name", c->device_name);
		json_member_u64(j, "memory", c->device_memory);
		json_member_u64(j, "capability", (uint64_t)c->device_capability);
		json_member_u64(j, "clock_khz", (uint64_t)c->device_clock_khz);
		json_member_u64(j, "multiprocessors", (uint64_t)c->device_multiprocessors);
		json_close(j, '}');
	}
	json_close(j, ']');
}

/* Where there is no room for contents, or none are wanted. */
static void json_digests_only(struct json *j)
{
	char reason[512];
	uint32_t since;

	json_key(j, "digests_only");
	if (!store_digests_only(session_store(), &since, reason, sizeof(reason))) {
		if (!options.contents.none) {
			json_null(j);
			return;
		}
		since = 0;
		snprintf(reason, sizeof(reason), "recorded with --contents none");
	}
	json_open(j, '{');
	json_member_u64(j, "since", since);
	json_member_string(j, "reason", reason);
	json_close(j, '}');
}

static void json_ring(struct json *j)
{
	struct session_ring ring = session_ring();

	json_member_open(j, "ring", '{');
	json_member_u64(j, "bytes", ring.bytes);
	json_member_string(j, "memory", ring.memory);
	json_close(j, '}');
}

static void json_counters(struct json *j)
{
	json_member_open(j, "counters", '{');
	json_member_u64(j, "events", events_count());
	json_member_u64(j, "events_lost", events_lost());
	json_member_u64(j, "annotations", nvtx_count());
	json_member_u64(j, "epochs", session_counters.epochs);
	json_member_u64(j, "epochs_refused", session_counters.epochs_refused);
	json_member_u64(j, "epochs_dropped", session_counters.epochs_dropped);
	json_member_u64(j, "bytes_read", session_counters.bytes_read);
	json_member_u64(j, "bytes_changed", session_counters.bytes_changed);
	json_member_u64(j, "bytes_stored", session_counters.bytes_stored);
	json_close(j, '}');
}

static void json_threads(struct json *j)
{
	struct recorder_thread_cost costs[RECORDER_THREAD_NAMES];
	unsigned n = recorder_threads_cost(costs);

	json_member_open(j, "threads", '[');
	for (unsigned i = 0; i < n; i++) {
		json_open(j, '{');
		json_member_string(j, "name", costs[i].name);
		json_member_u64(j, "count", costs[i].count);
		json_member_u64(j, "cpu_ns", costs[i].cpu_ns);
		json_close(j, '}');
	}
	json_close(j, ']');
}

static void json_unknown_calls(struct json *j)
{
	const char *const *unknown;

	json_member_open(j, "unknown_calls", '[');
	for (unsigned i = 0, n = entry_unknown_calls(&unknown); i < n; i++)
		json_string(j, unknown[i]);
	json_close(j, ']');
}

void process_json_write(const char *status, const char *reason, bool ended)
{
	store *run = session_store();
	char cwd[4096];
	int driver = 0;
	struct json j;

	if (real.cuDriverGetVersion)
		real.cuDriverGetVersion(&driver);
	json_begin(&j, NULL, NULL);
	json_open(&j, '{');
	json_member_u64(&j, "process", store_process_index(run));
	json_member_u64(&j, "pid", (uint64_t)getpid());
	json_key(&j, "argv");
	json_arguments(&j);
	json_member_string(&j, "cwd", getcwd(cwd, sizeof(cwd)) ? cwd : "");
	json_key(&j, "rank");
	rank_json(&j);
	json_member_u64(&j, "started_ns", started_ns);
	json_clock(&j);
	json_key(&j, "ended_ns");
	if (ended)
		json_u64(&j, clock_real_ns());
	else
		json_null(&j);
	json_member_string(&j, "status", status);
	json_member_string(&j, "reason", reason);
	json_member_bool(&j, "deterministic", options.deterministic);
	json_member_u64(&j, "driver_version", (uint64_t)driver);
	json_key(&j, "devices");
	json_devices(&j);
	json_key(&j, "options");
	options_json(&j);
	json_key(&j, "timeline");
	timeline_json(&j);
	json_ring(&j);
	json_counters(&j);
	json_key(&j, "overhead");
	budget_json(&j);
	json_threads(&j);
	json_digests_only(&j);
	json_member_open(&j, "files", '{');
	store_files(run, &j);
	events_json(&j);
	params_json(&j);
	activities_json(&j);
	json_close(&j, '}');
	json_unknown_calls(&j);
	json_key(&j, "warnings");
	session_warnings_json(&j, false);
	json_key(&j, "losses");
	session_warnings_json(&j, true);
	json_key(&j, "incidents");
	crash_reports_json(&j);
	json_member_open(&j, "calls", '[');
	for (unsigned i = 0; i < CALL_COUNT; i++)
		json_string(&j, call_names[i]);
	json_close(&j, ']');
	json_close(&j, '}');
	if (json_text(&j))
		store_process(run, json_text(&j));
	else
		session_stopped("no host memory for process.json");
	json_free(&j);
}
