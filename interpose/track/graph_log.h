/*
 * Pending records of graphs. A change matters only at the next launch, and a program may change
 * many nodes before it.
 *
 * Invariant: records are written in order, together with their data. Callers hold the lock of the
 * graphs, except for graph_log_waits.
 */
#ifndef TT_TRACK_GRAPH_LOG_H
#define TT_TRACK_GRAPH_LOG_H

#include <stdbool.h>

#include "format.h"

/* A record and its data_size bytes of data, where calls are recorded. */
void graph_log_add(struct tt_graph_record r, const void *bytes);
void graph_log_write(void);
/* The same where so many wait that they should not wait for a launch. */
void graph_log_write_long(void);
/* Some wait. */
bool graph_log_waits(void);

#endif
