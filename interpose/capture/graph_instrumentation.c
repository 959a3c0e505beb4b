/*
 * Instrumented graphs: their kernels, memory and lists. See graph_instrumentation.h for the invariant.
 */
#include "capture/graph_instrumentation.h"

#include <stdlib.h>
#include <string.h>

#include "capture/graph_epochs.h"

#define CONTEXTS 64
#define TABLE_FIRST 16

struct node_timer node_timer;

extern const char replay_ptx[];

static struct {
	struct kernels kernels[CONTEXTS];
	pthread_mutex_t kernels_lock;
	struct instrumentation *all;
	struct instrumentation_memory *spares; /* memory of destroyed graphs, for reuse */
	pthread_mutex_t lock;         /* guards both lists */
} instrumented = {.kernels_lock = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER};

const struct kernels *kernels_of(const struct context *c)
{
	struct kernels *k = &instrumented.kernels[c->index % CONTEXTS];
	const struct {
		CUfunction *f;
		const char *name;
	} functions[] = {{&k->front, TT_KERNEL_FRONT_AT},   {&k->digest, TT_KERNEL_DIGEST_AT},
			 {&k->gather, TT_KERNEL_GATHER_AT}, {&k->stamp_at, TT_KERNEL_STAMP_AT},
			 {&k->turn, TT_KERNEL_TURN_AT},     {&k->mark, TT_KERNEL_MARK},
			 {&k->stamp, TT_KERNEL_STAMP},      {&k->taken, TT_KERNEL_TAKEN_AT}};

	pthread_mutex_lock(&instrumented.kernels_lock);
	bool ok = c->index < CONTEXTS;
	if (ok && !k->module) {
		ok = real.cuModuleLoadData(&k->module, replay_ptx) == CUDA_SUCCESS;
		for (size_t i = 0; ok && i < sizeof(functions) / sizeof(*functions); i++)
			ok = real.cuModuleGetFunction(functions[i].f, k->module, functions[i].name) == CUDA_SUCCESS;
	}
	ok = ok && k->stamp;
	pthread_mutex_unlock(&instrumented.kernels_lock);
	return ok ? k : NULL;
}

/* ---- memory of the nodes ---- */

static struct instrumentation_memory *take_spare(const struct context *c, uint64_t size, bool pinned)
{
	pthread_mutex_lock(&instrumented.lock);
	struct instrumentation_memory **at = &instrumented.spares, *m;
	while ((m = *at) && (m->context != c || m->memory.size != size || m->pinned != pinned))
		at = &m->next;
	if (m)
		*at = m->next;
	pthread_mutex_unlock(&instrumented.lock);
	return m;
}

static struct instrumentation_memory *new_memory(struct context *c, uint64_t size, bool pinned)
{
	struct instrumentation_memory *m = calloc(1, sizeof(*m));

	if (m && !capture_memory_of(c, &m->memory, size, pinned)) {
		free(m);
		return NULL;
	}
	if (m) {
		m->context = c;
		m->pinned = pinned;
	}
	return m;
}

const struct memory *instrumentation_more_memory(struct instrumentation *q, uint64_t size, bool pinned)
{
	struct instrumentation_memory *m = take_spare(q->context, size, pinned);

	if (!m && !(m = new_memory(q->context, size, pinned)))
		return NULL;
	m->next = q->memory;
	q->memory = m;
	return &m->memory;
}

/* Caller holds the lock. Memory that pending launches may read is kept until its context is destroyed. */
static void leave_memory(struct instrumentation *q)
{
	bool unused = !q->gone && (!q->replay || (!q->given_up && instrumentation_finished(q) == atomic_load(&q->launched)));

	for (struct instrumentation_memory *m; (m = q->memory);) {
		q->memory = m->next;
		if (unused) {
			m->next = instrumented.spares;
			instrumented.spares = m;
		} else {
			free(m);
		}
	}
}

bool instrumentation_allocate(struct instrumentation *q, struct context *c)
{
	size_t turns = sizeof(*q->replay), params = turns + TURNS * sizeof(*q->turns);
	size_t stamps = params + (size_t)POINT_SETS * q->point_count * sizeof(*q->params);
	size_t tables = stamps + (size_t)TURNS * q->stamped_count * 2 * sizeof(*q->stamps);
	size_t fetched = TABLE_FIRST * sizeof(*q->points->tables), table = POINT_SETS * fetched;
	size_t fetched_at = sizeof(struct tt_replay_launch) + q->point_count * sizeof(*q->params);
	const struct memory *shared, *launch;

	q->context = c;
	if (!(launch = instrumentation_more_memory(q, fetched_at + q->point_count * fetched, false)) ||
	    !(shared = instrumentation_more_memory(q, tables + q->point_count * table, true)))
		return false;
	q->launch = launch->device;
	q->device = shared->device;
	q->replay = shared->host;
	char *host = memset(shared->host, 0, shared->size);
	q->turns = (void *)((char *)host + turns);
	q->params = (void *)((char *)host + params);
	q->stamps = (void *)((char *)host + stamps);
	*q->replay = (struct tt_replay){
		.turns = q->device + turns,
		.points = q->device + params,
		.stamps = q->device + stamps,
		.turn_mask = TURNS - 1,
		.point_mask = POINT_SETS - 1,
		.point_count = q->point_count,
		.stamp_count = 2 * q->stamped_count,
	};
	for (unsigned i = 0; i < q->point_count; i++) {
		q->points[i].tables = (void *)((char *)host + tables + i * table);
		q->points[i].tables_device = q->device + tables + i * table;
		q->points[i].fetched = q->launch + fetched_at + i * fetched;
		q->points[i].room = TABLE_FIRST;
	}
	return true;
}

static void nothing(struct instrumentation *q, void *to)
{
	(void)q;
	(void)to;
}

void instrumentation_attach(struct instrumentation *q, struct exec *x)
{
	instrumentation_renumber(q, x);
	pthread_mutex_lock(&instrumented.lock);
	q->next = instrumented.all;
	instrumented.all = q;
	pthread_mutex_unlock(&instrumented.lock);
	instrumentation_each(nothing, NULL); /* releases graphs whose launches completed after their end */
	graph_set_instrumentation(x, q);
}

/* ---- all instrumented graphs ---- */

/* Caller holds the lock. */
static void let_go(struct instrumentation *q)
{
	leave_memory(q);
	for (unsigned i = 0; q->points && i < q->point_count; i++)
		region_list_release(q->points[i].list);
	free(q->chosen);
	free(q->points);
	free(q->launches);
	free(q->stamped);
	free(q);
}

/* Whether its launches are complete and their times were read, or never will be. Caller holds the lock. */
static bool is_over(const struct instrumentation *q)
{
	uint64_t launched = atomic_load(&q->launched);
	bool looked = !q->stamped_count || q->looked == launched;

	return q->ended && (q->gone || q->given_up || (looked && instrumentation_finished(q) == launched));
}

void instrumentation_each(void (*visit)(struct instrumentation *q, void *to), void *to)
{
	pthread_mutex_lock(&instrumented.lock);
	for (struct instrumentation **at = &instrumented.all, *q; (q = *at);) {
		visit(q, to);
		if (is_over(q)) {
			*at = q->next;
			let_go(q);
		} else {
			at = &q->next;
		}
	}
	pthread_mutex_unlock(&instrumented.lock);
}

/* The executable graph was destroyed, or not created. */
void instrumentation_free(struct instrumentation *q)
{
	bool attached = false;

	if (q->shadow)
		real.cuGraphExecDestroy(q->shadow);
	graph_clone_free(&q->clone);
	pthread_mutex_lock(&instrumented.lock);
	for (struct instrumentation *o = instrumented.all; o; o = o->next)
		attached |= o == q;
	q->ended = true;
	if (!attached)
		let_go(q);
	pthread_mutex_unlock(&instrumented.lock);
	instrumentation_each(nothing, NULL);
}

static void mark_gone(struct instrumentation *q, void *context)
{
	q->gone |= q->context == context;
}

void instrumentation_context_ends(struct context *c)
{
	instrumentation_each(mark_gone, c);
	pthread_mutex_lock(&instrumented.lock);
	for (struct instrumentation_memory **at = &instrumented.spares, *m; (m = *at);) {
		bool goes = m->context == c;
		*at = goes ? m->next : m;
		if (goes)
			free(m);
		else
			at = &m->next;
	}
	pthread_mutex_unlock(&instrumented.lock);
}

void instrumentation_forget(void)
{
	pthread_mutex_init(&instrumented.kernels_lock, NULL);
	pthread_mutex_init(&instrumented.lock, NULL);
	instrumented.all = NULL;
	instrumented.spares = NULL;
}
