/*
 * The drain: a thread that moves captured epochs from the ring to the files.
 *
 * Invariant: epochs are committed in the order of their cuts. The tail of the ring moves only when
 * the contents of a chunk are in the files.
 */
#ifndef TT_CAPTURE_DRAIN_H
#define TT_CAPTURE_DRAIN_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Pinned memory for the epochs of a context: the number of buffers, and their size. Shorter copies are slower. With
 * two buffers, the copies wait for the writers.
 */
#define DRAIN_BUFFERS 3
#define DRAIN_LIST DRAIN_BUFFERS /* one more, for lists of blocks */
#define DRAIN_BUFFER ((uint64_t)16 << 20)
#define DRAIN_LIST_SIZE ((uint64_t)2 << 20)

struct pending;
struct capture;

bool drain_start(void);
/*
 * Adds a copy of *p. Caller holds the capture lock; waits while the queue is full. False: the drain has given up, or
 * makes no progress: recording has stopped.
 */
bool drain_add(const struct pending *p);
/* The same for several at once, at most CAPTURE_PENDING. */
bool drain_add_all(const struct pending *p, unsigned count);
/* The slot that the next drain_add will use; waits for it. If the drain makes no progress, recording has stopped. */
uint32_t drain_slot(void);
/* Waits until all added epochs are stored. False: the drain makes no progress. */
bool drain_flush(void);
/* Waits until that many more can be added without a wait. Caller holds the capture lock. False: as drain_flush. */
bool drain_places(unsigned places);
/* Waits until chunks fit into the ring (as in capture_fits) or nothing is pending, and one more can be added. */
bool drain_make_room(struct capture *p, uint64_t size, uint64_t largest);
/*
 * The context is about to be destroyed: its memory is not used any more, and epochs not stored yet get no contents.
 */
void drain_leave(struct capture *p);
/* Flushes and ends the thread. An epoch that could not be stored fails the run. */
void drain_stop(void);
/* For the drain's own files: the part after q, if it is of the same context and captured; else NULL. */
struct pending *drain_following(const struct pending *q);
/*
 * For the drain's own files: copies from the ring do not end. They may be behind a later capture, in the same queue of
 * the device: cancels what is not complete.
 */
void drain_cancel_later(struct capture *p);
/* It made progress; it must end, so no more waits. */
void drain_progressed(void);
bool drain_is_stopping(void);
void drain_forget(void); /* in a forked child */

#endif
