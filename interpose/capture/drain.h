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

/* Pinned memory that a context's epochs pass through: as many buffers of so many bytes. */
#define DRAIN_BUFFERS 8
#define DRAIN_BUFFER ((uint64_t)2 << 20)

struct pending;
struct capture;

bool drain_start(void);
/* Takes a copy. The caller holds the capture lock; waits while all places are taken. False: given up. */
bool drain_add(const struct pending *p);
/* The slot that the next drain_add will use; waits for it. */
uint32_t drain_slot(struct capture *p);
/* Waits until everything added is in the files. False: the drain gets no further. */
bool drain_flush(void);
/* Waits only until so many more can be added without a wait. */
bool drain_places(unsigned places);
/* Waits only until chunks fit into the ring (as capture_fits), or nothing is left to wait for. False: as drain_flush. */
bool drain_make_room(struct capture *p, uint64_t size, uint64_t largest);
/* The context is about to go: its memory is not used any more, and epochs not stored by now get no contents. */
void drain_leave(struct capture *p);
/* Flushes, and ends the thread. What could not be stored fails the run. */
void drain_stop(void);
/* For its own work: it got on by a step; it is to end, so that nothing more is waited for. */
void drain_progressed(void);
bool drain_is_stopping(void);
void drain_forget(void); /* in a fork's child */

#endif
