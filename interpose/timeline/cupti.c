/*
 * Converts records of CUPTI to activities. See cupti.h.
 *
 * CUPTI numbers the calls that it sees, and its records name these numbers. A callback within the
 * driver call notes which call of the program the thread is making. External correlation records do
 * not help: work of the runtime library has the number of the runtime's call, which began before
 * our wrapper.
 */
#define _GNU_SOURCE
#include "timeline/cupti.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "capture/kernels.h"
#include "entry/entry.h"
#include "store/activities.h"
#include "session/session.h"
#include "util/clock.h"
#include "track/streams.h"
#include "track/thread.h"
#include "cupti_abi.h"
#include "timeline/timeline.h"

#define BUFFER ((size_t)4 << 20)
#define KEPT 4                   /* buffers for later requests */
#define KNOWN ((size_t)1 << 19)  /* call numbers that are remembered */
#define CALLBACKS 4096            /* upper bound of the driver calls with callbacks */
#define PROBES 8
#define PROBE_BYTES 4096
#define PROBE_NS 5000000
#define FIRST_PROBE (UINT64_MAX - PROBES) /* not the number of any call */
#define OWN (FIRST_PROBE - 1)             /* nor this */
#define FORGOTTEN (OWN - 1)               /* nor this: a later call has its place */
#define ABSURD_NS 1000000 /* larger errors of the clock are not reported */
#define CONTEXTS 16

static struct {
#define X(name, params) CUptiResult(*name) params;
	CUPTI_TABLE(X)
#undef X
} cupti;

/* Not that of waits: once it is enabled, each call of the runtime library takes some 0.4 us more. */
static const uint32_t kinds[] = {CUPTI_CONCURRENT_KERNEL, CUPTI_MEMCPY, CUPTI_MEMCPY_PEER, CUPTI_MEMSET};
#define KINDS (sizeof(kinds) / sizeof(*kinds))

/* Written by callbacks in threads of the program; a reader checks that it did not change meanwhile. */
struct known {
	_Atomic uint32_t correlation;
	uint64_t seq, time_ns;
};

static struct {
	pthread_mutex_t lock; /* guards the following members */
	struct known *calls;
	void *subscriber;
	uint64_t early; /* most time by which an activity began before its call */
	struct {
		uint64_t before, after; /* recorder's clock around the probe */
		uint64_t begin, end;    /* CUPTI's times */
	} probes[PROBES]; /* since the last flush */
} records = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- records ---- */

static uint32_t context_index(uint32_t id)
{
	static struct {
		uint32_t id, index;
	} seen[CONTEXTS];
	static unsigned count;
	uint32_t of;

	for (unsigned i = 0; i < count; i++)
		if (seen[i].id == id)
			return seen[i].index;
	for (struct context *c = context_first(); c; c = c->next)
		if (c->alive && cupti.cuptiGetContextId(c->handle, &of) == CUPTI_SUCCESS && of == id) {
			if (count < CONTEXTS)
				seen[count].id = id, seen[count++].index = c->index;
			return c->index;
		}
	return TT_NO_ID;
}

static bool is_probe(uint64_t seq)
{
	return seq >= FIRST_PROBE && seq < FIRST_PROBE + PROBES;
}

static struct known call_of(uint32_t correlation)
{
	struct known *k = &records.calls[correlation % KNOWN], copy;

	copy.correlation = atomic_load_explicit(&k->correlation, memory_order_acquire);
	copy.seq = __atomic_load_n(&k->seq, __ATOMIC_RELAXED);
	copy.time_ns = __atomic_load_n(&k->time_ns, __ATOMIC_RELAXED);
	atomic_thread_fence(memory_order_acquire);
	uint32_t now = atomic_load_explicit(&k->correlation, memory_order_relaxed);
	if (copy.correlation == correlation && now == correlation)
		return copy;
	return (struct known){.seq = now && (int32_t)(now - correlation) > 0 ? FORGOTTEN : 0};
}

/* In the thread that makes the call. */
static void note_call(void *user, uint32_t domain, uint32_t id, const struct cupti_call *call)
{
	struct known *k = &records.calls[call->correlation % KNOWN];
	static _Atomic uint32_t asked;

	(void)user;
	(void)domain;
	(void)id;
	if (call->site != CUPTI_ENTER)
		return;
	atomic_store_explicit(&k->correlation, 0, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	__atomic_store_n(&k->seq, thread_self.busy && !thread_self.submits_for ? OWN : thread_self.submits_for,
			 __ATOMIC_RELAXED);
	__atomic_store_n(&k->time_ns, clock_ns(), __ATOMIC_RELAXED);
	atomic_store_explicit(&k->correlation, call->correlation, memory_order_release);
	if (unlikely(call->correlation - atomic_load_explicit(&asked, memory_order_relaxed) > KNOWN / 4)) {
		atomic_store_explicit(&asked, call->correlation, memory_order_relaxed);
		timeline_wake(); /* before they are forgotten */
	}
}

static void take(struct tt_activity *a, uint32_t correlation)
{
	struct known k = call_of(correlation);
	uint64_t before = k.time_ns > a->begin_ns ? k.time_ns - a->begin_ns : 0;

	if (is_probe(k.seq)) {
		if (a->kind == TT_EVENT_SET) {
			records.probes[k.seq - FIRST_PROBE].begin = a->begin_ns;
			records.probes[k.seq - FIRST_PROBE].end = a->end_ns;
		}
		return;
	}
	if (k.seq == OWN) {
		a->flags |= TT_ACTIVITYF_OWN;
		k.seq = 0;
	}
	if (k.seq == FORGOTTEN) {
		timeline_missed(1);
		return;
	}
	if (before > ABSURD_NS || a->end_ns < a->begin_ns) {
		timeline_missed(1);
		return;
	}
	records.early = before > records.early ? before : records.early;
	a->seq = k.seq;
	if (!activities_add(a))
		timeline_missed(1);
}

/* Whether it is a kernel of epochs inside graphs, which a launch of the program runs. */
static bool is_own(const struct cupti_kernel *k)
{
	return k->node && k->name && !strncmp(k->name, TT_KERNELS, sizeof(TT_KERNELS) - 1);
}

static void take_kernel(const struct cupti_kernel *k)
{
	take(
		&(struct tt_activity){
			.kind = TT_EVENT_LAUNCH,
			.flags = is_own(k) ? TT_ACTIVITYF_OWN : 0,
			.begin_ns = k->start,
			.end_ns = k->end,
			.node = k->node,
			.device = k->device,
			.context = context_index(k->context),
			.name = k->name ? store_string(session_store(), k->name) : TT_NO_ID,
		},
		k->correlation);
}

static void take_transfer(const struct cupti_transfer *t)
{
	bool peer = t->kind == CUPTI_MEMCPY_PEER;

	take(
		&(struct tt_activity){
			.kind = t->kind == CUPTI_MEMSET ? TT_EVENT_SET : TT_EVENT_COPY,
			.begin_ns = t->start,
			.end_ns = t->end,
			.bytes = t->bytes,
			.node = peer ? t->node_peer : t->node,
			.device = t->device,
			.context = context_index(t->context),
			.name = TT_NO_ID,
		},
		peer ? t->correlation_peer : t->correlation);
}

static void take_record(const struct cupti_record *r)
{
	switch (r->kind) {
	case CUPTI_KERNEL:
	case CUPTI_CONCURRENT_KERNEL:
		take_kernel((const struct cupti_kernel *)r);
		break;
	case CUPTI_MEMCPY:
	case CUPTI_MEMCPY_PEER:
	case CUPTI_MEMSET:
		take_transfer((const struct cupti_transfer *)r);
		break;
	}
}

/*
 * Requests come in threads of the program, which CUPTI would have zero each buffer. So buffers are used again, and
 * zeroed where they are read.
 */
static struct {
	pthread_mutex_t lock;
	uint8_t *free[KEPT];
	unsigned count;
} buffers = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint8_t *take_buffer(void)
{
	pthread_mutex_lock(&buffers.lock);
	uint8_t *buffer = buffers.count ? buffers.free[--buffers.count] : NULL;
	pthread_mutex_unlock(&buffers.lock);
	return buffer;
}

static void give_back(uint8_t *buffer, size_t size)
{
	memset(buffer, 0, size);
	pthread_mutex_lock(&buffers.lock);
	if (buffers.count < KEPT) {
		buffers.free[buffers.count++] = buffer;
		buffer = NULL;
	}
	pthread_mutex_unlock(&buffers.lock);
	free(buffer);
}

static void set_zeroed(uint8_t zeroed)
{
	size_t size = sizeof(zeroed);

	cupti.cuptiActivitySetAttribute(CUPTI_ZEROED_BUFFERS, &size, &zeroed); /* else CUPTI zeroes them too */
}

static void request(uint8_t **buffer, size_t *size, size_t *most)
{
	int error = errno;

	if (!(*buffer = take_buffer()))
		*buffer = calloc(1, BUFFER);
	*size = *buffer ? BUFFER : 0;
	if (!*buffer)
		session_lost("times were lost: no host memory");
	*most = 0;
	errno = error;
}

static void complete(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t used)
{
	struct thread *t = thread_current();
	struct cupti_record *r = NULL;
	int error = errno;
	size_t dropped = 0;

	t->busy++;
	pthread_mutex_lock(&records.lock);
	while (records.calls && cupti.cuptiActivityGetNextRecord(buffer, used, &r) == CUPTI_SUCCESS)
		take_record(r);
	pthread_mutex_unlock(&records.lock);
	if (cupti.cuptiActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS && dropped)
		timeline_missed(dropped);
	give_back(buffer, size);
	t->busy--;
	errno = error;
}

/* ---- the clock ---- */

static uint64_t now(void)
{
	return clock_ns();
}

/* CUPTI's default clock, restored for its next user. */
static uint64_t system_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* A probe ran between its submission and the end of the wait for it: reports how far CUPTI's times are off. */
static void report_clock(void)
{
	int64_t least = INT64_MIN, most = INT64_MAX;

	timeline_clock_error(records.early);
	for (unsigned i = 0; i < PROBES; i++) {
		if (records.probes[i].end && records.probes[i].after) {
			int64_t late = (int64_t)(records.probes[i].end - records.probes[i].after);
			int64_t soon = (int64_t)(records.probes[i].begin - records.probes[i].before);
			least = late > least ? late : least;
			most = soon < most ? soon : most;
		}
		records.probes[i].end = records.probes[i].after = 0;
	}
	if (least == INT64_MIN)
		return;
	least = least < 0 ? -least : least;
	most = most < 0 ? -most : most;
	timeline_clock_error((uint64_t)(least > most ? least : most));
}

/* The resources of probes in one context; destroyed with it. */
static struct {
	const struct context *context;
	CUdeviceptr memory;
	CUstream stream;
	pthread_mutex_t lock;
} probing = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool prepare(const struct context *c)
{
	void *host;

	if (probing.context)
		return probing.context == c && probing.stream;
	probing.context = c;
	return real.cuMemHostAlloc(&host, PROBE_BYTES, CU_MEMHOSTALLOC_DEVICEMAP) == CUDA_SUCCESS &&
	       real.cuMemHostGetDevicePointer_v2(&probing.memory, host, 0) == CUDA_SUCCESS &&
	       real.cuStreamCreateWithPriority(&probing.stream, CU_STREAM_NON_BLOCKING, 0) == CUDA_SUCCESS;
}

/* False: timeout; the program may keep the device busy for long. */
static bool done_by(uint64_t until)
{
	CUresult r;

	while ((r = real.cuStreamQuery(probing.stream)) == CUDA_ERROR_NOT_READY && clock_ns() < until)
		;
	return r == CUDA_SUCCESS;
}

/* Caller holds the lock. */
static void probe(const struct context *c)
{
	struct thread *t = thread_current();
	uint64_t until = clock_ns() + PROBE_NS;

	for (unsigned i = 0; prepare(c) && i < PROBES && done_by(until); i++) {
		t->submits_for = FIRST_PROBE + i;
		uint64_t before = clock_ns();
		bool done = real.cuMemsetD8Async(probing.memory, 0, 1, probing.stream) == CUDA_SUCCESS && done_by(until);
		uint64_t after = clock_ns();
		t->submits_for = 0;
		pthread_mutex_lock(&records.lock);
		if (done)
			records.probes[i].before = before, records.probes[i].after = after;
		pthread_mutex_unlock(&records.lock);
	}
}

void cupti_probe(const struct context *c)
{
	pthread_mutex_lock(&probing.lock);
	probe(c);
	pthread_mutex_unlock(&probing.lock);
}

void cupti_context_ends(const struct context *c)
{
	pthread_mutex_lock(&probing.lock);
	if (!probing.context || probing.context == c) {
		probe(c);
		probing.context = NULL;
		probing.stream = NULL;
	}
	pthread_mutex_unlock(&probing.lock);
}

/* ---- on and off ---- */

/* By name, because numbers of calls depend on the version. */
static bool is_of_interest(const char *name)
{
	static const char *const beginnings[] = {"cuLaunch", "cuGraphLaunch", "cuMemcpy", "cuMemset", "cuMemBatch"};

	for (size_t i = 0; i < sizeof(beginnings) / sizeof(*beginnings); i++)
		if (!strncmp(name, beginnings[i], strlen(beginnings[i])))
			return true;
	return false;
}

static CUptiResult watch_calls(void)
{
	CUptiResult r = CUPTI_SUCCESS;
	const char *name;

	for (uint32_t id = 1; r == CUPTI_SUCCESS && id < CALLBACKS; id++)
		if (cupti.cuptiGetCallbackName(CUPTI_DRIVER_API, id, &name) == CUPTI_SUCCESS && name && is_of_interest(name))
			r = cupti.cuptiEnableCallback(1, records.subscriber, CUPTI_DRIVER_API, id);
	return r;
}

static const char *turn_on(void)
{
	static char reason[60];
	uint32_t version = 0;

	if (cupti.cuptiGetVersion(&version) != CUPTI_SUCCESS || version < CUPTI_OLDEST)
		return "this CUPTI is older than CUDA 12";
	CUptiResult r = cupti.cuptiSubscribe(&records.subscriber, note_call, NULL);
	if (r != CUPTI_SUCCESS)
		records.subscriber = NULL;
	if (r == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS)
		return "CUPTI is in use by the program or by another tool";
	if (r == CUPTI_SUCCESS)
		r = watch_calls();
	if (r == CUPTI_SUCCESS)
		r = cupti.cuptiActivityRegisterTimestampCallback(now);
	set_zeroed(1);
	if (r == CUPTI_SUCCESS)
		r = cupti.cuptiActivityRegisterCallbacks(request, complete);
	for (size_t i = 0; r == CUPTI_SUCCESS && i < KINDS; i++)
		r = cupti.cuptiActivityEnable(kinds[i]);
	if (r == CUPTI_SUCCESS)
		return NULL;
	snprintf(reason, sizeof(reason), "CUPTI fails with error %d", r);
	cupti_close();
	return reason;
}

const char *cupti_open(void)
{
	void *library = cupti_find_library();
	bool all = true;

	if (!library)
		return "no CUPTI of this driver's version (libcupti.so of the CUDA toolkit, or nvidia-cuda-cupti)";
#define X(name, params) \
	*(void **)&cupti.name = dlsym(library, #name); \
	all = all && cupti.name;
	CUPTI_TABLE(X)
#undef X
	if (!all)
		return "this CUPTI lacks functions";
	records.calls = calloc(KNOWN, sizeof(*records.calls));
	return records.calls ? turn_on() : "no host memory for CUPTI's records";
}

static void flush(uint32_t flags)
{
	cupti.cuptiActivityFlushAll(flags);
	pthread_mutex_lock(&records.lock);
	report_clock();
	pthread_mutex_unlock(&records.lock);
}

void cupti_flush(void)
{
	flush(0);
}

void cupti_set_clock(void)
{
	cupti.cuptiActivityRegisterTimestampCallback(now);
}

void cupti_close(void)
{
	if (records.subscriber)
		cupti.cuptiUnsubscribe(records.subscriber);
	records.subscriber = NULL;
	for (size_t i = 0; i < KINDS; i++)
		cupti.cuptiActivityDisable(kinds[i]);
	flush(CUPTI_FLUSH_FORCED);
	set_zeroed(0); /* for the next user of CUPTI */
	for (uint8_t *buffer; (buffer = take_buffer());)
		free(buffer);
	cupti.cuptiActivityRegisterTimestampCallback(system_now); /* last: earlier records use the previous callback */
}

void cupti_forget(void)
{
	pthread_mutex_init(&records.lock, NULL);
	pthread_mutex_init(&probing.lock, NULL);
	pthread_mutex_init(&buffers.lock, NULL);
	buffers.count = 0;
	records.calls = NULL; /* the records are the parent's */
}
