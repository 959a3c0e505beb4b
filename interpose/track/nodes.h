/*
 * Nodes of graphs: their work, from the driver or from a call of the program.
 *
 * Invariant: nothing here changes a graph. What cannot be read is marked (TT_GRAPHF_UNREAD), never guessed. A list
 * has one owner.
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
	struct tt_graph_record record; /* data: offset in the list's bytes */
};

/* The nodes of a graph by number; nodes of a child graph come right after their node. */
struct node_list {
	struct node *nodes;
	size_t count, room;
	struct tt_graph_edge *edges;
	size_t edge_count, edge_room;
	uint8_t *bytes; /* data of records */
	size_t size, bytes_room;
	uint32_t *index; /* numbers by handle: a hash table of index_mask + 1 slots */
	size_t index_mask;
	CUgraph *graphs; /* while reading: the graph and its child graphs */
	size_t graph_count, graph_room;
	char failed[160]; /* why it could not be read; else empty */
};

void nodes_free(struct node_list *l);
/* The number of the node with that handle; TT_NO_ID: none. */
uint32_t nodes_find(const struct node_list *l, CUgraphNode handle);

/* Adds a node of a kind, otherwise empty; NULL: no memory. */
struct tt_graph_record *nodes_add(struct node_list *l, uint32_t kind);
/* Builds the index, after all nodes were added. */
bool nodes_index(struct node_list *l);
/* Sets l->failed and returns false. */
bool nodes_no_memory(struct node_list *l);
/* Adds a node with these parameters; false: no memory. */
/* f: its function, NULL if unknown; context: index of the context in which it runs. */
bool nodes_add_kernel(struct node_list *l, const struct function *f, uint32_t context, const CUDA_KERNEL_NODE_PARAMS *p);
bool nodes_add_copy(struct node_list *l, const CUDA_MEMCPY3D *p);
bool nodes_add_set(struct node_list *l, const CUDA_MEMSET_NODE_PARAMS *p);
bool nodes_add_host(struct node_list *l, CUhostFn function, void *argument);
bool nodes_add_event(struct node_list *l, uint32_t kind, CUevent event);
bool nodes_add_mem_op(struct node_list *l, unsigned count, const CUstreamBatchMemOpParams *list);
bool nodes_add_unread(struct node_list *l, uint32_t kind);
/* Whether two nodes do the same work, at any position. */
bool nodes_same(const struct node_list *l, uint32_t number, const struct node_list *other, uint32_t its);
/*
 * Replaces the work of a node by that of a node of another list. Its position stays, and whether it is enabled;
 * attributes: also replaces those of kernels. False: no memory.
 */
bool nodes_replace(struct node_list *l, uint32_t number, const struct node_list *other, uint32_t its, bool attributes);

bool nodes_any_disabled(const struct node_list *l);
/* Enables or disables a node. Returns whether that changed it. */
bool nodes_enable(struct node_list *l, uint32_t number, bool on);

/* Nodes [first, last) of a list, and the edges between them. */
struct node_part {
	size_t first, last, first_edge, last_edge;
};
/* The nodes of a node's child graph; TT_NO_ID: all nodes. */
struct node_part nodes_part(const struct node_list *l, uint32_t number);
/* Whether a part has the topology of another graph, so that nodes correspond by number. */
bool nodes_same_form(const struct node_list *l, struct node_part p, const struct node_list *other);

/* Gathers the regions that the nodes may write; false: unknown. */
bool nodes_gather(const struct node_list *l, struct region_gathering *g);
/* The same for one node, within a gathering. */
void nodes_gather_one(const struct node_list *l, uint32_t number, struct region_gathering *g);
/*
 * context_bit of the contexts to whose memory they write: those of kernels and of the destinations of copies and
 * sets.
 */
uint64_t nodes_spread(const struct node_list *l);

#endif
