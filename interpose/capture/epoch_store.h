/*
 * Epochs, from the ring to the files.
 *
 * Invariant: the ring's tail moves only when a chunk's contents are in the files, and a copy is
 * not waited for once the drain stops.
 */
#ifndef TT_CAPTURE_EPOCH_STORE_H
#define TT_CAPTURE_EPOCH_STORE_H

#include <stdbool.h>

struct pending;

/* By the drain's thread, part after part; the last one commits the epoch. False: it is not in the files. */
bool epoch_store_part(struct pending *q);

#endif
