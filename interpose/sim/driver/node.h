/*
 * Nodes of graphs: parameters and work (node_work.c), operations on nodes (node.c), and the calls of each
 * kind of node (node_kinds.c).
 */
#ifndef TT_SIM_DRIVER_NODE_H
#define TT_SIM_DRIVER_NODE_H

#include "sim/driver/driver.h"

/* The work that params describe. ctx: the current context. NULL: this kind has no work. */
CUresult node_work(CUcontext ctx, const CUgraphNodeParams *params, struct sim_work **out);
CUresult node_params(const struct sim_work *work, CUgraphNodeParams *params);

/* Complete calls, which take the lock. */
CUresult node_add(CUgraphNode *out, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count,
		  CUgraphNodeParams *params);
/* For the kind in params; INVALID_VALUE unless wanted. */
CUresult node_get(CUgraphNode node, CUgraphNodeParams *params, bool wanted);
/* Sets the parameters of the graph's node or, with exec, of its clone there. */
CUresult node_set(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams *params);

#endif
