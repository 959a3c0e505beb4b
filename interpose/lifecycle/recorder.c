/*
 * Starts, fails and ends the recording. See recorder.h for the invariant.
 */
#include "lifecycle/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "callstack/python_names.h"
#include "capture/arrays.h"
#include "capture/budget.h"
#include "capture/capture.h"
#include "capture/graph_epochs.h"
#include "capture/controls.h"
#include "delay/calls.h"
#include "delay/points.h"
#include "instrument/instrument.h"
#include "store/activities.h"
#include "store/compress.h"
#include "capture/drain.h"
#include "store/events.h"
#include "store/file.h"
#include "store/params.h"
#include "entry/entry.h"
#include "lifecycle/crash_report.h"
#include "lifecycle/exit_hooks.h"
#include "lifecycle/process_json.h"
#include "nvtx/nvtx.h"
#include "options/options.h"
#include "options/rank.h"
#include "util/clock.h"
#include "util/recorder_thread.h"
#include "callstack/stacks.h"
#include "arena/arena.h"
#include "inspect/contexts.h"
#include "inspect/graphs.h"
#include "track/copy_sources.h"
#include "track/modules.h"
#include "track/regions.h"
#include "session/session.h"
#include "timeline/timeline.h"

#define PATIENT_S 30
#define HURRIED_S 1
#define FINISH_MS 5000 /* longest wait of a thread for another that finishes the run */

static struct {
	pthread_mutex_t start_lock;
	char options_error[300];
	_Atomic bool ending, ended;
} recorder = {.start_lock = PTHREAD_MUTEX_INITIALIZER};

/* Later, the program may have changed its environment, working directory and stderr. */
__attribute__((constructor)) static void read_options(void)
{
	session_take_stderr();
	if (!options_read(recorder.options_error, sizeof(recorder.options_error)))
		return;
	if (!*options.out)
		atomic_store(&session_state, SESSION_OFF);
	nvtx_announce();
}

static bool start_parts(store *run)
{
	char error[300] = "";

	process_json_write("running", NULL, false);
	if (session_failure())
		return false;
	if (store_failed(run, error, sizeof(error)))
		session_fail("%s", error);
	else if (driver_lacks())
		session_fail("the driver is too old: it has no %s", driver_lacks());
	else if (options.events && !events_open(store_folder(run), error, sizeof(error)))
		session_fail("%s", error);
	else if (options.callstacks && !stacks_open())
		session_fail("no host memory for call stacks");
	else if (options.params && !params_open(store_folder(run), error, sizeof(error)))
		session_fail("%s", error);
	else if (!timeline_open(store_folder(run), error, sizeof(error)))
		session_fail("%s", error);
	else if (!drain_start())
		session_fail("cannot start the drain thread");
	else {
		ending_watch();
		return true;
	}
	return false;
}

static void call_kept(const char *call)
{
	session_warn("%s is made unchanged: CUPTI can't change calls", call);
}

static void enter_by_cupti(const char *stubs)
{
	char error[300] = "";
	const char *why = options_enter_by_cupti(error, sizeof(error)) ? entry_follow(call_kept) : error;

	if (why && stubs)
		session_fail("the program runs without LD_PRELOAD, and nothing else works: the driver's stubs: %s; CUPTI: %s",
			     stubs, why);
	else if (why)
		session_fail("CUPTI can't be the way in: %s", why);
	else if (stubs)
		session_warn("CUPTI reports the program's calls, without LD_PRELOAD: %s", stubs);
}

/* The driver calls this in cuInit if CUDA_INJECTION64_PATH names the recorder, and ignores the result. */
EXPORT int InitializeInjection(void)
{
	const char *closed;

	if (session_state != SESSION_UNDECIDED)
		return 1;
	if (entry_preloaded()) {
		if (options.entry > ENTRY_PRELOAD)
			session_fail("TT_ENTRY=stubs and TT_ENTRY=cupti need a program without the recorder in LD_PRELOAD");
	} else if (options.entry == ENTRY_PRELOAD) {
		session_fail("the program runs without LD_PRELOAD, and TT_ENTRY=preload allows nothing else");
	} else if (options.entry == ENTRY_CUPTI) {
		enter_by_cupti(NULL);
	} else if ((closed = entry_inject())) {
		if (options.entry == ENTRY_AUTO)
			enter_by_cupti(closed);
		else
			session_fail("the program runs without LD_PRELOAD, and driver injection is off: %s", closed);
	}
	return 1;
}

static void note_changes(void)
{
	process_json_write(session_failure() ? "failed" : "running", session_failure(), false);
}

static void say_without_rank(void)
{
	char line[400];
	int n = snprintf(line, sizeof(line), "ttanalyze: not recorded: --ranks %s, and no launcher gave process %ld a rank\n",
			 options.ranks, (long)getpid());

	session_say(line, (size_t)n);
}

static void place_threads(void)
{
	long most = sysconf(_SC_NPROCESSORS_CONF);
	cpu_set_t cores;
	bool wanted;

	CPU_ZERO(&cores);
	for (unsigned i = 0; *options.thread_cores && i < CPU_SETSIZE && i < most; i++)
		if (numbers_read(options.thread_cores, i, &wanted) && wanted)
			CPU_SET(i, &cores);
	if (*options.thread_cores && !CPU_COUNT(&cores))
		session_warn("--thread-cores %s: no such core; the recorder's threads run on any", options.thread_cores);
	recorder_threads_place(CPU_COUNT(&cores) ? &cores : NULL, options.thread_priority == THREADS_IDLE);
}

/* A process that lets go of the file may remove it as well, so nobody holds one that is gone. */
static void wait_until_let_go(void)
{
	int fd = *options.hold ? open(options.hold, O_RDONLY | O_CLOEXEC) : -1, r = fd < 0 ? -1 : 0;

	while (fd >= 0 && (r = flock(fd, LOCK_SH)) && errno == EINTR)
		;
	if (*options.hold && r && errno != ENOENT)
		session_warn("--hold %s: %s; recording begins at once", options.hold, strerror(errno));
	if (fd >= 0)
		close(fd);
}

static bool start(void)
{
	char error[300] = "";

	if (*recorder.options_error) {
		session_fail("%s", recorder.options_error);
		return false;
	}
	wait_until_let_go();
	rank_read();
	if (rank_is_left_out()) {
		if (!rank_of_process())
			say_without_rank();
		return false;
	}
	bool planes = options.compress == COMPRESS_DEVICE, zstd = options.compress && !planes, found = zstd && compress_open();
	store_config config = {
		options.out,           options.deterministic,
		options.retain,        planes ? TT_ENCODING_PLANES : found ? TT_ENCODING_ZSTD : TT_ENCODING_PLAIN,
		(int)options.compress, options.max_disk,
		rank_of_process()};
	store *run = store_open(&config, error, sizeof(error));
	if (!run) {
		session_fail("%s", error);
		return false;
	}
	session_set_store(run);
	session_listeners = (struct session_listeners){
		.region_gone = capture_region_gone,
		.captures_ended = capture_have_ended,
		.context_failed = crash_report_result,
		.epoch_stored = crash_report_epoch,
		.changed = note_changes,
	};
	if (zstd && !found)
		session_warn("libzstd.so.1 not found: contents are stored uncompressed");
	for (unsigned i = 0; *options_unknown[i]; i++)
		session_warn("%s", options_unknown[i]);
	graph_kernel_found = delays_look_for_clusters;
	process_json_begin();
	if (!driver_lacks())
		context_current(thread_current()); /* its device belongs into a process.json that a kill leaves behind */
	gate_init();
	place_threads();
	delays_open();
	controls_begin();
	if (start_parts(run)) {
		if (controls.text)
			controls_note();
		return true;
	}
	events_close();
	params_close();
	timeline_close();
	process_json_write("failed", session_failure(), true);
	store_close(run);
	return false;
}

bool recorder_start(void)
{
	CUcontext current = NULL;
	struct thread *t = thread_current();
	int undecided = SESSION_UNDECIDED;

	if (t->busy || !driver_resolve() || !real.cuCtxGetCurrent)
		return false;
	CUresult r = real.cuCtxGetCurrent(&current);
	if (r != CUDA_SUCCESS && r != CUDA_ERROR_NOT_INITIALIZED && r != CUDA_ERROR_DEINITIALIZED &&
	    atomic_compare_exchange_strong(&session_state, &undecided, SESSION_OFF))
		session_stopped(CONTEXT_UNKNOWN);
	if (r != CUDA_SUCCESS || !current)
		return false;
	pthread_mutex_lock(&recorder.start_lock);
	t->busy++;
	bool first = session_state == SESSION_UNDECIDED;
	if (first)
		atomic_store(&session_state, start() ? SESSION_ON : SESSION_OFF);
	t->busy--;
	pthread_mutex_unlock(&recorder.start_lock);
	if (first && session_state == SESSION_ON) {
		const char *why = options.names ? python_names_begin() : NULL;
		if (why)
			session_warn("%s", why);
		modules_begin();
	}
	if (first)
		nvtx_recording_begins();
	return session_state == SESSION_ON;
}

/* Limits how long the end of the program may take to read files again. */
static void be_patient(bool hurried)
{
	file_set_patience(clock_ns() + (hurried ? HURRIED_S : PATIENT_S) * UINT64_C(1000000000));
}

void recorder_finish(const char *status, const char *reason)
{
	struct thread *t = thread_current();
	store *run = session_store();
	int on = SESSION_ON;
	char why[256];

	if (!run)
		return;
	if (reason && !session_failure())
		process_json_write(status, reason, true); /* the following steps may hang */
	thread_calls(t, 1); /* a signal does not interrupt this thread */
	atomic_store(&t->call, TT_NO_ID);
	if (atomic_exchange(&recorder.ending, true)) {
		for (unsigned ms = 0; !recorder.ended && ms < FINISH_MS; ms++)
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		thread_calls(t, -1);
		return;
	}
	for (struct context *c = context_first(); c && session_state == SESSION_ON; c = c->next) {
		if (!c->alive || !capture_enter(c))
			continue;
		capture_end(t, c, !reason, true);
		context_pop();
	}
	if (controls_lack_names())
		session_warn("--regions named: no allocation had a name, so only snapshots have contents; name tensors, or "
			     "record without it");
	t->busy++;
	be_patient(reason != NULL);
	flights_close();
	delays_close();
	delays_write(store_folder(run));
	timeline_close();
	drain_stop();
	atomic_compare_exchange_strong(&session_state, &on, SESSION_OFF);
	be_patient(reason != NULL);
	events_close();
	params_close();
	graphs_close();
	store_seal(run);
	if (store_failed(run, why, sizeof(why)))
		session_stopped(why);
	if (!session_failure() && events_failed(why, sizeof(why)))
		session_lost("events were lost: %s", why);
	if (!session_failure() && params_failed(why, sizeof(why)))
		session_lost("parameters of launches were lost: %s", why);
	if (!session_failure() && store_texts_lost(run))
		session_lost(store_texts_lost(run) == ENOMEM ? NAMES_LOST : "names were lost: strings.bin is full");
	if (!session_failure() && activities_failed(why, sizeof(why)))
		session_lost("times were lost: %s", why);
	if (session_failure())
		process_json_write("failed", session_failure(), true);
	else
		process_json_write(status, reason, true);
	store_close(run);
	if (store_failed(run, why, sizeof(why)))
		session_stopped(why); /* not in the run, whose files could not be completed */
	t->busy--;
	thread_calls(t, -1);
	recorder.ended = true;
}

void recorder_forget(void)
{
	store *run = session_store();

	if (!run)
		return;
	events_forget();
	params_forget();
	timeline_forget();
	delays_forget();
	copy_sources_forget();
	arrays_forget();
	instrumentation_forget();
	instrument_forget();
	memory_forget();
	stacks_forget();
	graphs_forget();
	conditionals_forget();
	store_forget(run);
	drain_forget();
	budget_forget();
	recorder_threads_forget();
	regions_forget_all();
	arena_forget();
	thread_forget_all();
	session_set_store(NULL);
	atomic_store(&session_state, SESSION_OFF);
}
