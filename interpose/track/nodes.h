/*
 * Nodes of graphs: their work, from the driver or from a call of the program.
 *
 * Invariant: nothing here changes a graph. What cannot be read is marked (TT_GRAPHF_UNREAD), never
 * guessed. A list has one owner.
 */
#ifndef TT_TRACK_NODES_H
#define TT_TRACK_NODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format.h"
#include "track/regions.h"

struct function;

struct node {
	CUgraphNode handle; /* in the graph that the list was read from */
	struct tt_graph_record record; /* data: where in the list's bytes */
};

/* The nodes of a graph by number, those of graphs inside right after the node that holds them. */
struct node_list {
	struct node *nodes;
	size_t count, room;
	struct tt_graph_edge *edges;
	size_t edge_count, edge_room;
	uint8_t *bytes; /* data of records */
	size_t size, bytes_room;
	uint32_t *index; /* numbers by handle, an open table of index_mask + 1 places */
	size_t index_mask;
	CUgraph *graphs; /* while it is read: the whole one and those inside */
	size_t graph_count, graph_room;
	char failed[160]; /* why it could not be read; empty where it was */
};

void nodes_free(struct node_list *l);
/* The number of a node of that handle; TT_NO_ID where there is none. */
uint32_t nodes_find(const struct node_list *l, CUgraphNode handle);

/* One more node of a kind, without anything else; NULL where there is no memory. */
struct tt_graph_record *nodes_add(struct node_list *l, uint32_t kind);
/* Makes the index, once all nodes are there. */
bool nodes_index(struct node_list *l);
/* Says so in the list, and gives false. */
bool nodes_no_memory(struct node_list *l);
/* One more node that does what these say; false where there is no memory. */
/* f: its function, NULL where that is not known; context: the index of the one that it runs in. */
bool nodes_add_kernel(struct node_list *l, const struct function *f, uint32_t context, const CUDA_KERNEL_NODE_PARAMS *p);
bool nodes_add_copy(struct node_list *l, const CUDA_MEMCPY3D *p);
bool nodes_add_set(struct node_list *l, const CUDA_MEMSET_NODE_PARAMS *p);
bool nodes_add_host(struct node_list *l, CUhostFn function, void *argument);
bool nodes_add_event(struct node_list *l, uint32_t kind, CUevent event);
bool nodes_add_mem_op(struct node_list *l, unsigned count, const CUstreamBatchMemOpParams *list);
bool nodes_add_unread(struct node_list *l, uint32_t kind);
/* Whether two nodes do the same, wherever they are. */
bool nodes_same(const struct node_list *l, uint32_t number, const struct node_list *other, uint32_t its);
/*
 * A node does from here on what one of another list does. Its place stays, and whether it is switched
 * off; attributes: those of kernels change too. False where there is no memory.
 */
bool nodes_replace(struct node_list *l, uint32_t number, const struct node_list *other, uint32_t its, bool attributes);

bool nodes_any_disabled(const struct node_list *l);
/* Switches a node on or off; whether that is a change. */
bool nodes_enable(struct node_list *l, uint32_t number, bool on);

/* Nodes [first, last) of a list, and the edges between them. */
struct node_part {
	size_t first, last, first_edge, last_edge;
};
/* The nodes inside a node; all there are for TT_NO_ID. */
struct node_part nodes_part(const struct node_list *l, uint32_t number);
/* Whether a part has the form of another graph, so that nodes correspond by number. */
bool nodes_same_form(const struct node_list *l, struct node_part p, const struct node_list *other);

/* Gathers the regions that the nodes may write to; false where they can't be told. */
bool nodes_gather(const struct node_list *l, struct region_gathering *g);
/* The same of one node, in the middle of a gathering. */
void nodes_gather_one(const struct node_list *l, uint32_t number, struct region_gathering *g);
/* context_bit of the contexts to whose memory they write, by those of kernels, and by where copies and sets go. */
uint64_t nodes_spread(const struct node_list *l);

#endif
