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

/* Adds a record and its data_size bytes of data, if recording is on. */
void graph_log_add(struct tt_graph_record r, const void *bytes);
void graph_log_write(void);
/* Writes them now if there are too many to wait for a launch. */
void graph_log_write_long(void);
/* Whether records are pending. */
bool graph_log_waits(void);

#endif
