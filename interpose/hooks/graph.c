/*
 * Wrappers of calls that create, change and destroy executable graphs. launch.c has graph launches.
 */
#include "capture/graph_epochs.h"
#include "inspect/graphs.h"
#include "hooks/op.h"
#include "instrument/graph_launches.h"

/*
 * The executable graph of a call, NULL: unknown. Needs no current context. It is tracked after recording has ended
 * too, because it may have nodes of the recorder.
 */
static struct exec *begin_graph(struct op *op, CUgraphExec exec)
{
	bool on = recording();

	if (!op_start(op, on || graphs_find(exec)))
		return NULL;
	struct exec *x = graphs_find(exec);
	op->context = context_current(op->t);
	if (!op->context)
		op->context = graph_context(x);
	if (on && op->context)
		op_started(op);
	return x;
}

static void end_graph(struct op *op, CUresult r, uint32_t kind, uint32_t number, uint64_t changed)
{
	RECORD(op, r, kind, e->id = number, e->bytes = changed);
}

/* ---- creation and destruction ---- */

static struct instrumentation *begin_make(const struct op *op, CUgraph graph, uint64_t flags)
{
	return op->on ? instrumentation_insert(op->t, op->context, graph, flags) : NULL;
}

#define REFUSED "no epochs and times inside a graph: the driver refuses the recorder's nodes"

/*
 * Removes the recorder's nodes from the graph. True: the driver refuses the graph with them, so the caller tries
 * without.
 */
static bool withdraw_nodes(struct instrumentation **inserted, CUresult r)
{
	if (!*inserted || instrumentation_has_shadow(*inserted))
		return false;
	instrumentation_withdraw(*inserted);
	if (r == CUDA_SUCCESS)
		return false;
	instrumentation_free(*inserted);
	*inserted = NULL;
	return true;
}

static void end_instrumentation(struct exec *x)
{
	struct instrumentation *inserted = graph_instrumentation(x);

	traced_graph_gone(x);
	if (!inserted)
		return;
	graph_set_instrumentation(x, NULL);
	instrumentation_free(inserted);
}

static uint32_t made(const struct op *op, CUgraphExec exec, CUgraph graph, uint64_t flags)
{
	struct node_list nodes = graph_read(op->t, op->context, graph);

	return graph_made(op->context, exec, &nodes, flags, op->seq);
}

static void end_make(struct op *op, CUresult r, const CUgraphExec *exec, CUgraph graph, uint64_t flags,
		     struct instrumentation *inserted)
{
	bool is_made = op->on && r == CUDA_SUCCESS && exec && *exec;

	if (inserted && is_made && instrumentation_has_shadow(inserted) &&
	    !instrumentation_make_shadow(op->t, inserted, flags)) {
		session_lost(REFUSED);
		instrumentation_free(inserted);
		inserted = NULL;
	}
	if (is_made)
		end_instrumentation(graphs_find(*exec)); /* of an earlier graph whose destruction was not seen */
	end_graph(op, r, TT_EVENT_GRAPH_INSTANTIATE, is_made ? made(op, *exec, graph, flags) : TT_NO_ID, 0);
	if (inserted && is_made && graphs_find(*exec))
		instrumentation_attach(inserted, graphs_find(*exec));
	else if (inserted)
		instrumentation_free(inserted);
	if (is_made && graphs_find(*exec))
		traced_graph_made(op->t, graphs_find(*exec), graph, flags);
}

#define MAKES(symbol, flags, params, args) \
	EXPORT CUresult CUDAAPI symbol params \
	{ \
		HOOK(op, symbol, op_begin(&op)); \
		struct instrumentation *inserted = begin_make(&op, graph, flags); \
		CUresult r = real.symbol args; \
		if (withdraw_nodes(&inserted, r) && (r = real.symbol args) == CUDA_SUCCESS) \
			session_lost(REFUSED); \
		end_make(&op, r, exec, graph, flags, inserted); \
		return r; \
	}

#define FLAGS_OF(p) ((p) ? (p)->flags : 0)

MAKES(cuGraphInstantiate, 0, (CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log, size_t n), (exec, graph, node, log, n))
MAKES(cuGraphInstantiate_v2, 0, (CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log, size_t n), (exec, graph, node, log, n))
MAKES(cuGraphInstantiateWithFlags, flags, (CUgraphExec *exec, CUgraph graph, unsigned long long flags), (exec, graph, flags))
MAKES(cuGraphInstantiateWithParams, FLAGS_OF(p), (CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *p), (exec, graph, p))
MAKES(cuGraphInstantiateWithParams_ptsz, FLAGS_OF(p), (CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *p), (exec, graph, p))

EXPORT CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec exec)
{
	HOOK(op, cuGraphExecDestroy, struct exec *x = begin_graph(&op, exec));
	if (x)
		graph_ended(exec);
	CUresult r = real.cuGraphExecDestroy(exec);
	uint32_t number = graph_number(x);
	if (r == CUDA_SUCCESS)
		end_instrumentation(x);
	if (x && r == CUDA_SUCCESS)
		graph_gone(x, op.seq);
	else if (x)
		graph_restored(exec, x);
	end_graph(&op, r, TT_EVENT_GRAPH_DESTROY, number, 0);
	return r;
}

/* ---- changes ---- */

/* Repeats a change in another executable graph; diverged: it can't follow. */
#define REPEAT(other, its_node, call, diverged) \
	do { \
		CUgraphExec program = exec; \
		CUgraphNode program_node = node; \
		exec = other; \
		node = its_node; \
		if (!node || (call) != CUDA_SUCCESS) \
			diverged; \
		exec = program; \
		node = program_node; \
	} while (0)

/* Repeats a successful change of the program's executable graph in those that are launched in its place. */
#define FOLLOW(x, r, call) \
	do { \
		struct instrumentation *inserted = r == CUDA_SUCCESS ? graph_instrumentation(x) : NULL; \
		struct traced_graph *traced = r == CUDA_SUCCESS ? traced_graph_of(x) : NULL; \
		if (inserted && instrumentation_shadow(inserted)) \
			REPEAT(instrumentation_shadow(inserted), instrumentation_shadow_node(inserted, node), call, \
			       instrumentation_diverged(inserted)); \
		if (traced) \
			REPEAT(traced_graph_copy(traced), traced_graph_node(traced, node), call, \
			       traced_graph_diverged(traced)); \
	} while (0)

/* The oldest struct ends before the members for CUkernel and context. */
static void add_kernel_v1(struct node_list *l, struct thread *t, struct context *c, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	CUDA_KERNEL_NODE_PARAMS whole = {
		.func = p->func,
		.gridDimX = p->gridDimX,
		.gridDimY = p->gridDimY,
		.gridDimZ = p->gridDimZ,
		.blockDimX = p->blockDimX,
		.blockDimY = p->blockDimY,
		.blockDimZ = p->blockDimZ,
		.sharedMemBytes = p->sharedMemBytes,
		.kernelParams = p->kernelParams,
		.extra = p->extra,
	};

	graph_add_kernel(l, t, c, &whole);
}

static void add_any(struct node_list *l, struct thread *t, struct context *c, const CUgraphNodeParams *p)
{
	_Static_assert(sizeof(p->kernel) == sizeof(CUDA_KERNEL_NODE_PARAMS), "the same members");

	switch ((int)p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		graph_add_kernel(l, t, c, (const CUDA_KERNEL_NODE_PARAMS *)&p->kernel);
		break;
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		nodes_add_copy(l, &p->memcpy.copyParams);
		break;
	case CU_GRAPH_NODE_TYPE_MEMSET: /* and a context at the end */
		nodes_add_set(l, (const CUDA_MEMSET_NODE_PARAMS *)&p->memset);
		break;
	case CU_GRAPH_NODE_TYPE_HOST:
		nodes_add_host(l, p->host.fn, p->host.userData);
		break;
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		nodes_add_event(l, TT_NODE_EVENT_WAIT, p->eventWait.event);
		break;
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		nodes_add_event(l, TT_NODE_EVENT_RECORD, p->eventRecord.event);
		break;
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		nodes_add_mem_op(l, p->memOp.count, p->memOp.paramArray);
		break;
	default: /* unknown kinds of later drivers */
		nodes_add_unread(l, TT_NODE_OTHER);
	}
}

/* An update needs a graph with the same nodes, added in any order. */
static struct instrumentation *begin_update(const struct exec *x, CUgraph from)
{
	struct instrumentation *inserted = from ? graph_instrumentation(x) : NULL;

	return inserted && !instrumentation_has_shadow(inserted) && instrumentation_insert_again(inserted, from) ? inserted
														 : NULL;
}

static void follow_whole(struct thread *t, const struct exec *x, CUresult r, CUgraph from)
{
	struct instrumentation *inserted = graph_instrumentation(x);

	if (r == CUDA_SUCCESS && inserted && instrumentation_shadow(inserted))
		instrumentation_follow(t, inserted, from);
	if (r == CUDA_SUCCESS && traced_graph_of(x))
		traced_graph_follow(t, traced_graph_of(x), from);
}

static void disown(const struct instrumentation *inserted, CUgraphNode *node)
{
	if (inserted && node && *node)
		instrumentation_disown(inserted, node);
}

static void disown_both(const struct instrumentation *inserted, CUgraphExecUpdateResultInfo *why)
{
	disown(inserted, why ? &why->errorNode : NULL);
	disown(inserted, why ? &why->errorFromNode : NULL);
}

static size_t updated(const struct op *op, struct exec *x, CUgraphNode child, CUgraph graph)
{
	struct node_list from = graph_read(op->t, graph_context(x), graph);

	return graph_updated(x, child, &from, graph_node_runs, op->seq);
}

/*
 * from: the graph that it is updated from, or NULL; named: code for nodes of it that the driver returns; repeat:
 * repeats the change in the shadow; follow: the change in graph `x`, as the number of changed nodes.
 */
#define UPDATES(symbol, from, named, repeat, params, args, follow) \
	EXPORT CUresult CUDAAPI symbol params \
	{ \
		HOOK(op, symbol, struct exec *x = begin_graph(&op, exec)); \
		struct instrumentation *inserted = begin_update(x, from); \
		CUresult r = real.symbol args; \
		named; \
		if (inserted) \
			instrumentation_withdraw(inserted); \
		repeat; \
		bool follows = op.on && x && r == CUDA_SUCCESS; \
		size_t changed = follows ? follow : 0; \
		if (from && follows && graph_instrumentation(x)) \
			instrumentation_renumber(graph_instrumentation(x), x); \
		end_graph(&op, r, TT_EVENT_GRAPH_UPDATE, graph_number(x), changed); \
		return r; \
	}

/* A change of one node. */
#define CHANGES(symbol, params, args, follow) UPDATES(symbol, NULL, , FOLLOW(x, r, real.symbol args), params, args, follow)
/* A change of one node's parameters; add: puts the node's new work into `change`. */
#define SETS(symbol, params, args, add) \
	CHANGES(symbol, params, args, ({ \
			struct node_list change = {0}; \
			add; \
			graph_node_changed(x, node, &change, op.seq); \
		}))

CHANGES(cuGraphNodeSetEnabled, (CUgraphExec exec, CUgraphNode node, unsigned enabled), (exec, node, enabled), graph_node_enabled(x, node, enabled, op.seq))
CHANGES(cuGraphExecChildGraphNodeSetParams, (CUgraphExec exec, CUgraphNode node, CUgraph graph), (exec, node, graph), updated(&op, x, node, graph))
SETS(cuGraphExecKernelNodeSetParams, (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *p), (exec, node, p), add_kernel_v1(&change, op.t, graph_context(x), p))
SETS(cuGraphExecKernelNodeSetParams_v2, (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *p), (exec, node, p), graph_add_kernel(&change, op.t, graph_context(x), p))
SETS(cuGraphExecMemcpyNodeSetParams, (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *p, CUcontext context), (exec, node, p, context), nodes_add_copy(&change, p))
SETS(cuGraphExecMemsetNodeSetParams, (CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *p, CUcontext context), (exec, node, p, context), nodes_add_set(&change, p))
SETS(cuGraphExecHostNodeSetParams, (CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS *p), (exec, node, p), nodes_add_host(&change, p->fn, p->userData))
SETS(cuGraphExecEventRecordNodeSetEvent, (CUgraphExec exec, CUgraphNode node, CUevent event), (exec, node, event), nodes_add_event(&change, TT_NODE_EVENT_RECORD, event))
SETS(cuGraphExecEventWaitNodeSetEvent, (CUgraphExec exec, CUgraphNode node, CUevent event), (exec, node, event), nodes_add_event(&change, TT_NODE_EVENT_WAIT, event))
SETS(cuGraphExecBatchMemOpNodeSetParams, (CUgraphExec exec, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *p), (exec, node, p), nodes_add_mem_op(&change, p->count, p->paramArray))
SETS(cuGraphExecExternalSemaphoresSignalNodeSetParams, (CUgraphExec exec, CUgraphNode node, const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *p), (exec, node, p), nodes_add(&change, TT_NODE_SIGNAL))
SETS(cuGraphExecExternalSemaphoresWaitNodeSetParams, (CUgraphExec exec, CUgraphNode node, const CUDA_EXT_SEM_WAIT_NODE_PARAMS *p), (exec, node, p), nodes_add(&change, TT_NODE_WAIT))
SETS(cuGraphExecNodeSetParams, (CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *p), (exec, node, p), add_any(&change, op.t, graph_context(x), p))
UPDATES(cuGraphExecUpdate, graph, disown(inserted, node), follow_whole(op.t, x, r, graph), (CUgraphExec exec, CUgraph graph, CUgraphNode *node, CUgraphExecUpdateResult *why), (exec, graph, node, why), updated(&op, x, NULL, graph))
UPDATES(cuGraphExecUpdate_v2, graph, disown_both(inserted, why), follow_whole(op.t, x, r, graph), (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *why), (exec, graph, why), updated(&op, x, NULL, graph))

/* ---- graphs before instantiation ---- */

#define REMOVES(symbol, params, args) \
	EXPORT CUresult CUDAAPI symbol params \
	{ \
		HOOK(op, symbol, graphs_edges_removed()); \
		return real.symbol args; \
	}

REMOVES(cuGraphDestroyNode, (CUgraphNode node), (node))
REMOVES(cuGraphRemoveDependencies, (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t n), (graph, from, to, n))
REMOVES(cuGraphRemoveDependencies_v2, (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *data, size_t n), (graph, from, to, data, n))

static void added(const CUgraphNode *node, const CUgraphNodeParams *p)
{
	if (node && p && p->type == CU_GRAPH_NODE_TYPE_CONDITIONAL && *options.out)
		conditional_added(*node, &p->conditional);
}

AFTER(cuGraphAddNode, (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t n, CUgraphNodeParams *p), (node, graph, after, n, p), added(node, p))
AFTER(cuGraphAddNode_v2, (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *data, size_t n, CUgraphNodeParams *p), (node, graph, after, data, n, p), added(node, p))
