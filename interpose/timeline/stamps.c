/*
 * Converts stamps to times. See stamps.h for the invariant.
 *
 * A kernel of the recorder reads the device's clock between two readings of the recorder's clock, several times;
 * the narrowest pair counts. Two such comparisons define a line, which is extrapolated after the last one. The next
 * comparison shows its error.
 */
#include "timeline/stamps.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "capture/graph_instrumentation.h"
#include "store/activities.h"
#include "inspect/contexts.h"
#include "session/session.h"
#include "util/clock.h"
#include "timeline/timeline.h"

#define CONTEXTS 64
#define TRIES 8
#define TRY_MS 20          /* limit; the device may be busy */
#define SOON_NS 100000000ull /* between the first comparisons */
#define LATER_NS 1000000000ull
#define FEW 10
#define LAST_MS 100

struct comparison {
	uint64_t device, host, width; /* host: the middle of a span of this width */
};

struct clock {
	CUstream stream;
	_Atomic uint64_t *cell; /* pinned host memory */
	CUdeviceptr cell_device;
	bool refused, asked; /* asked: the kernel was launched and has not run yet */
	unsigned count;      /* of comparisons */
	struct comparison first, last;
	double rate; /* host nanoseconds in a nanosecond of the device */
};

static struct clock clocks[CONTEXTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- clocks ---- */

static void prepare(struct clock *k)
{
	void *host;

	if (k->stream || k->refused)
		return;
	k->refused = real.cuMemHostAlloc(&host, sizeof(*k->cell), CU_MEMHOSTALLOC_DEVICEMAP) != CUDA_SUCCESS ||
		     real.cuMemHostGetDevicePointer_v2(&k->cell_device, host, 0) != CUDA_SUCCESS ||
		     real.cuStreamCreateWithPriority(&k->stream, CU_STREAM_NON_BLOCKING, -100) != CUDA_SUCCESS;
	if (k->refused) {
		session_lost("the clock of a device can't be read: graph nodes have no times");
		k->stream = NULL;
		return;
	}
	k->cell = host;
	*k->cell = 0;
	k->rate = 1;
}

/* False: the device is busy, or refuses. */
static bool try_once(struct clock *k, CUfunction stamp, struct comparison *best)
{
	void *params[] = {&k->cell_device};
	uint64_t before = clock_ns(), after = before;

	if (k->asked && !*k->cell)
		return false;
	*k->cell = 0;
	k->asked = real.cuLaunchKernel(stamp, 1, 1, 1, 1, 1, 1, 0, k->stream, params, NULL) == CUDA_SUCCESS;
	while (k->asked && !*k->cell && after - before < TRY_MS * 1000000ull)
		after = clock_ns();
	after = clock_ns();
	if (!k->asked || !*k->cell)
		return false;
	k->asked = false;
	if (after - before < best->width)
		*best = (struct comparison){*k->cell, before + (after - before) / 2, after - before};
	return true;
}

static uint64_t to_host(const struct clock *k, uint64_t device)
{
	return (uint64_t)((int64_t)k->last.host + (int64_t)((double)(int64_t)(device - k->last.device) * k->rate));
}

static void compare(struct clock *k, const struct comparison *now)
{
	int64_t off = k->count ? (int64_t)(to_host(k, now->device) - now->host) : 0;

	timeline_clock_error(now->width / 2 + (uint64_t)(off < 0 ? -off : off));
	if (!k->count++)
		k->first = *now;
	else if (now->device != k->first.device)
		k->rate = (double)(int64_t)(now->host - k->first.host) / (double)(int64_t)(now->device - k->first.device);
	k->last = *now;
}

/* False: no comparison so far. */
static bool tune(struct clock *k, const struct context *c)
{
	uint64_t since = clock_ns() - k->last.host;
	const struct kernels *functions;
	struct comparison best = {.width = UINT64_MAX};

	if (k->count && since < (k->count < FEW ? SOON_NS : LATER_NS))
		return true;
	if (!k->stream || !(functions = kernels_of(c)))
		return false;
	for (int i = 0; i < TRIES && try_once(k, functions->stamp, &best); i++)
		;
	if (best.width != UINT64_MAX)
		compare(k, &best);
	return k->count;
}

/* ---- launches ---- */

/* A node ran if it has both stamps. */
static void write_node(const struct instrumentation *q, struct instrumented_node n, const uint64_t cells[2], uint64_t seq,
		       uint64_t stream)
{
	const struct clock *k = &clocks[q->context->index];
	uint64_t begin = cells[0], end = cells[1];
	struct tt_activity a = {
		.seq = seq,
		.stream = stream,
		.kind = TT_EVENT_LAUNCH,
		.flags = TT_ACTIVITYF_COARSE | TT_ACTIVITYF_STAMPED,
		.begin_ns = to_host(k, begin),
		.end_ns = to_host(k, end),
		.node = 1ull + n.number,
		.context = q->context->index,
		.device = (uint32_t)q->context->device,
		.name = n.name,
	};

	if (begin && end && (a.end_ns < a.begin_ns || !activities_add(&a)))
		timeline_missed(1);
}

/* False: another launch has reused the slot. */
static bool look_at(struct instrumentation *q, uint64_t turn)
{
	const struct stamped *l = &q->launches[turn % TURNS];
	struct instrumented_node nodes[STAMPED_MOST];
	uint64_t cells[2 * STAMPED_MOST], seq = atomic_load(&l->seq), stream = atomic_load(&l->stream);

	for (unsigned i = 0; i < 2 * q->stamped_count; i++)
		cells[i] = __atomic_load_n(&q->stamps[turn % TURNS * q->replay->stamp_count + i], __ATOMIC_RELAXED);
	memcpy(nodes, q->stamped + turn % TURNS * q->stamped_count, q->stamped_count * sizeof(*nodes));
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load(&q->launched) >= turn + TURNS)
		return false;
	for (unsigned i = 0; seq && i < q->stamped_count; i++)
		write_node(q, nodes[i], cells + 2 * i, seq, stream);
	return true;
}

struct poll {
	const struct context *only; /* NULL: all */
	uint64_t tunes;             /* contexts, by index, whose clocks are needed, and those that are known */
	uint64_t known;
	unsigned found;
	uint64_t left; /* incomplete launches */
	bool give_up;
};

static bool is_meant(const struct instrumentation *q, const struct poll *p)
{
	return q->stamped_count && !q->gone && q->context->index < CONTEXTS && (!p->only || p->only == q->context);
}

static void ask(struct instrumentation *q, void *to)
{
	struct poll *p = to;

	if (is_meant(q, p) && instrumentation_finished(q) > q->looked)
		p->tunes |= (uint64_t)1 << q->context->index;
}

static void look(struct instrumentation *q, void *to)
{
	struct poll *p = to;

	if (!is_meant(q, p))
		return;
	uint64_t through = p->known >> q->context->index & 1 ? instrumentation_finished(q) : q->looked;
	for (; q->looked < through; q->looked++, p->found++)
		timeline_missed(look_at(q, q->looked) ? 0 : q->stamped_count);
	p->left += atomic_load(&q->launched) - q->looked;
	if (!p->give_up)
		return;
	timeline_missed((atomic_load(&q->launched) - q->looked) * q->stamped_count);
	q->looked = atomic_load(&q->launched);
}

static void tune_clocks(struct poll *p)
{
	for (struct context *c = p->tunes ? context_first() : NULL; c; c = c->next) {
		if (c->index >= CONTEXTS || !(p->tunes >> c->index & 1) || !context_push(c->handle))
			continue;
		CUstreamCaptureMode mode = capture_mode_relax();
		p->known |= (uint64_t)tune(&clocks[c->index], c) << c->index;
		capture_mode_restore(mode);
		context_pop();
	}
}

/* Holds the list of graphs only briefly, because the program waits for it. */
static void poll(struct poll *p)
{
	p->left = 0;
	pthread_mutex_lock(&lock);
	instrumentation_each(ask, p);
	tune_clocks(p);
	instrumentation_each(look, p);
	pthread_mutex_unlock(&lock);
}

void stamps_prepare(const struct context *c)
{
	pthread_mutex_lock(&lock);
	if (c->index < CONTEXTS)
		prepare(&clocks[c->index]);
	pthread_mutex_unlock(&lock);
}

unsigned stamps_poll(void)
{
	struct poll p = {0};

	poll(&p);
	return p.found;
}

/* Waits shortly for the last launches: they complete soon, or hang. */
static void poll_last(const struct context *c)
{
	uint64_t until = clock_ns() + LAST_MS * 1000000ull;
	struct poll p = {.only = c};

	for (poll(&p); p.left && clock_ns() < until; poll(&p))
		nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
	p.give_up = true;
	poll(&p);
}

void stamps_context_gone(const struct context *c)
{
	poll_last(c);
	pthread_mutex_lock(&lock);
	if (c->index < CONTEXTS)
		clocks[c->index] = (struct clock){.refused = true}; /* its resources are destroyed with the context */
	pthread_mutex_unlock(&lock);
}

void stamps_close(void)
{
	poll_last(NULL);
}

void stamps_forget(void)
{
	pthread_mutex_init(&lock, NULL);
}
