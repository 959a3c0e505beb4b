/*
 * The shadow: the recorder's executable graph that is launched in place of the program's. Creates it, and repeats
 * the program's changes. See graph_epochs.h for the invariant.
 */
#include <time.h>

#include "options/options.h"
#include "session/session.h"
#include "util/clock.h"
#include "capture/graph_instrumentation.h"
#include "capture/graph_epochs.h"
#include "capture/graph_topology.h"

#define ASK_NS 200000

bool instrumentation_make_shadow(struct thread *t, struct instrumentation *q, uint64_t flags)
{
	flags &= ~(uint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD; /* needs a stream */
	CUstreamCaptureMode mode = recorder_work_begin(t);
	bool ok = real.cuGraphInstantiateWithFlags(&q->shadow, q->clone.graph, flags) == CUDA_SUCCESS;
	recorder_work_end(t, mode);
	if (!ok)
		q->shadow = NULL;
	return ok;
}

bool instrumentation_has_shadow(const struct instrumentation *q)
{
	return q->clone.graph;
}

CUgraphNode instrumentation_shadow_node(const struct instrumentation *q, CUgraphNode node)
{
	return q->paired_unseen ? NULL : graph_clone_node(&q->clone, node);
}

CUgraphExec instrumentation_shadow(const struct instrumentation *q)
{
	return atomic_load(&q->diverged) ? NULL : q->shadow;
}

void instrumentation_follow(struct thread *t, struct instrumentation *q, CUgraph graph)
{
	const struct kernels *k = kernels_of(q->context);
	struct graph_clone clone = {0};
	struct graph_tree tree;
	CUstreamCaptureMode mode = recorder_work_begin(t);
	bool ok = graph_tree_read(&tree, graph) && k && tree.form == q->form && graph_clone_make(&clone, graph) &&
		  instrumentation_add(q, clone.graph, &tree, &clone, k) && graph_clone_update(q->shadow, clone.graph);
	graph_clone_free(&clone);
	recorder_work_end(t, mode);
	graph_tree_free(&tree);
	q->paired_unseen |= !graphs_pairs_known();
	if (!ok)
		instrumentation_diverged(q);
}

/* The driver orders launches of one executable graph, but not launches of two. */
static void wait_for_launches(const struct instrumentation *q)
{
	uint64_t until = clock_ns() + options.stall_ms * UINT64_C(1000000);

	while (!q->given_up && instrumentation_finished(q) != atomic_load(&q->launched) && clock_ns() < until)
		nanosleep(&(struct timespec){.tv_nsec = ASK_NS}, NULL);
}

void instrumentation_diverged(struct instrumentation *q)
{
	if (atomic_load(&q->diverged))
		return;
	wait_for_launches(q);
	q->given_up = true;
	atomic_store(&q->diverged, true);
	session_lost("no more epochs inside a graph: the driver refuses the program's changes to the instrumented graph");
}
