/*
 * Prepares launches of instrumented graphs. See graph_epochs.h for the invariant.
 *
 * Host and device count launches alike, as turns. The host writes the work of the nodes into the slots of that
 * turn, and the last node ends the turn. Launches of one executable graph run one after the other. Captures of
 * several graphs in one stream do so too, and the host waits for none. For different streams the host waits,
 * because captures that are cancelled must not run side by side.
 */
#include "capture/graph_epochs.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "capture/controls.h"
#include "capture/drain.h"
#include "options/options.h"
#include "session/session.h"
#include "util/clock.h"
#include "capture/capture.h"
#include "capture/graph_instrumentation.h"

#define ASK_NS 20000000

static void switch_off(struct instrumentation *q, void *context)
{
	for (unsigned i = 0; i < TURNS && q->context == context; i++)
		q->turns[i].flags = 0;
}

void instrumentation_switch_off(const struct context *c)
{
	instrumentation_each(switch_off, (void *)c);
}

void instrumentation_give_up(struct instrumentation *q)
{
	q->given_up = true;
	session_lost("no more epochs inside a graph: the recorder cannot follow all of its launches");
}

/* ---- regions that a point reads ---- */

/*
 * The chosen regions among those given to the kernel, and the zones of all regions given to the graph; holds a
 * reference to each. Each point reads the same zones, so the first point that finds one changed identifies the
 * kernel. NULL: no memory.
 */
static struct region_list *regions_of(const struct capture *p, struct exec *x, struct point *point)
{
	struct region_gathering g = {0};
	struct region_list *list = NULL;

	regions_gather_begin(&g);
	if (point->chosen->marks)
		graph_gather(x, &g);
	else
		graph_gather_node(x, point->chosen->node.number, &g);
	size_t given = g.count;
	if (options.zones) {
		graph_gather(x, &g);
		regions_gather_neighbours(&g);
	}
	if (!g.failed)
		list = region_list_new(g.count);
	for (size_t i = 0; list && i < g.count; i++) {
		struct region *r = g.list[i];
		bool wanted = i < given || r->kind == TT_REGION_ZONE;
		if (wanted && r->context == p->context && r->captured && r->readable && r->size) {
			region_hold(r);
			list->regions[list->count++] = r;
		}
	}
	point->regions_version = g.version;
	regions_gather_end(&g);
	free(g.list);
	for (uint32_t i = 0, n = list ? list->count : 0; i < n; i++) { /* read names without the lock of the region map */
		struct region *r = list->regions[i];
		list->count -= i == 0 ? n : 0;
		if (controls_want(r))
			list->regions[list->count++] = r;
		else
			region_release(r);
	}
	if (list)
		regions_sort(list->regions, list->count);
	return list;
}

static bool choose(struct capture *p, struct point *point, struct exec *x)
{
	struct region_list *list;

	point->graph_changes = graph_changes(x);
	point->choice = controls.choice;
	if (!(list = regions_of(p, x, point)))
		return false;
	region_list_release(point->list);
	point->list = list;
	point->blocks = point->payload = point->bytes = 0;
	for (uint32_t i = 0; i < list->count; i++) {
		point->blocks += region_blocks(list->regions[i]);
		point->bytes += list->regions[i]->size;
		point->payload += region_payload(list->regions[i]);
	}
	return true;
}

static bool holds(const struct point *point, const struct exec *x)
{
	return point->list && point->graph_changes == graph_changes(x) && point->choice == controls.choice &&
	       regions_unchanged_since(point->regions_version);
}

/* Does not move tables that queued launches use. */
static bool make_room(struct instrumentation *q, struct point *point)
{
	uint32_t room = point->room;
	const struct memory *tables, *fetched;

	if (point->list->count <= room)
		return true;
	while (room < point->list->count)
		room *= 2;
	if (!(tables = instrumentation_more_memory(q, (uint64_t)POINT_SETS * room * sizeof(*point->tables), true)) ||
	    !(fetched = instrumentation_more_memory(q, room * sizeof(*point->tables), false)))
		return false;
	point->tables = tables->host;
	point->tables_device = tables->device;
	point->fetched = fetched->device;
	point->room = room;
	return true;
}

/* A launch has at most one new table, so no table in use is written. */
static void write_table(struct point *point, bool all)
{
	point->table = (point->table + 1) % POINT_SETS;
	struct tt_capture_region *to = point->tables + (size_t)point->table * point->room;
	uint32_t first = 0;

	for (uint32_t i = 0; i < point->list->count; i++) {
		struct region *r = point->list->regions[i];
		to[i] = (struct tt_capture_region){
			.base = r->base,
			.size = r->size,
			.digests = r->slot,
			.first_block = first,
			.region = i,
			.flags = all || r->fresh ? TT_CAPTURE_REGION_ALL : 0,
		};
		first += (uint32_t)region_blocks(r);
		r->fresh = false; /* later points of the launch find the digests */
	}
}

static bool prepare(struct capture *p, struct instrumentation *q, struct point *point, struct exec *x, bool all)
{
	bool anew = !holds(point, x), marked = all;

	if ((anew && !choose(p, point, x)) || !make_room(q, point))
		return false;
	for (uint32_t i = 0; i < point->list->count; i++) {
		struct region *r = point->list->regions[i];
		if (!capture_place(p, r))
			return false;
		marked |= r->fresh; /* placed just now */
	}
	if (anew || marked || point->marked)
		write_table(point, all);
	point->marked = marked;
	return point->blocks <= TT_CAPTURE_MAX_BLOCKS;
}

/* As for a discarded epoch: the next one reads all of these regions. */
static void let_go(struct instrumentation *q)
{
	for (unsigned i = 0; i < q->point_count; i++) {
		struct region_list *list = q->points[i].list;
		for (uint32_t k = 0; list && k < list->count; k++)
			list->regions[k]->fresh = list->regions[k]->touched = true;
	}
}

/* Bytes of the ring that an epoch of the point takes at most. */
static uint64_t chunk_of(const struct instrumentation *q, const struct point *point)
{
	return tt_chunk_size(point->blocks, q->digests ? 0 : point->payload);
}

/* The reason if an epoch is not possible, or NULL. largest: size of the largest chunk. */
static const char *prepare_all(struct capture *p, struct instrumentation *q, struct exec *x, uint64_t *largest)
{
	uint32_t every = controls.snapshot_every;
	bool all = every && q->since_snapshot >= every; /* limits how far back readers must look */
	uint64_t most = 1, size = 0;

	*largest = 0;
	for (unsigned i = 0; i < q->point_count; i++) {
		struct point *point = &q->points[i];
		if (!prepare(p, q, point, x, all))
			return "no memory for lists of the blocks that their kernels can reach";
		uint64_t chunk = chunk_of(q, point);
		most = point->blocks > most ? point->blocks : most;
		*largest = chunk > *largest ? chunk : *largest;
		size += chunk;
	}
	if (!capture_scratch(p, most))
		return "no memory for lists of blocks";
	/* A running graph can't wait for room: there must be room for any change. */
	if (size + *largest > p->ring.size)
		return "the ring is smaller than the memory that their kernels can reach";
	if (!capture_fits(p, size, *largest) && !(drain_make_room(p, size, *largest) && capture_fits(p, size, *largest)))
		return "the ring was full of earlier epochs";
	q->since_snapshot = all ? 0 : q->since_snapshot;
	return NULL;
}

/* ---- launches ---- */

static bool has_failed(const struct stream *s)
{
	CUresult r = real.cuStreamQuery(s->handle);

	return r != CUDA_SUCCESS && r != CUDA_ERROR_NOT_READY;
}

/* Polls memory, and asks the driver for errors from time to time, because threads of the program need its locks. */
static bool wait_for_turn(const struct instrumentation *q, const struct stream *s, uint64_t turn)
{
	uint64_t now = clock_ns(), until = now + options.stall_ms * 1000000ull, ask = now + ASK_NS;

	for (; instrumentation_finished(q) < turn && now <= capture_deadline(until, false); now = clock_ns()) {
		if (now > ask && has_failed(s))
			break;
		ask = now > ask ? now + ASK_NS : ask;
		nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
	}
	return instrumentation_finished(q) >= turn;
}

/* The turn that must be complete, so that with the next launch at most `most` launches are pending. */
static uint64_t turn_before(const struct instrumentation *q, uint64_t most)
{
	uint64_t launched = atomic_load(&q->launched);

	return launched >= most ? launched - most + 1 : 0;
}

/* Waits until this launch can be queued: after pending captures, or at once if these are in this stream. */
static bool queue(struct capture *p, struct instrumentation *q, const struct stream *s)
{
	if ((p->open_stream != s || capture_is_blocked(p)) && !capture_settled(p))
		return false;
	if (wait_for_turn(q, s, turn_before(q, POINT_SETS)) && drain_places(q->point_count))
		return true;
	if (!session_hurried())
		capture_cancel_all(p);
	return false;
}

static void submit(struct capture *p, struct instrumentation *q, unsigned i, uint64_t seq, uint64_t size)
{
	struct point *point = &q->points[i];
	uint64_t turn = atomic_load(&q->launched);
	uint32_t number = session_next_epoch();
	struct pending pending = {
		.capture = p,
		.number = ++p->number,
		.final = true,
		.digests = q->digests,
		.list = region_list_hold(point->list),
		.epoch = {.number = number,
			  .trigger = TT_TRIGGER_GRAPH_NODE,
			  .flags = TT_EPOCHF_TOUCHED,
			  .context = p->context->index,
			  .device = (uint32_t)p->context->device,
			  .seq = seq,
			  .time_ns = clock_ns(),
			  .label = point->chosen->node.name,
			  .bytes_read = point->bytes,
			  .regions = point->list->count,
			  .controls = controls.text},
	};

	session_set_next_epoch(number + 1);
	pending.slot = point->slot = capture_slot(p);
	for (uint32_t k = 0; k < point->list->count; k++)
		atomic_store(&point->list->regions[k]->captured_by, p->number);
	q->params[turn % POINT_SETS * q->point_count + i] = (struct tt_replay_point){
		.params = capture_params(p, &pending, point->fetched, point->blocks, point->payload),
		.table = point->tables_device + (uint64_t)point->table * point->room * sizeof(*point->tables),
	};
	capture_opened(p, pending.slot, size);
	capture_begins(p, number);
	if (atomic_load(&p->cancelled_before) > p->base) /* its base was cancelled meanwhile */
		capture_cancel(p, pending.slot);
	drain_add(&pending);
}

/* Caller holds the capture lock. */
static bool capture(struct capture *p, struct instrumentation *q, struct exec *x, const struct stream *s, uint64_t seq)
{
	const char *why;
	uint64_t largest;

	if (atomic_load(&captures_active))
		return false;
	if (!queue(p, q, s)) {
		session_lost("epochs inside graphs were not captured: epochs of earlier launches are blocked");
		return false;
	}
	q->digests = p->contents_old || !capture_stores_contents(p);
	if ((why = prepare_all(p, q, x, &largest))) {
		session_lost("epochs inside graphs were not captured: %s", why);
		let_go(q);
		return false;
	}
	p->number = atomic_load(&p->context->captures);
	for (unsigned i = 0; i < q->point_count; i++) {
		uint64_t chunk = chunk_of(q, &q->points[i]);
		submit(p, q, i, seq, chunk + (i + 1 == q->point_count ? largest : 0));
	}
	p->contents_old = q->digests;
	q->active = q->point_count;
	q->since_snapshot += q->active;
	p->open_stream = s;
	return true;
}

/* Returns with the capture lock held if something is captured. */
static bool capture_inside(struct thread *t, struct instrumentation *q, struct exec *x, struct stream *s, uint64_t seq)
{
	struct context *c = s->context;
	atomic_fetch_add(&gate_ahead, 1);
	gate_leave(t); /* lock order: the lock's owner may be closing the gate */
	pthread_mutex_lock(&capture_lock);
	const struct capture *before = c->capture;
	if (!before || !before->epochs || capture_needs_snapshot(before) ||
	    (before->contents_old && capture_stores_contents(before))) {
		pthread_mutex_unlock(&capture_lock);
		capture_epoch(t, c, TT_TRIGGER_GRAPH, graph_label(x), seq - 1, true);
		pthread_mutex_lock(&capture_lock);
	}
	CUstreamCaptureMode mode = recorder_work_begin(t);
	struct capture *p = c->capture;
	bool on = session_state == SESSION_ON && c == q->context && p && !p->broken && capture(p, q, x, s, seq);
	recorder_work_end(t, mode);
	if (!on)
		pthread_mutex_unlock(&capture_lock);
	gate_enter(t);
	atomic_fetch_sub(&gate_ahead, 1);
	return on; /* keeps the lock: nothing else is captured until the graph is launched */
}

/* An update of the graph may have changed kernels. */
static void name_kernels(struct instrumentation *q, struct exec *x)
{
	q->named_as_of = graph_changes(x);
	for (unsigned i = 0; i < q->chosen_count; i++) {
		uint32_t name = graph_node_name(x, q->chosen[i].node.number);
		if (name != TT_NO_ID && !q->chosen[i].marks)
			q->chosen[i].node.name = name;
	}
}

/* Stamps are read later, when the graph may have changed. */
static void note_stamped(struct instrumentation *q, uint64_t turn)
{
	struct instrumented_node *nodes = q->stamped + turn % TURNS * q->stamped_count;

	for (unsigned i = 0; i < q->chosen_count; i++)
		if (q->chosen[i].stamped)
			nodes[q->chosen[i].stamp] = q->chosen[i].node;
}

bool instrumentation_begin(struct thread *t, struct instrumentation *q, struct exec *x, struct stream *s, uint64_t seq)
{
	bool stamps = q->stamped_count && atomic_load_explicit(&controls.stamps, memory_order_relaxed);

	q->active = 0;
	if (q->given_up)
		return false;
	if (q->named_as_of != graph_changes(x))
		name_kernels(q, x);
	if (!wait_for_turn(q, s, turn_before(q, TURNS))) {
		instrumentation_give_up(q);
		return false;
	}
	if (q->point_count && options.max_overhead)
		session_lost("epochs inside graphs were not captured: --max-overhead does not measure them");
	bool points = q->point_count && !options.max_overhead && atomic_load_explicit(&controls.points, memory_order_relaxed) &&
		      capture_inside(t, q, x, s, seq);
	uint64_t turn = atomic_load(&q->launched);
	if (stamps) {
		uint64_t *cells = q->stamps + turn % TURNS * q->replay->stamp_count;
		memset(cells, 0, q->replay->stamp_count * sizeof(*cells));
		note_stamped(q, turn);
	}
	atomic_store(&q->launches[turn % TURNS].seq, stamps ? seq : 0);
	atomic_store(&q->launches[turn % TURNS].stream, s->id);
	q->turns[turn % TURNS] = (struct tt_replay_turn){
		.number = turn + 1,
		.flags = (points ? TT_REPLAY_POINTS : 0u) | (stamps ? TT_REPLAY_STAMPS : 0u),
	};
	return true;
}

static void launched(struct capture *p, struct instrumentation *q, struct stream *s)
{
	for (unsigned i = 0; i < q->active; i++)
		real.cuEventRecord(p->done[q->points[i].slot], s->handle);
	capture_release_after(p, s->handle);
	atomic_store(&s->awaited_capture, atomic_load(&p->context->captures));
}

/* The drain waits for these captures: they end as cancelled. */
static void not_launched(struct capture *p, struct instrumentation *q, const struct tt_replay_point *points)
{
	for (unsigned i = 0; i < q->active; i++) {
		struct tt_capture_status *status = capture_status(p, q->points[i].slot);
		status->flags = TT_CAPTURE_DISCARDED | TT_CAPTURE_FINAL;
		__atomic_store_n(&status->sequence, points[i].params.sequence, __ATOMIC_RELEASE);
	}
	atomic_store(&p->context->captures, p->number); /* the drain releases it */
	p->gap = true;
	let_go(q);
}

void instrumentation_end(struct thread *t, struct instrumentation *q, struct stream *s, bool was_launched)
{
	struct capture *p = q->context->capture;
	uint64_t turn = atomic_load(&q->launched);

	t->busy++;
	if (q->active && was_launched)
		launched(p, q, s);
	else if (q->active)
		not_launched(p, q, q->params + turn % POINT_SETS * q->point_count);
	if (was_launched)
		atomic_store(&q->launched, turn + 1);
	else
		q->turns[turn % TURNS].number = 0;
	t->busy--;
	if (q->active)
		pthread_mutex_unlock(&capture_lock);
}
