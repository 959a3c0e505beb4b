/*
 * Moves epochs from the ring to the files.
 *
 * Invariant: the tail of the ring moves only when the contents of a chunk are in the files. When the drain stops,
 * it does not wait for copies.
 */
#ifndef TT_CAPTURE_EPOCH_STORE_H
#define TT_CAPTURE_EPOCH_STORE_H

#include <stdbool.h>

struct pending;

/* Called by the drain's thread for each part in order; the last part commits the epoch. False: it is not stored. */
bool epoch_store_part(struct pending *q);
void epoch_store_forget(void); /* in a forked child */

#endif
