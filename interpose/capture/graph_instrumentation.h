/*
 * The recorder's data about an executable graph with nodes of ours.
 *
 * Invariant: what nodes read of a launch is not overwritten before the launch is complete, as
 * replay->turn says. Memory that nodes have the address of stays until its context is destroyed.
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

#define POINTS_MOST 32  /* of a graph: epochs of one launch wait for the drain side by side */
#define STAMPED_MOST 128
#define POINT_SETS 16 /* launches with epochs that may be queued */
#define TURNS 512     /* launches of any kind */

/* A node of the executable graph. */
struct instrumented_node {
	uint32_t number; /* in its list */
	uint32_t name;   /* of its kernel: string */
};

/* A kernel that was chosen, and what goes around it while that is in a graph. */
struct spot {
	uint32_t position; /* as graphs are read: the same in every one that it can be updated from */
	struct instrumented_node node;
	bool captured, stamped;
	uint32_t point, stamp; /* among those */
	CUgraphNode kernel; /* of the program's graph */
	CUgraphNode in, begin, end, digest, gather; /* the same, and what is around it, in the graph with our nodes */
};

/* An epoch in each launch: what it reads. */
struct point {
	const struct spot *spot;
	struct region_list *list;
	uint32_t graph_changes, choice; /* as of which the list holds */
	uint64_t regions_version;
	uint64_t blocks, payload, bytes;
	bool marked; /* the table has regions of which all is read */
	struct tt_capture_region *tables; /* POINT_SETS of them, of so much room, used in turn */
	CUdeviceptr tables_device, fetched; /* fetched: memory for the one that a launch uses */
	uint32_t room, table;
	uint32_t slot; /* of a launch */
};

/* Of a launch, for the times of its nodes. */
struct stamped {
	_Atomic uint64_t seq, stream;
};

/* Memory that nodes read. */
struct instrumentation_memory {
	const struct context *context;
	bool pinned; /* asked for as such */
	struct memory memory;
	struct instrumentation_memory *next;
};

struct instrumentation {
	struct context *context;
	uint64_t form; /* of the graph */
	unsigned spot_count, point_count, stamped_count;
	struct spot *spots;
	struct point *points;
	struct graph_clone clone; /* of the program's graph; without one that has our nodes */
	CUgraphExec shadow; /* made of it */
	_Atomic bool diverged;
	bool paired_unseen; /* it followed an update in which the driver may have paired other nodes */
	CUgraphNode front, last; /* while it is in a graph: the ones that begin and end the turn */
	struct instrumentation_memory *memory; /* all of it */
	struct tt_replay *replay; /* what the first node reads begins with it */
	CUdeviceptr device;
	CUdeviceptr launch; /* what all others read: a struct tt_replay_launch, points, their tables */
	struct tt_replay_turn *turns;
	struct tt_replay_point *params; /* POINT_SETS for each point */
	uint64_t *stamps;
	struct stamped *launches; /* TURNS */
	struct instrumented_node *stamped; /* of each launch, the kernels with times */
	uint32_t named_as_of; /* changes of the graph */
	_Atomic uint64_t launched; /* turns that were given out */
	uint64_t looked;           /* those of them whose times were looked at */
	bool given_up;             /* there was a launch without a turn: no other can have one */
	bool ended;                /* the executable graph is gone */
	bool gone;                 /* so is the context, or soon */
	unsigned active;           /* points that capture in this launch */
	uint32_t since_snapshot;   /* epochs */
	struct instrumentation *next;
};

struct kernels {
	CUmodule module; /* stays: executable graphs have its kernels in them */
	CUfunction front, digest, gather, stamp_at, turn, stamp;
};
/* NULL: the driver refuses them. The context is the current one. */
const struct kernels *kernels_of(const struct context *c);
/* All that the nodes read. False: there is no memory for it. */
bool instrumentation_allocate(struct instrumentation *q, struct context *c);
/* graph_insert.c: the recorder's nodes into a graph that was read, or into its copy: `g` has the nodes of the copy then. */
bool instrumentation_add(struct instrumentation *q, CUgraph graph, struct topology *g, const struct graph_clone *t,
			 const struct kernels *k);
/* More of it, which stays for as long as queued launches may read it; NULL: there is none. */
const struct memory *instrumentation_more_memory(struct instrumentation *q, uint64_t size, bool pinned);
/* With the list held still: every executable graph that has nodes of ours. */
void instrumentation_each(void (*visit)(struct instrumentation *q, void *to), void *to);

/* Launches that are through. */
static inline uint64_t instrumentation_finished(const struct instrumentation *q)
{
	return __atomic_load_n(&q->replay->turn, __ATOMIC_ACQUIRE);
}

/* Who takes the times of nodes by stamps inside their graphs; it says so before the first graph is made. */
struct node_timer {
	bool (*wanted)(void);
	void (*prepare)(const struct context *c); /* a graph of the context, which is the current one, is about to have some */
};
extern struct node_timer node_timer;

#endif
