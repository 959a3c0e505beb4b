/*
 * The executable graph of ours that is launched in place of the program's: making it, and having it
 * follow what changes that. See points.h for the invariant.
 */
#include <time.h>

#include "options/options.h"
#include "session/session.h"
#include "util/clock.h"
#include "capture/graph_instrumentation.h"
#include "capture/graph_epochs.h"
#include "capture/graph_topology.h"

#define ASK_NS 200000

bool points_make_own(struct thread *t, struct points *q, uint64_t flags)
{
	flags &= ~(uint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD; /* which needs a stream */
	CUstreamCaptureMode mode = recorder_work_begin(t);
	bool ok = real.cuGraphInstantiateWithFlags(&q->own, q->twin.graph, flags) == CUDA_SUCCESS;
	recorder_work_end(t, mode);
	if (!ok)
		q->own = NULL;
	return ok;
}

bool points_apart(const struct points *q)
{
	return q->twin.graph;
}

CUgraphNode points_own_node(const struct points *q, CUgraphNode node)
{
	return q->paired_unseen ? NULL : twin_of(&q->twin, node);
}

CUgraphExec points_own(const struct points *q)
{
	return atomic_load(&q->astray) ? NULL : q->own;
}

static bool update_own(CUgraphExec own, CUgraph graph)
{
	CUgraphExecUpdateResultInfo info = {0};
	CUgraphExecUpdateResult why;
	CUgraphNode node;

	return (real.cuGraphExecUpdate_v2 ? real.cuGraphExecUpdate_v2(own, graph, &info)
					  : real.cuGraphExecUpdate(own, graph, &node, &why)) == CUDA_SUCCESS;
}

void points_follow(struct thread *t, struct points *q, CUgraph graph)
{
	const struct kernels *k = kernels_of(q->context);
	struct twin twin = {0};
	struct reading g;
	CUstreamCaptureMode mode = recorder_work_begin(t);
	bool ok = reading_take(&g, graph) && k && g.form == q->form && twin_make(&twin, graph) &&
		  points_add(q, twin.graph, &g, &twin, k) && update_own(q->own, twin.graph);
	twin_free(&twin);
	recorder_work_end(t, mode);
	reading_free(&g);
	q->paired_unseen |= !graphs_pairs_known();
	if (!ok)
		points_astray(q);
}

/* The driver has launches of one executable graph run one after the other, but not those of two. */
static void wait_for_launches(const struct points *q)
{
	uint64_t until = clock_ns() + options.stall_ms * UINT64_C(1000000);

	while (!q->given_up && points_through(q) != atomic_load(&q->launched) && clock_ns() < until)
		nanosleep(&(struct timespec){.tv_nsec = ASK_NS}, NULL);
}

void points_astray(struct points *q)
{
	if (atomic_load(&q->astray))
		return;
	wait_for_launches(q);
	q->given_up = true;
	atomic_store(&q->astray, true);
	session_lost("there are no more epochs inside a graph: with them the driver does not change it as the program did");
}
