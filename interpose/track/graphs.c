/*
 * Executable graphs. See graphs.h for the invariant.
 */
#include "track/graphs_internal.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/store.h"
#include "options/options.h"
#include "session/session.h"
#include "util/clock.h"
#include "util/handle_table.h"
#include "track/graph_log.h"
#include "track/functions.h"

#define CLOSE_WAIT_MS 1000

static struct {
	struct handle_table *_Atomic by_handle;
	struct exec *spare;
	uint32_t count;
	/*
	 * The driver pairs nodes of two graphs by the order in which they became last nodes, and by the order of
	 * their edges. It does not report the first order, which is that of the nodes as long as no edge is
	 * removed.
	 */
	_Atomic bool edges_removed;
	pthread_mutex_t lock;
} graphs = {.lock = PTHREAD_MUTEX_INITIALIZER};

void graphs_lock(void)
{
	pthread_mutex_lock(&graphs.lock);
}

void graphs_unlock(void)
{
	pthread_mutex_unlock(&graphs.lock);
}

static void no_memory(void)
{
	session_fail("no host memory for a graph");
}

struct exec *graphs_find(CUgraphExec handle)
{
	return handle_find(&graphs.by_handle, handle);
}

uint32_t graph_number(const struct exec *x)
{
	return x ? x->number : TT_NO_ID;
}

struct context *graph_context(const struct exec *x)
{
	return x ? x->context : NULL;
}

uint32_t graph_label(const struct exec *x)
{
	return x ? x->label : TT_NO_ID;
}

uint32_t graph_changes(const struct exec *x)
{
	return atomic_load(&x->changes);
}

static void has_changed(struct exec *x)
{
	atomic_fetch_add(&x->changes, 1);
	atomic_store(&x->outdated, true);
	atomic_store(&x->spread_outdated, true);
}

/* Caller holds the lock. */
static void has_other_nodes(struct exec *x)
{
	has_changed(x);
	if (!graph_memory_read(x))
		no_memory();
}

/* ---- records ---- */

/* Caller holds the lock. */
static void record(struct tt_graph_record r, const struct exec *x, uint64_t seq, const void *bytes)
{
	r.graph = x->number;
	r.seq = seq;
	graph_log_add(r, bytes);
}

static void record_node(const struct exec *x, size_t i, uint64_t seq)
{
	const struct tt_graph_record *r = &x->nodes.nodes[i].record;

	record(*r, x, seq, x->nodes.bytes + r->data);
	graph_log_write_long();
}

/* Records the whole graph, as one piece of the file. */
static void record_all(const struct exec *x, uint32_t op, uint32_t flags, uint64_t seq)
{
	const struct node_list *l = &x->nodes;
	struct tt_graph_record r = {
		.op = op,
		.flags = flags | (x->unread ? TT_GRAPHF_UNREAD : 0),
		.parent = TT_NO_ID,
		.function = TT_NO_ID,
		.context = x->context->index,
		.node = x->unread ? 0 : (uint32_t)l->count,
		.data_size = x->unread ? 0 : (uint32_t)(l->edge_count * sizeof(*l->edges)),
	};

	record(r, x, seq, l->edges);
	for (size_t i = 0; !x->unread && i < l->count; i++)
		record(l->nodes[i].record, x, seq, l->bytes + l->nodes[i].record.data);
	graph_log_write();
}

void graphs_write(void)
{
	if (!graph_log_waits())
		return;
	graphs_lock();
	graph_log_write();
	graphs_unlock();
}

void graphs_close(void)
{
	if (!lock_within(&graphs.lock, CLOSE_WAIT_MS))
		return;
	graph_log_write();
	graphs_unlock();
}

/* Caller holds the lock. */
static void lose(struct exec *x, uint64_t seq, const char *why)
{
	session_lost("the nodes of a graph are unknown: %s", why);
	x->unread = true;
	nodes_free(&x->nodes);
	nodes_free(&x->source);
	has_other_nodes(x);
	record_all(x, TT_GRAPH_REMADE, 0, seq);
}

/* ---- making and ending ---- */

static struct exec *exec_new(void)
{
	struct exec *x = graphs.spare;

	if (x) {
		graphs.spare = x->next_spare;
		x->next_spare = NULL;
	} else if (!(x = calloc(1, sizeof(*x)))) {
		no_memory();
	}
	return x;
}

/* Caller holds the lock. Members that readers of the table use stay. */
static void exec_free(struct exec *x)
{
	nodes_free(&x->nodes);
	nodes_free(&x->source);
	if (!graph_memory_read(x))
		no_memory();
	x->next_spare = graphs.spare;
	graphs.spare = x;
}

static void end(struct exec *x, uint64_t seq)
{
	record((struct tt_graph_record){.op = TT_GRAPH_ENDED,
					.parent = TT_NO_ID,
					.function = TT_NO_ID,
					.context = x->context->index},
	       x, seq, NULL);
	exec_free(x);
}

static struct exec *take_out(CUgraphExec handle)
{
	struct exec *x = graphs_find(handle);

	if (x)
		handle_remove(&graphs.by_handle, &x->handle);
	return x;
}

static uint32_t label_of(uint32_t number)
{
	char text[32];

	snprintf(text, sizeof(text), "graph %u", number);
	return store_string(session_store(), text);
}

/* Kernels in conditional bodies get no epochs, unless the conditional node is one of the graph itself: says so. */
static void tell_left_out(const struct node_list *l, uint32_t number)
{
	uint32_t before = TT_NO_ID;

	for (size_t i = 0; i < l->count; i++) {
		const struct tt_graph_record *r = &l->nodes[i].record;
		if (r->kind != TT_NODE_KERNEL || !(r->flags & TT_GRAPHF_CONDITIONAL) || r->function == before)
			continue;
		const struct tt_graph_record *owner = &l->nodes[r->parent].record;
		if (owner->kind == TT_NODE_CONDITIONAL && owner->parent == TT_NO_ID)
			continue;
		const char *name = function_name(before = r->function);
		if (name && (!strcmp(name, TT_MARK) || expressions_match(&options.epoch.inside, name)))
			session_warn("graph %u: no epochs after kernel %s, which is in a conditional body inside another graph",
				     number, name);
	}
}

uint32_t graph_made(struct context *c, CUgraphExec handle, struct node_list *nodes, uint64_t flags, uint64_t seq)
{
	bool whole = !*nodes->failed;
	uint32_t number = TT_NO_ID;

	if (!whole)
		session_lost("the nodes of a graph are unknown: %s", nodes->failed);
	graphs_lock();
	struct exec *x = take_out(handle);
	if (x) /* its destruction was not seen */
		end(x, seq);
	if ((x = exec_new())) {
		x->handle = handle;
		x->number = number = graphs.count++;
		x->label = options.epoch.graph ? label_of(number) : TT_NO_ID;
		x->context = c;
		x->unread = !whole;
		x->foreign = false;
		x->nodes = *nodes;
		if (!whole)
			nodes_free(&x->nodes);
		has_other_nodes(x);
		record_all(x, TT_GRAPH_MADE, flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH ? TT_GRAPHF_DEVICE : 0, seq);
		if (!handle_add(&graphs.by_handle, &x->handle)) {
			no_memory();
			exec_free(x);
			x = NULL;
		}
	} else {
		nodes_free(nodes);
	}
	graphs_unlock();
	if (x)
		tell_left_out(&x->nodes, number);
	return number;
}

void graph_ended(CUgraphExec handle)
{
	graphs_lock();
	take_out(handle);
	graphs_unlock();
}

void graph_restored(CUgraphExec handle, struct exec *x)
{
	graphs_lock();
	if (!graphs_find(handle) && !handle_add(&graphs.by_handle, &x->handle))
		no_memory();
	graphs_unlock();
}

void graph_gone(struct exec *x, uint64_t seq)
{
	graphs_lock();
	end(x, seq);
	graphs_unlock();
}

/* ---- changes ---- */

void graphs_edges_removed(void)
{
	atomic_store_explicit(&graphs.edges_removed, true, memory_order_relaxed);
}

bool graphs_pairs_known(void)
{
	return !atomic_load_explicit(&graphs.edges_removed, memory_order_relaxed);
}

/*
 * The number of a node, by the handle that the program gave. TT_NO_ID: unknown; then the graph's nodes are unknown
 * too.
 */
static uint32_t number_of(struct exec *x, CUgraphNode node, uint64_t seq)
{
	uint32_t number = nodes_find(&x->nodes, node);

	if (number == TT_NO_ID)
		number = nodes_find(&x->source, node);
	if (number == TT_NO_ID && !x->unread)
		lose(x, seq, "the program changed an unknown node");
	return number;
}

size_t graph_node_changed(struct exec *x, CUgraphNode node, struct node_list *change, uint64_t seq)
{
	graphs_lock();
	size_t changed = x->unread;
	uint32_t number = number_of(x, node, seq);
	if (number != TT_NO_ID && (!change->count || !nodes_replace(&x->nodes, number, change, 0, false))) {
		no_memory();
	} else if (number != TT_NO_ID) {
		record_node(x, number, seq);
		changed = 1;
	}
	has_changed(x);
	graphs_unlock();
	nodes_free(change);
	return changed;
}

size_t graph_node_enabled(struct exec *x, CUgraphNode node, bool enabled, uint64_t seq)
{
	graphs_lock();
	uint32_t number = number_of(x, node, seq);
	bool changed = number != TT_NO_ID && nodes_enable(&x->nodes, number, enabled);
	if (changed)
		record_node(x, number, seq);
	has_changed(x);
	graphs_unlock();
	return changed;
}

/* An update may enable a disabled node: ask the driver. */
static bool switched_on(struct exec *x, uint32_t number, node_runs_fn *runs)
{
	const struct node *n = &x->nodes.nodes[number];

	return n->record.flags & TT_GRAPHF_DISABLED && runs(x->handle, n->handle) && nodes_enable(&x->nodes, number, true);
}

static size_t take_over(struct exec *x, struct node_part p, const struct node_list *from, node_runs_fn *runs, uint64_t seq)
{
	size_t changed = 0;

	for (size_t i = 0; i < from->count; i++) {
		uint32_t number = (uint32_t)(p.first + i);
		bool switched = switched_on(x, number, runs);
		if (nodes_same(&x->nodes, number, from, (uint32_t)i) && !switched)
			continue;
		if (!nodes_replace(&x->nodes, number, from, (uint32_t)i, true)) {
			no_memory();
			return changed;
		}
		record_node(x, number, seq);
		changed++;
	}
	return changed;
}

static void give(struct node_list *to, struct node_list *from)
{
	nodes_free(to);
	*to = *from;
	*from = (struct node_list){0};
}

/* Caller holds the lock. Takes the nodes of `from`. */
static size_t update(struct exec *x, CUgraphNode child, struct node_list *from, node_runs_fn *runs, uint64_t seq)
{
	uint32_t number = TT_NO_ID;
	size_t changed = 0;

	if (*from->failed)
		lose(x, seq, from->failed);
	if (*from->failed || (child && (number = number_of(x, child, seq)) == TT_NO_ID))
		return 0;
	struct node_part part = nodes_part(&x->nodes, number);
	if (!x->unread && graphs_pairs_known() && nodes_same_form(&x->nodes, part, from)) {
		changed = take_over(x, part, from, runs, seq);
		if (!child)
			give(&x->source, from);
	} else if (child || nodes_any_disabled(&x->nodes)) {
		lose(x, seq, "its update may list the nodes in another order");
	} else {
		nodes_free(&x->source);
		give(&x->nodes, from);
		x->unread = false;
		x->foreign = true;
		record_all(x, TT_GRAPH_REMADE, 0, seq);
		changed = x->nodes.count;
	}
	return changed;
}

size_t graph_updated(struct exec *x, CUgraphNode child, struct node_list *from, node_runs_fn *runs, uint64_t seq)
{
	graphs_lock();
	size_t changed = update(x, child, from, runs, seq);
	has_other_nodes(x);
	graphs_unlock();
	nodes_free(from);
	return changed;
}

/* ---- its kernels ---- */

struct graph_kernel *graph_kernels(struct exec *x, size_t *count)
{
	*count = 0;
	graphs_lock();
	const struct node_list *l = &x->nodes;
	struct graph_kernel *out = malloc(l->count * sizeof(*out) + l->size + 1);
	uint8_t *bytes = (uint8_t *)(out + l->count);
	if (out && l->size)
		memcpy(bytes, l->bytes, l->size);
	for (size_t i = 0; out && i < l->count; i++) {
		const struct node *n = &l->nodes[i];
		if (n->record.kind == TT_NODE_KERNEL && !(n->record.flags & TT_GRAPHF_DISABLED))
			out[(*count)++] = (struct graph_kernel){x->foreign ? NULL : n->handle, n->record,
								bytes + n->record.data};
	}
	graphs_unlock();
	return out;
}

bool graph_allocates(struct exec *x)
{
	bool found = false;

	graphs_lock();
	for (size_t i = 0; i < x->nodes.count; i++)
		found |= x->nodes.nodes[i].record.kind == TT_NODE_ALLOC || x->nodes.nodes[i].record.kind == TT_NODE_FREE;
	graphs_unlock();
	return found;
}

/* ---- epochs inside it ---- */

struct instrumentation *graph_instrumentation(const struct exec *x)
{
	return x ? x->instrumentation : NULL;
}

void graph_set_instrumentation(struct exec *x, struct instrumentation *instrumentation)
{
	x->instrumentation = instrumentation;
}

uint32_t graph_node_number(struct exec *x, CUgraphNode handle)
{
	graphs_lock();
	uint32_t number = nodes_find(x->source.count ? &x->source : &x->nodes, handle);
	graphs_unlock();
	return number;
}

uint32_t graph_node_name(struct exec *x, uint32_t number)
{
	graphs_lock();
	uint32_t function = number < x->nodes.count ? x->nodes.nodes[number].record.function : TT_NO_ID;
	graphs_unlock();
	return store_string(session_store(), function_name(function));
}

void graphs_forget(void)
{
	pthread_mutex_init(&graphs.lock, NULL);
	atomic_store(&graphs.by_handle, NULL); /* handles are invalid in the child */
}
