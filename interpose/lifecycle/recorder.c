/*
 * Beginning, failing and ending. See recorder.h for the invariant.
 */
#include "lifecycle/recorder.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "capture/capture.h"
#include "capture/graph_epochs.h"
#include "capture/controls.h"
#include "delay/calls.h"
#include "delay/points.h"
#include "store/activities.h"
#include "store/compress.h"
#include "capture/drain.h"
#include "store/events.h"
#include "store/file.h"
#include "util/json_writer.h"
#include "store/params.h"
#include "lifecycle/exit_hooks.h"
#include "lifecycle/crash_report.h"
#include "nvtx/nvtx.h"
#include "options/options.h"
#include "util/clock.h"
#include "callstack/stacks.h"
#include "arena/arena.h"
#include "track/graphs.h"
#include "track/modules.h"
#include "track/regions.h"
#include "timeline/timeline.h"

#define WARNINGS 32
#define PATIENT_S 30
#define HURRIED_S 1
#define FINISH_MS 5000 /* as long as a thread waits for another that finishes */

HOT_DATA _Atomic int recorder_state;
struct recorder_counters recorder_counters;

static store *_Atomic run;
static _Alignas(64) _Atomic uint64_t last_seq; /* a line to itself: every call writes it */
static _Atomic uint32_t next_epoch;
static char warnings[WARNINGS][256];
static unsigned warning_count;
static uint64_t of_losses; /* which of them, a bit each */
_Static_assert(WARNINGS <= 64, "a bit for each");
static char failure[256]; /* once it is there it stays as it is */
static _Atomic bool has_failed;
static uint64_t ring_bytes, started_ns;
static const char *ring_place = "none";
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;

static struct stat error_output; /* the one that the program was started with */

/* A file of the program's own that came to have the number is none of ours to write to. */
static bool has_error_output(void)
{
	struct stat now;

	return error_output.st_ino && !fstat(STDERR_FILENO, &now) && now.st_dev == error_output.st_dev &&
	       now.st_ino == error_output.st_ino;
}

void recorder_say(const char *lines, size_t size)
{
	if (has_error_output() && write(STDERR_FILENO, lines, size) < 0)
		return; /* a program without stderr is not told */
}

static void say(const char *text)
{
	char line[320];
	int n = snprintf(line, sizeof(line), "ttanalyze: %s\n", text);

	recorder_say(line, (size_t)n);
}

static uint64_t real_time(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void warn(bool lost, const char *format, va_list args)
{
	char text[256];
	bool fresh = true;

	if (capture_hurried())
		return; /* what is cut short now has one reason, which is told */
	vsnprintf(text, sizeof(text), format, args);
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < warning_count; i++)
		fresh &= strcmp(warnings[i], text) != 0;
	fresh &= warning_count < WARNINGS;
	if (fresh) {
		of_losses |= (uint64_t)lost << warning_count;
		strcpy(warnings[warning_count++], text);
	}
	pthread_mutex_unlock(&lock);
	if (fresh)
		say(text);
}

void recorder_warn(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	warn(false, format, args);
	va_end(args);
}

void recorder_lost(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	warn(true, format, args);
	va_end(args);
}

/* The first reason is the one that the run and the user are told. */
static void stopped(const char *text)
{
	char line[300];

	pthread_mutex_lock(&lock);
	bool first = !has_failed;
	if (first)
		snprintf(failure, sizeof(failure), "%s", text);
	has_failed = true;
	pthread_mutex_unlock(&lock);
	snprintf(line, sizeof(line), "recording stopped: %s", text);
	if (first)
		say(line);
}

void recorder_fail(const char *format, ...)
{
	int was = RECORDER_ON;
	char text[256];
	va_list args;

	if (capture_hurried())
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (atomic_compare_exchange_strong(&recorder_state, &was, RECORDER_STOPPED) || was == RECORDER_UNDECIDED)
		stopped(text);
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
		json_key(j, "ordinal");
		json_u64(j, (uint64_t)c->device);
		json_key(j, "name");
		json_string(j, c->device_name);
		json_key(j, "memory");
		json_u64(j, c->device_memory);
		json_key(j, "capability");
		json_u64(j, (uint64_t)c->device_capability);
		json_close(j, '}');
	}
	json_close(j, ']');
}

static void counter(struct json *j, const char *key, uint64_t value)
{
	json_key(j, key);
	json_u64(j, value);
}

/* Where there is no room for contents. */
static void json_digests_only(struct json *j)
{
	char reason[512];
	uint32_t since;

	json_key(j, "digests_only");
	if (!store_digests_only(run, &since, reason, sizeof(reason))) {
		json_null(j);
		return;
	}
	json_open(j, '{');
	counter(j, "since", since);
	json_key(j, "reason");
	json_string(j, reason);
	json_close(j, '}');
}

static void json_warnings(struct json *j, const char *key, uint64_t which)
{
	json_key(j, key);
	json_open(j, '[');
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < warning_count; i++)
		if (which >> i & 1)
			json_string(j, warnings[i]);
	pthread_mutex_unlock(&lock);
	json_close(j, ']');
}

static void write_process(const char *status, const char *reason, bool ended)
{
	const char *const *unknown;
	char cwd[4096];
	int driver = 0;
	struct json j;

	if (real.cuDriverGetVersion)
		real.cuDriverGetVersion(&driver);
	json_begin(&j, NULL, NULL);
	json_open(&j, '{');
	counter(&j, "process", store_process_index(run));
	counter(&j, "pid", (uint64_t)getpid());
	json_key(&j, "argv");
	json_arguments(&j);
	json_key(&j, "cwd");
	json_string(&j, getcwd(cwd, sizeof(cwd)) ? cwd : "");
	counter(&j, "started_ns", started_ns);
	json_key(&j, "ended_ns");
	if (ended)
		json_u64(&j, real_time());
	else
		json_null(&j);
	json_key(&j, "status");
	json_string(&j, status);
	json_key(&j, "reason");
	json_string(&j, reason);
	json_key(&j, "deterministic");
	json_bool(&j, options.deterministic);
	counter(&j, "driver_version", (uint64_t)driver);
	json_key(&j, "devices");
	json_devices(&j);
	json_key(&j, "options");
	options_json(&j);
	json_key(&j, "timeline");
	timeline_json(&j);
	json_key(&j, "ring");
	json_open(&j, '{');
	pthread_mutex_lock(&lock);
	counter(&j, "bytes", ring_bytes);
	json_key(&j, "place");
	json_string(&j, ring_place);
	pthread_mutex_unlock(&lock);
	json_close(&j, '}');
	json_key(&j, "counters");
	json_open(&j, '{');
	counter(&j, "events", events_count());
	counter(&j, "events_lost", events_lost());
	counter(&j, "annotations", nvtx_count());
	counter(&j, "epochs", recorder_counters.epochs);
	counter(&j, "epochs_refused", recorder_counters.epochs_refused);
	counter(&j, "epochs_dropped", recorder_counters.epochs_dropped);
	counter(&j, "bytes_read", recorder_counters.bytes_read);
	counter(&j, "bytes_changed", recorder_counters.bytes_changed);
	counter(&j, "bytes_stored", recorder_counters.bytes_stored);
	json_close(&j, '}');
	json_digests_only(&j);
	json_key(&j, "files");
	json_open(&j, '{');
	store_files(run, &j);
	events_json(&j);
	params_json(&j);
	activities_json(&j);
	json_close(&j, '}');
	json_key(&j, "unknown_calls");
	json_open(&j, '[');
	for (unsigned i = 0, n = entry_unknown_calls(&unknown); i < n; i++)
		json_string(&j, unknown[i]);
	json_close(&j, ']');
	json_warnings(&j, "warnings", UINT64_MAX);
	json_warnings(&j, "losses", of_losses);
	json_key(&j, "incidents");
	incidents_json(&j);
	json_key(&j, "calls");
	json_open(&j, '[');
	for (unsigned i = 0; i < CALL_COUNT; i++)
		json_string(&j, call_names[i]);
	json_close(&j, ']');
	json_close(&j, '}');
	if (json_text(&j))
		store_process(run, json_text(&j));
	else
		stopped("no host memory for process.json");
	json_free(&j);
}

/* The environment, the working directory and the error output are those the program was started with. */
static char options_error[300];

__attribute__((constructor)) static void read_options(void)
{
	if (fstat(STDERR_FILENO, &error_output))
		error_output.st_ino = 0;
	if (!options_read(options_error, sizeof(options_error)))
		return;
	if (!*options.out)
		atomic_store(&recorder_state, RECORDER_OFF);
	nvtx_announce();
}

static bool start_parts(void)
{
	char error[300] = "";

	write_process("running", NULL, false);
	if (has_failed)
		return false;
	if (store_failed(run, error, sizeof(error)))
		recorder_fail("%s", error);
	else if (entry_lacks())
		recorder_fail("this driver is too old: it has no %s", entry_lacks());
	else if (options.events && !events_open(store_folder(run), error, sizeof(error)))
		recorder_fail("%s", error);
	else if (options.callstacks && !stacks_open())
		recorder_fail("no host memory for call stacks");
	else if (options.params && !params_open(store_folder(run), error, sizeof(error)))
		recorder_fail("%s", error);
	else if (!timeline_open(store_folder(run), error, sizeof(error)))
		recorder_fail("%s", error);
	else if (!drain_start())
		recorder_fail("no thread for the drain");
	else {
		ending_watch();
		return true;
	}
	return false;
}

/* The driver calls this within cuInit where CUDA_INJECTION64_PATH names us, and ignores the result. */
EXPORT int InitializeInjection(void)
{
	const char *closed = NULL;

	if (recorder_state == RECORDER_UNDECIDED && !entry_preloaded())
		closed = entry_inject();
	if (closed)
		recorder_fail("this program runs without LD_PRELOAD, and the way in through the driver is closed: %s", closed);
	return 1;
}

static bool start(void)
{
	char error[300] = "";

	if (*options_error) {
		recorder_fail("%s", options_error);
		return false;
	}
	bool compress = options.compress && compress_open();
	store_config config = {options.out, options.deterministic, options.retain, compress ? (int)options.compress : 0,
			       options.max_disk};
	run = store_open(&config, error, sizeof(error));
	if (!run) {
		recorder_fail("%s", error);
		return false;
	}
	if (options.compress && !compress)
		recorder_warn("there is no libzstd.so.1: contents are stored as they are");
	started_ns = real_time();
	gate_init();
	delays_open();
	controls_begin();
	if (start_parts()) {
		if (controls.text)
			controls_note();
		return true;
	}
	events_close();
	params_close();
	timeline_close();
	write_process("failed", failure, true);
	store_close(run);
	return false;
}

bool recorder_start(void)
{
	CUcontext current = NULL;
	struct thread *t = thread_current();
	int undecided = RECORDER_UNDECIDED;

	if (t->busy || !entry_resolve() || !real.cuCtxGetCurrent)
		return false;
	CUresult r = real.cuCtxGetCurrent(&current);
	if (r != CUDA_SUCCESS && r != CUDA_ERROR_NOT_INITIALIZED && r != CUDA_ERROR_DEINITIALIZED &&
	    atomic_compare_exchange_strong(&recorder_state, &undecided, RECORDER_OFF))
		stopped(CONTEXT_UNKNOWN);
	if (r != CUDA_SUCCESS || !current)
		return false;
	pthread_mutex_lock(&start_lock);
	t->busy++;
	bool first = recorder_state == RECORDER_UNDECIDED;
	if (first)
		atomic_store(&recorder_state, start() ? RECORDER_ON : RECORDER_OFF);
	t->busy--;
	pthread_mutex_unlock(&start_lock);
	if (first && recorder_state == RECORDER_ON)
		modules_begin();
	if (first)
		nvtx_recording_begins();
	return recorder_state == RECORDER_ON;
}

void recorder_note(void)
{
	write_process(has_failed ? "failed" : "running", has_failed ? failure : NULL, false);
}

/* How long the program's end may take for reading files again. */
static void be_patient(bool hurried)
{
	file_set_patience(clock_ns() + (hurried ? HURRIED_S : PATIENT_S) * UINT64_C(1000000000));
}

void recorder_finish(const char *status, const char *reason)
{
	static _Atomic bool begun, done;
	struct thread *t = thread_current();
	int on = RECORDER_ON;
	char why[256];

	if (!run)
		return;
	if (reason && !has_failed)
		write_process(status, reason, true); /* what comes now may not come to its end */
	thread_calls(t, 1); /* a signal does not hold this thread up */
	atomic_store(&t->call, TT_NO_ID);
	if (atomic_exchange(&begun, true)) {
		for (unsigned ms = 0; !done && ms < FINISH_MS; ms++)
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		thread_calls(t, -1);
		return;
	}
	for (struct context *c = context_first(); c && recorder_state == RECORDER_ON; c = c->next) {
		CUcontext popped;
		if (!c->alive || real.cuCtxPushCurrent_v2(c->handle) != CUDA_SUCCESS)
			continue;
		capture_end(t, c, !reason, true);
		real.cuCtxPopCurrent_v2(&popped);
	}
	t->busy++;
	be_patient(reason != NULL);
	delays_close();
	delays_write(store_folder(run));
	timeline_close();
	drain_stop();
	atomic_compare_exchange_strong(&recorder_state, &on, RECORDER_OFF);
	be_patient(reason != NULL);
	events_close();
	params_close();
	graphs_close();
	store_seal(run);
	if (store_failed(run, why, sizeof(why)))
		stopped(why);
	if (!has_failed && events_failed(why, sizeof(why)))
		recorder_lost("events were lost: %s", why);
	if (!has_failed && params_failed(why, sizeof(why)))
		recorder_lost("parameters of launches were lost: %s", why);
	if (!has_failed && store_texts_lost(run))
		recorder_lost(store_texts_lost(run) == ENOMEM ? NAMES_LOST : "names were lost: strings.bin is full");
	if (!has_failed && activities_failed(why, sizeof(why)))
		recorder_lost("times were lost: %s", why);
	if (has_failed)
		write_process("failed", failure, true);
	else
		write_process(status, reason, true);
	store_close(run);
	if (store_failed(run, why, sizeof(why)))
		stopped(why); /* not in the run, which could not be written to its end */
	t->busy--;
	thread_calls(t, -1);
	done = true;
}

void recorder_forget(void)
{
	if (!run)
		return;
	events_forget();
	params_forget();
	timeline_forget();
	delays_forget();
	points_forget();
	memory_forget();
	stacks_forget();
	graphs_forget();
	store_forget(run);
	drain_forget();
	regions_forget_all();
	arena_forget();
	thread_forget_all();
	run = NULL;
	atomic_store(&recorder_state, RECORDER_OFF);
}

store *recorder_store(void)
{
	return run;
}

uint64_t recorder_last_seq(void)
{
	return atomic_load_explicit(&last_seq, memory_order_relaxed);
}

HOT uint64_t recorder_next_seq(void)
{
	return atomic_fetch_add_explicit(&last_seq, 1, memory_order_relaxed) + 1;
}

uint32_t recorder_next_epoch(void)
{
	return atomic_load(&next_epoch);
}

void recorder_set_next_epoch(uint32_t number)
{
	atomic_store(&next_epoch, number);
}

void recorder_region(struct tt_region *record)
{
	if (options.deterministic)
		record->time_ns = 0;
	store_region(run, record);
}

void recorder_region_gone(struct region *r)
{
	capture_region_gone(r);
}

void recorder_ring(uint64_t bytes, const char *place)
{
	pthread_mutex_lock(&lock);
	ring_bytes = bytes;
	ring_place = place;
	pthread_mutex_unlock(&lock);
}
