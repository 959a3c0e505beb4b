/*
 * Annotations: NVTX calls of the program.
 *
 * Invariant: a call with a known message takes no lock and allocates nothing, unless it cuts an
 * epoch. No call starts the recording. No call calls the driver, except to cut an epoch or to name
 * a stream.
 */
#ifndef TT_NVTX_NVTX_H
#define TT_NVTX_NVTX_H

#include <stdint.h>

/* Makes modules attach to the recorder, in a process that will be recorded. */
void nvtx_announce(void);
/* Recording has begun: records the ranges that are open in this thread. */
void nvtx_recording_begins(void);
/* Annotations recorded so far. */
uint64_t nvtx_count(void);

#endif
