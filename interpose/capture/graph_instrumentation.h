/*
 * The recorder's data about an instrumented executable graph.
 *
 * Invariant: data that nodes read about a launch is not overwritten before the launch is complete, as replay->turn
 * says. Memory whose address nodes have stays until its context is destroyed.
 */
#ifndef TT_CAPTURE_GRAPH_INSTRUMENTATION_H
#define TT_CAPTURE_GRAPH_INSTRUMENTATION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "track/graphs.h"
#include "capture/capture.h"
#include "capture/graph_topology.h"
#include "capture/graph_clone.h"

#define POINTS_MOST 128 /* of a graph: all epochs of a launch wait for the drain at once */
#define STAMPED_MOST 128
#define POINT_SETS 16 /* launches with epochs that may be queued */
#define TURNS 512     /* launches that may be queued */

/* A node of the executable graph. */
struct instrumented_node {
	uint32_t number; /* as in tt_graph_record.node */
	uint32_t name;   /* string: name of its kernel */
};

/* A chosen kernel, and the nodes around it while it is in a graph. */
struct chosen_kernel {
	uint32_t graph, position; /* in the tree: the same in each graph that it can be updated from */
	struct instrumented_node node;
	bool captured, stamped;
	bool marks; /* the recorder's, by tt_epoch: node.name is the label of the epoch */
	uint32_t point, stamp; /* indices in points and stamps */
	CUgraphNode kernel; /* in the program's graph */
	CUgraphNode in, begin, end, digest, gather; /* the kernel and the nodes around it in the instrumented graph */
	CUgraphNode taken, late_digest, late_gather; /* of one in a body */
	CUgraphNode owner; /* the conditional node of the body, if the last of its late nodes are this one's */
};

/* The regions of an epoch inside a graph, the same in each launch. */
struct point {
	const struct chosen_kernel *chosen;
	struct region_list *list;
	uint32_t graph_changes, choice; /* versions for which the list is valid */
	uint64_t regions_version;
	uint64_t blocks, payload, bytes;
	bool marked; /* the table has flags for regions of which all blocks are read */
	struct tt_capture_region *tables; /* POINT_SETS tables of `room` entries, used in turn */
	CUdeviceptr tables_device, fetched; /* fetched: device memory for the table of the running launch */
	uint32_t room, table;
	uint32_t slot; /* of the current launch */
};

/* A launch whose nodes have times. */
struct stamped {
	_Atomic uint64_t seq, stream;
};

/* Memory that the nodes read. */
struct instrumentation_memory {
	const struct context *context;
	bool pinned; /* allocated as pinned host memory */
	struct memory memory;
	struct instrumentation_memory *next;
};

struct instrumentation {
	struct context *context;
	uint64_t form; /* of the graph's tree */
	unsigned chosen_count, point_count, stamped_count;
	struct chosen_kernel *chosen;
	struct point *points;
	struct graph_clone clone; /* copy of the program's graph; without one, the program's has the nodes */
	CUgraphExec shadow; /* made of the copy */
	_Atomic bool diverged;
	bool paired_unseen; /* after an update in which the driver may have paired nodes differently */
	CUgraphNode front, last; /* the nodes that begin and end the turn, while they are in a graph */
	struct instrumentation_memory *memory; /* all of it */
	struct tt_replay *replay; /* at the start of the memory that the first node reads */
	CUdeviceptr device;
	CUdeviceptr launch; /* memory that the other nodes read: a struct tt_replay_launch, the points, their tables */
	struct tt_replay_turn *turns;
	struct tt_replay_point *params; /* POINT_SETS for each point */
	uint64_t *stamps;
	struct stamped *launches; /* TURNS entries */
	struct instrumented_node *stamped; /* for each launch, the kernels with times */
	uint32_t named_as_of; /* graph_changes for which the kernels' names hold */
	_Atomic uint64_t launched; /* turns given out */
	uint64_t looked;           /* turns whose times were read */
	bool given_up;             /* a launch had no turn: no later one can have one */
	bool ended;                /* the executable graph was destroyed */
	bool gone;                 /* the context was destroyed, or will be soon */
	unsigned active;           /* points that capture in the current launch */
	bool digests;              /* the launch's epochs are stored without contents */
	uint32_t since_snapshot;   /* epochs */
	struct instrumentation *next;
};

struct kernels {
	CUmodule module; /* never unloaded: executable graphs use its kernels */
	CUfunction front, digest, gather, stamp_at, taken, turn, mark, stamp;
};
/* For the current context. NULL: the driver refuses the kernels. */
const struct kernels *kernels_of(const struct context *c);
/* Allocates the memory that the nodes read. False: no memory. */
bool instrumentation_allocate(struct instrumentation *q, struct context *c);
/*
 * graph_choose.c: finds the chosen kernels, and copies their graph if possible; *q NULL: none was chosen. Without a copy,
 * the nodes go into the program's graph, but not into its child graphs: the program could not replace these any more.
 * False: no memory.
 */
bool instrumentation_choose(struct context *c, CUgraph graph, const struct graph_tree *t, struct instrumentation **q);
/* graph_insert.c: adds the recorder's nodes to a graph, or to its copy `c`; `t` then gets the nodes of the copy. */
bool instrumentation_add(struct instrumentation *q, CUgraph graph, struct graph_tree *t, const struct graph_clone *c,
			 const struct kernels *k);
/* More memory, which stays while queued launches may read it; NULL: none. */
const struct memory *instrumentation_more_memory(struct instrumentation *q, uint64_t size, bool pinned);
/* Calls visit for each instrumented graph, with the list locked. */
void instrumentation_each(void (*visit)(struct instrumentation *q, void *to), void *to);

/* Number of complete launches. */
static inline uint64_t instrumentation_finished(const struct instrumentation *q)
{
	return __atomic_load_n(&q->replay->turn, __ATOMIC_ACQUIRE);
}

/* The owner of node times, which are stamps inside graphs; set before the first graph is instantiated. */
struct node_timer {
	bool (*wanted)(void);
	void (*prepare)(const struct context *c); /* c is current, and one of its graphs will have stamps */
};
extern struct node_timer node_timer;

#endif
