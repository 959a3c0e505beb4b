/*
 * Annotations: what the program says of itself through NVTX.
 *
 * Invariant: no call of NVTX takes a lock or allocates where its message was met before, but to
 * cut an epoch that was asked for; and none begins the recording, or calls the driver, but for
 * that and to name a stream.
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
