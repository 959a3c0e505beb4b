/*
 * Capture kernels as nodes of graphs. See points.h for the invariant.
 *
 * The kernels keep one list of changed blocks, so all points of a graph are in one chain, in an
 * order in which its nodes may run.
 */
#include "points.h"

#include <stdlib.h>
#include <string.h>

#include "../drain/drain.h"
#include "../options.h"
#include "../recorder.h"
#include "../state/clock.h"
#include "../state/modules.h"
#include "capture.h"
#include "reading.h"

#define MOST 32 /* of a graph: epochs of one launch wait for the drain side by side */
#define TABLE_FIRST 16
#define CONTEXTS 64

extern const char replay_ptx[];

/* What the kernels of one point read; pinned, and reached by the device. */
struct block {
	struct tt_capture_params params;
	uint8_t rest[128 - sizeof(struct tt_capture_params) % 128];
};

struct point {
	uint32_t position; /* of the kernel, as graphs are read: the same in every one that it can be updated from */
	uint32_t number;   /* of it in the executable graph's list */
	uint32_t label;
	CUgraphNode kernel, digest, gather; /* while they are in a graph */
	struct tt_capture_region *table;
	CUdeviceptr table_device;
	uint32_t room;
	/* Of a launch. */
	struct region_list *list;
	uint64_t blocks, payload, bytes;
	uint32_t slot;
};

struct points {
	struct context *context;
	uint64_t form;		/* of the graph */
	unsigned count, active; /* active: they capture in this launch */
	struct block *host;
	CUdeviceptr device;
	struct points *next;
	struct point list[];
};

static struct kernels {
	CUmodule module; /* stays: executable graphs have its kernels in them */
	CUfunction digest, gather;
} kernels[CONTEXTS];
static struct points *all;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* both */

static const struct kernels *kernels_of(const struct context *c)
{
	struct kernels *k = &kernels[c->index % CONTEXTS];

	pthread_mutex_lock(&lock);
	bool ok = c->index < CONTEXTS &&
		  (k->module || (real.cuModuleLoadData(&k->module, replay_ptx) == CUDA_SUCCESS &&
				 real.cuModuleGetFunction(&k->digest, k->module, TT_KERNEL_DIGEST_AT) == CUDA_SUCCESS &&
				 real.cuModuleGetFunction(&k->gather, k->module, TT_KERNEL_GATHER_AT) == CUDA_SUCCESS));
	pthread_mutex_unlock(&lock);
	return ok && k->gather ? k : NULL;
}

/* ---- which kernels ---- */

/* The kernel of a node if it was chosen and runs in this context, else NULL. */
static const struct function *chosen(const struct context *c, CUgraphNode node)
{
	CUDA_KERNEL_NODE_PARAMS p = {0};
	CUgraphNodeType type;
	CUfunction f;

	if (real.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS || type != CU_GRAPH_NODE_TYPE_KERNEL ||
	    real.cuGraphKernelNodeGetParams_v2(node, &p) != CUDA_SUCCESS || (p.ctx && p.ctx != c->handle))
		return NULL;
	f = p.func;
	if (!f && (!p.kern || !real.cuKernelGetFunction || real.cuKernelGetFunction(&f, p.kern) != CUDA_SUCCESS))
		return NULL;
	const struct function *known = function_of(f);
	return known && known->inside ? known : NULL;
}

/* ---- into the graph and out of it ---- */

static bool add_kernel(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t n, CUfunction f,
		       unsigned threads, unsigned grid, CUdeviceptr block)
{
	void *params[] = {&block};
	CUDA_KERNEL_NODE_PARAMS p = {
		.func = f, .gridDimX = grid, .gridDimY = 1, .gridDimZ = 1, .blockDimX = threads, .blockDimY = 1,
		.blockDimZ = 1, .kernelParams = params,
	};

	return real.cuGraphAddKernelNode_v2(node, graph, after, n, &p) == CUDA_SUCCESS;
}

static bool add_point(struct points *q, unsigned i, CUgraph graph, const struct reading *g, const struct kernels *k)
{
	struct point *p = &q->list[i];
	CUgraphNode after[2] = {p->kernel, i ? q->list[i - 1].gather : NULL};
	CUdeviceptr block = q->device + i * sizeof(struct block);
	int processors = 1;

	real.cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, q->context->device);
	if (!add_kernel(&p->digest, graph, after, i ? 2 : 1, k->digest, TT_DIGEST_THREADS,
			(unsigned)processors * TT_DIGEST_CTAS_PER_SM, block) ||
	    !add_kernel(&p->gather, graph, &p->digest, 1, k->gather, TT_COPY_THREADS,
			(unsigned)processors * TT_COPY_CTAS_PER_SM, block))
		return false;
	for (size_t e = 0; e < g->edges; e++)
		if (g->from[e] == p->kernel &&
		    real.cuGraphAddDependencies(graph, &p->gather, &g->to[e], 1) != CUDA_SUCCESS)
			return false;
	return true;
}

void points_withdraw(struct points *q)
{
	for (unsigned i = q->count; i-- > 0;) {
		struct point *p = &q->list[i];
		if (p->gather)
			real.cuGraphDestroyNode(p->gather);
		if (p->digest)
			real.cuGraphDestroyNode(p->digest);
		p->gather = p->digest = NULL;
	}
}

static bool add_points(struct points *q, CUgraph graph, const struct reading *g, const struct kernels *k)
{
	for (unsigned i = 0; i < q->count; i++) {
		q->list[i].kernel = g->nodes[q->list[i].position];
		if (!add_point(q, i, graph, g, k)) {
			points_withdraw(q);
			return false;
		}
	}
	return true;
}

static bool make_room(struct point *p, uint32_t regions)
{
	uint32_t room = p->room ? p->room : TABLE_FIRST;
	void *host;

	if (regions <= p->room)
		return true;
	while (room < regions)
		room *= 2;
	if (real.cuMemHostAlloc(&host, room * sizeof(*p->table), CU_MEMHOSTALLOC_DEVICEMAP) != CUDA_SUCCESS ||
	    real.cuMemHostGetDevicePointer_v2(&p->table_device, host, 0) != CUDA_SUCCESS)
		return false;
	if (p->table)
		real.cuMemFreeHost(p->table);
	p->table = host;
	p->room = room;
	return true;
}

/* In order; NULL where there are none, or no memory for them. */
static struct points *find_points(struct context *c, const struct reading *g)
{
	uint32_t *order = reading_order(g);
	struct points *q = order ? calloc(1, sizeof(*q) + MOST * sizeof(q->list[0])) : NULL;

	for (size_t i = 0; q && i < g->count; i++) {
		const struct function *f = chosen(c, g->nodes[order[i]]);
		if (f && q->count == MOST) {
			recorder_warn("inside a graph there are epochs after %d kernels at most: others that were chosen are left out",
				      MOST);
			break;
		}
		if (f)
			q->list[q->count++] = (struct point){.position = order[i], .label = f->name_string};
	}
	free(order);
	if (q && !q->count) {
		free(q);
		q = NULL;
	}
	return q;
}

static bool allocate(struct points *q)
{
	void *host;

	if (real.cuMemHostAlloc(&host, q->count * sizeof(struct block), CU_MEMHOSTALLOC_DEVICEMAP) != CUDA_SUCCESS)
		return false;
	memset(host, 0, q->count * sizeof(struct block));
	q->host = host;
	return real.cuMemHostGetDevicePointer_v2(&q->device, host, 0) == CUDA_SUCCESS;
}

static struct points *insert(struct context *c, CUgraph graph)
{
	const struct kernels *k;
	struct points *q = NULL;
	struct reading g;

	if (reading_take(&g, graph) && (q = find_points(c, &g))) {
		const char *why = reading_allocates(&g) ? "it allocates memory" : NULL;
		q->context = c;
		q->form = g.form;
		if (!why && (!(k = kernels_of(c)) || !allocate(q) || !add_points(q, graph, &g, k)))
			why = "the driver refuses the nodes that capture";
		if (why) {
			recorder_warn("there are no epochs inside a graph: %s", why);
			points_free(q);
			q = NULL;
		}
	}
	reading_free(&g);
	return q;
}

struct points *points_insert(struct thread *t, struct context *c, CUgraph graph)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	if (!options.epoch.inside.count)
		return NULL;
	t->busy++;
	real.cuThreadExchangeStreamCaptureMode(&mode);
	struct points *q = insert(c, graph);
	real.cuThreadExchangeStreamCaptureMode(&mode);
	t->busy--;
	return q;
}

bool points_insert_again(struct points *q, CUgraph graph)
{
	const struct kernels *k = kernels_of(q->context);
	struct reading g;
	bool ok = k && reading_take(&g, graph) && g.form == q->form && add_points(q, graph, &g, k);

	if (k)
		reading_free(&g);
	return ok;
}

void points_updated(struct points *q, struct exec *x)
{
	for (unsigned i = 0; i < q->count; i++)
		q->list[i].number = graph_node_number(x, q->list[i].kernel);
}

void points_attach(struct points *q, struct exec *x)
{
	points_updated(q, x);
	pthread_mutex_lock(&lock);
	q->next = all;
	all = q;
	pthread_mutex_unlock(&lock);
	graph_set_points(x, q);
}

/* The executable graph is gone, or never was: what the device read may be freed with its context only. */
void points_free(struct points *q)
{
	pthread_mutex_lock(&lock);
	for (struct points **at = &all; *at; at = &(*at)->next)
		if (*at == q) {
			*at = q->next;
			break;
		}
	pthread_mutex_unlock(&lock);
	free(q);
}

/* ---- launches ---- */

static void switch_off(struct points *q)
{
	for (unsigned i = 0; i < q->count; i++)
		q->host[i].params.sequence = 0;
}

void points_switch_off(const struct context *c)
{
	pthread_mutex_lock(&lock);
	for (struct points *q = all; q; q = q->next)
		if (q->context == c)
			switch_off(q);
	pthread_mutex_unlock(&lock);
}

/* The regions that the kernel is given, held. NULL: no memory. */
static struct region_list *regions_of(const struct capture *p, struct exec *x, uint32_t number)
{
	struct region_gathering g = {0};
	struct region_list *list = NULL;

	regions_gather_begin(&g);
	graph_gather_node(x, number, &g);
	if (!g.failed)
		list = region_list_new(g.count);
	for (size_t i = 0; list && i < g.count; i++) {
		struct region *r = g.list[i];
		if (r->context == p->context && r->captured && r->readable && r->size) {
			region_hold(r);
			list->regions[list->count++] = r;
		}
	}
	regions_gather_end(&g);
	free(g.list);
	if (list)
		regions_sort(list->regions, list->count);
	return list;
}

static bool prepare(struct capture *p, struct point *point, struct exec *x)
{
	struct region_list *list = regions_of(p, x, point->number);

	point->list = list;
	point->blocks = point->payload = point->bytes = 0;
	if (!list || !make_room(point, list->count))
		return false;
	for (uint32_t i = 0; i < list->count; i++) {
		struct region *r = list->regions[i];
		if (!r->placed && !capture_place(p, r))
			return false;
		point->table[i] = (struct tt_capture_region){
			.base = r->base, .size = r->size, .digests = r->slot, .first_block = (uint32_t)point->blocks,
			.region = i, .flags = r->fresh ? TT_CAPTURE_REGION_ALL : 0,
		};
		point->blocks += region_blocks(r);
		point->bytes += r->size;
		point->payload += region_payload(r);
	}
	for (uint32_t i = 0; i < list->count; i++)
		list->regions[i]->fresh = false; /* for the points behind it, which come after it */
	return point->blocks <= TT_CAPTURE_MAX_BLOCKS;
}

/* As for an epoch that was discarded. */
static void let_go(struct points *q)
{
	for (unsigned i = 0; i < q->count; i++) {
		struct region_list *list = q->list[i].list;
		for (uint32_t k = 0; list && k < list->count; k++)
			list->regions[k]->fresh = list->regions[k]->touched = true;
		region_list_release(list);
		q->list[i].list = NULL;
	}
	switch_off(q);
}

static bool prepare_all(struct capture *p, struct points *q, struct exec *x)
{
	uint64_t most = 1, size = 0;

	for (unsigned i = 0; i < q->count; i++) {
		if (!prepare(p, &q->list[i], x))
			return false;
		most = q->list[i].blocks > most ? q->list[i].blocks : most;
		size += tt_chunk_size(q->list[i].blocks, q->list[i].payload);
	}
	if (!capture_scratch(p, most))
		return false;
	/* They can't wait for room: there has to be enough for whatever changes, also where one is moved to the ring's start. */
	size += size / q->count;
	return size <= p->ring.size && (capture_fits(p, size) || drain_make_room(p, size));
}

static void submit(struct capture *p, struct points *q, unsigned i, uint64_t seq)
{
	struct point *point = &q->list[i];
	uint32_t number = recorder_next_epoch();
	struct pending pending = {
		.capture = p, .number = ++p->number, .final = true, .list = point->list,
		.epoch = {.number = number, .trigger = TT_TRIGGER_GRAPH_NODE, .flags = TT_EPOCHF_TOUCHED,
			  .context = p->context->index, .device = (uint32_t)p->context->device, .seq = seq,
			  .time_ns = clock_ns(), .label = point->label, .bytes_read = point->bytes,
			  .regions = point->list->count},
	};

	recorder_set_next_epoch(number + 1);
	pending.slot = point->slot = drain_slot(p);
	capture_status(p, pending.slot)->sequence = 0;
	for (uint32_t k = 0; k < point->list->count; k++)
		atomic_store(&point->list->regions[k]->captured_by, p->number);
	q->host[i].params = capture_params(p, &pending, point->table_device, point->blocks, point->payload);
	p->last_slot = pending.slot;
	p->last_epoch = number;
	region_list_hold(point->list); /* until it is known that the graph was launched */
	drain_add(&pending);
}

/* With the lock. What the points of the launch before wrote to is theirs until then. */
static bool begin(struct capture *p, struct points *q, struct exec *x, uint64_t seq)
{
	if (!capture_settled(p)) {
		recorder_fail("a graph with epochs inside is launched while the last ones are held up");
		return false;
	}
	bool captures = atomic_load(&captures_active);
	q->active = 0;
	if (captures || !prepare_all(p, q, x)) {
		if (!captures)
			recorder_warn("epochs inside graphs were not captured: the ring is smaller than what their kernels reach");
		let_go(q);
		return false;
	}
	p->number = atomic_load(&p->context->captures);
	for (unsigned i = 0; i < q->count; i++)
		submit(p, q, i, seq);
	q->active = q->count;
	return true;
}

bool points_begin(struct thread *t, struct points *q, struct exec *x, struct stream *s, uint64_t seq)
{
	struct context *c = s->context;
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	gate_leave(t); /* the lock is taken first: whoever has it may be closing the gate */
	if (!c->capture || !c->capture->epochs || c->capture->force_full)
		capture_epoch(t, c, TT_TRIGGER_GRAPH, graph_label(x), seq);
	pthread_mutex_lock(&capture_lock);
	t->busy++;
	real.cuThreadExchangeStreamCaptureMode(&mode);
	struct capture *p = c->capture;
	bool on = recorder_state == RECORDER_ON && c == q->context && p && !p->broken && begin(p, q, x, seq);
	real.cuThreadExchangeStreamCaptureMode(&mode);
	t->busy--;
	if (!on)
		pthread_mutex_unlock(&capture_lock);
	gate_enter(t);
	return on; /* with the lock: nothing else is captured until the graph is launched */
}

static void launched(struct capture *p, struct points *q, struct stream *s)
{
	p->epochs += q->active;
	p->open = true;
	p->open_slots = q->active;
	for (unsigned i = 0; i < q->active; i++)
		real.cuEventRecord(p->done[q->list[i].slot], s->handle);
	real.cuStreamWriteValue32_v2(s->handle, p->shared.device, p->number, 0);
	atomic_store(&p->context->captures, p->number);
	atomic_store(&s->seen, p->number);
}

/* The drain waits for them: they are as good as called off. */
static void not_launched(struct capture *p, struct points *q)
{
	for (unsigned i = 0; i < q->active; i++) {
		struct tt_capture_status *status = capture_status(p, q->list[i].slot);
		status->flags = TT_CAPTURE_DISCARDED | TT_CAPTURE_FINAL;
		__atomic_store_n(&status->sequence, q->host[i].params.sequence, __ATOMIC_RELEASE);
	}
	p->gap = true;
}

void points_end(struct thread *t, struct points *q, struct stream *s, bool was_launched)
{
	struct capture *p = q->context->capture;

	t->busy++;
	if (was_launched)
		launched(p, q, s);
	else
		not_launched(p, q);
	for (unsigned i = 0; i < q->count && was_launched; i++) {
		region_list_release(q->list[i].list);
		q->list[i].list = NULL;
	}
	if (!was_launched)
		let_go(q);
	t->busy--;
	pthread_mutex_unlock(&capture_lock);
}

void points_forget(void)
{
	pthread_mutex_init(&lock, NULL);
	all = NULL;
}
