/*
 * Traces launches with NVIDIA's Sanitizer API, which inserts calls of our functions before instructions that access
 * memory or wait at barriers. The library is libsanitizer-public.so of compute-sanitizer.
 *
 * Invariant: only modules with chosen kernels are changed, and only the next launch of a thread that asked for it is
 * recorded. The driver allows one user of this API in a process.
 */
#ifndef TT_INSTRUMENT_SANITIZER_H
#define TT_INSTRUMENT_SANITIZER_H

#include <stdint.h>

#include "driver/driver.h"
#include "trace_ring.h"

/* Call once, before the driver is initialised. */
void sanitizer_open(void);
/* Why it can't be used; NULL: it can. */
const char *sanitizer_missing(void);
/* The kinds that it records, as bits 1 << enum tt_trace_kind. */
uint32_t sanitizer_kinds(void);
/*
 * The next launch of this thread is traced with *param, which is copied to the device. Both remain valid until the
 * launch has ended.
 */
void sanitizer_next(struct tt_trace_param *param, CUdeviceptr device);
/* After the launch: whether it was traced. */
bool sanitizer_done(void);

#endif
