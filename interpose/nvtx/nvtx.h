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

/* Lets modules find us, in a process that is to be recorded. */
void nvtx_announce(void);
/* Recording has begun: what is open in this thread becomes part of it. */
void nvtx_recording_begins(void);
/* Annotations recorded so far. */
uint64_t nvtx_count(void);

#endif
