/*
 * Delays threads and streams between calls. See calls.h for the invariant.
 *
 * A stream writes a word when it reaches a delay, and goes on when another word has the same
 * number.
 */
#include "delay/calls.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "capture/capture.h"
#include "inspect/contexts.h"
#include "options/options.h"
#include "session/session.h"
#include "util/clock.h"
#include "util/recorder_thread.h"
#include "delay/points.h"

#define SLOTS 4096
#define MOST_NS 2000000000u /* most total delay in a context's streams */
#define LOOK_NS 20000

/* Pinned memory: the stream writes one word, the recorder the other. */
struct slot {
	_Atomic uint32_t reached, released;
};

/* Delays in the streams of a context. */
struct delays {
	struct slot *slots; /* NULL: not available, or the context ends */
	CUdeviceptr device;
	unsigned used;
	uint16_t order[SLOTS]; /* slots, the used ones first */
	uint32_t number[SLOTS];
	uint32_t ns[SLOTS];
	uint64_t due[SLOTS]; /* 0: the stream has not reached the delay */
	struct delays *next;
};

/* The thread that releases streams, and its data. */
static struct {
	pthread_mutex_t lock; /* guards all members, and what they point to */
	pthread_cond_t changed;
	struct delays *all;
	bool running, closing;
} releaser = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void sleep_ns(uint64_t ns)
{
	struct timespec rest = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
	int before = errno;

	while (nanosleep(&rest, &rest) && errno == EINTR)
		;
	errno = before;
}

static void prepare(struct thread *t, struct context *c);

uint32_t delay_call(struct thread *t, struct stream *s, uint32_t may, uint32_t *ns, uint64_t *number)
{
	*number = atomic_fetch_add(&s->works, 1);
	uint32_t chosen = delay_chosen(s->id, *number, ns) & may;

	if (unlikely(!atomic_load(&s->context->delays)))
		prepare(t, s->context);
	if (chosen & TT_EVENTF_DELAYED)
		sleep_ns(*ns);
	return chosen;
}

/* ---- the releasing thread ---- */

static void let_go(struct delays *d, unsigned i)
{
	uint16_t slot = d->order[i];

	atomic_store(&d->slots[slot].released, d->number[slot]);
	d->order[i] = d->order[--d->used];
	d->order[d->used] = slot;
}

/* True: a stream has a delay ahead. */
static bool look(struct delays *d, uint64_t now, bool at_once)
{
	for (unsigned i = d->used; i-- > 0;) {
		uint16_t slot = d->order[i];
		if (!d->due[slot] && atomic_load(&d->slots[slot].reached) == d->number[slot])
			d->due[slot] = now + d->ns[slot];
		if (at_once || (d->due[slot] && now >= d->due[slot]))
			let_go(d, i);
	}
	return d->used > 0;
}

static void *work(void *unused)
{
	(void)unused;
	thread_current()->busy = 1;
	prctl(PR_SET_TIMERSLACK, 1);
	pthread_mutex_lock(&releaser.lock);
	for (;;) {
		bool any = false;
		uint64_t now = clock_ns();
		for (struct delays *d = releaser.all; d; d = d->next)
			any |= look(d, now, releaser.closing || session_hurried());
		if (releaser.closing)
			break;
		if (any) {
			pthread_mutex_unlock(&releaser.lock);
			sleep_ns(LOOK_NS);
			pthread_mutex_lock(&releaser.lock);
		} else {
			pthread_cond_wait(&releaser.changed, &releaser.lock);
		}
	}
	releaser.running = false;
	pthread_mutex_unlock(&releaser.lock);
	return NULL;
}

/* ---- resources of a context ---- */

static bool pinned(struct delays *d)
{
	void *host = NULL;

	if (real.cuMemHostAlloc(&host, SLOTS * sizeof(struct slot), CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE) !=
	    CUDA_SUCCESS)
		return false;
	if (real.cuMemHostGetDevicePointer_v2(&d->device, host, 0) != CUDA_SUCCESS) {
		real.cuMemFreeHost(host);
		return false;
	}
	memset(host, 0, SLOTS * sizeof(struct slot));
	d->slots = host;
	return true;
}

static struct delays *create(struct thread *t, struct context *c)
{
	struct delays *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	for (unsigned i = 0; i < SLOTS; i++)
		d->order[i] = (uint16_t)i;
	CUstreamCaptureMode mode = recorder_work_begin(t);
	if (context_push(c->handle)) {
		pinned(d);
		context_pop();
	}
	recorder_work_end(t, mode);
	if (!d->slots)
		session_warn("no pinned memory for delays: streams are not delayed");
	d->next = releaser.all;
	releaser.all = d;
	return d;
}

/* Before the program's first work, because allocating may wait for work. */
static void prepare(struct thread *t, struct context *c)
{
	pthread_mutex_lock(&releaser.lock);
	if (!releaser.running && !releaser.closing)
		releaser.running = !recorder_thread(NULL, "tt-delays", 0, work, NULL);
	if (!atomic_load(&c->delays))
		atomic_store(&c->delays, create(t, c));
	pthread_mutex_unlock(&releaser.lock);
}

/* -1: no stream can be delayed now. */
static int take_slot(struct delays *d, uint32_t ns)
{
	unsigned most = MOST_NS / options.launch_delay_ns + 1;

	if (!d->slots || d->used >= (most < SLOTS ? most : SLOTS))
		return -1;
	uint16_t slot = d->order[d->used++];
	d->number[slot]++;
	d->ns[slot] = ns;
	d->due[slot] = 0;
	return slot;
}

bool delay_stream(struct stream *s, uint32_t ns)
{
	struct delays *d = atomic_load(&s->context->delays);
	uint32_t number = 0;
	int slot = -1;

	pthread_mutex_lock(&releaser.lock);
	if (d && releaser.running && !releaser.closing && (slot = take_slot(d, ns)) >= 0) {
		number = d->number[slot];
		pthread_cond_signal(&releaser.changed);
	}
	pthread_mutex_unlock(&releaser.lock);
	if (slot < 0)
		return false;
	CUdeviceptr at = d->device + (unsigned)slot * sizeof(struct slot);
	if (real.cuStreamWriteValue32_v2(s->handle, at, number, 0) == CUDA_SUCCESS)
		return real.cuStreamWaitValue32_v2(s->handle, at + sizeof(uint32_t), number, CU_STREAM_WAIT_VALUE_GEQ) ==
		       CUDA_SUCCESS;
	/* The stream will not reach the delay: frees the slot. */
	pthread_mutex_lock(&releaser.lock);
	if (d->slots) /* another thread may have ended the context */
		atomic_store(&d->slots[slot].reached, number);
	pthread_mutex_unlock(&releaser.lock);
	return false;
}

void delays_look_for_clusters(const char *kernel, CUfunction f, const uint32_t cluster[3])
{
	static const CUfunction_attribute sizes[] = {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH,
						     CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT,
						     CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH};
	bool any = false;

	if (!delays_by_cluster(kernel))
		return;
	for (int i = 0; i < 3; i++) {
		int own = 0;
		any |= cluster[i] > 1 || (real.cuFuncGetAttribute(&own, sizes[i], f) == CUDA_SUCCESS && own > 1);
	}
	if (!any)
		session_warn("%.150s has no clusters: each of its blocks is the only one of a cluster", kernel);
}

void delays_context_ends(struct context *c)
{
	pthread_mutex_lock(&releaser.lock);
	struct delays *d = atomic_exchange(&c->delays, NULL);
	if (d && d->slots)
		look(d, 0, true);
	if (d)
		d->slots = NULL; /* the slots are freed with the context */
	pthread_mutex_unlock(&releaser.lock);
}

void delays_close(void)
{
	pthread_mutex_lock(&releaser.lock);
	releaser.closing = true;
	for (struct delays *d = releaser.all; d; d = d->next)
		look(d, 0, true);
	pthread_cond_signal(&releaser.changed);
	pthread_mutex_unlock(&releaser.lock);
}

void delays_forget(void)
{
	pthread_mutex_init(&releaser.lock, NULL);
	pthread_cond_init(&releaser.changed, NULL);
	releaser.running = releaser.closing = false;
	releaser.all = NULL;
}
