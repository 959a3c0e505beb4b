/*
 * Contents of CUDA arrays: each epoch copies them to linear memory of the recorder, which it reads like any region.
 *
 * Invariant: an array is copied only while it lives. Memory of a copy stays mapped as long as a region has its address.
 */
#ifndef TT_CAPTURE_ARRAYS_H
#define TT_CAPTURE_ARRAYS_H

#include <stdbool.h>
#include <stdint.h>

#include "capture/capture.h"

/*
 * The program created an array in the current context: gives address and size of its copy. False: it is not copied,
 * because its items have no size in bytes, or there is no memory.
 */
bool array_born(struct thread *t, struct context *c, CUarray handle, uint64_t *base, uint64_t *size);
/* It is about to be destroyed: no later epoch copies it. Returns the address of its copy; 0: it has none. */
uint64_t array_dies(CUarray handle);
/* It was destroyed, and no capture reads its copy any more. */
void array_died(uint64_t base);

/* Copies the arrays of the context in the stream of its captures. False: the driver refuses. */
bool arrays_copy(const struct capture *p);
void arrays_context_gone(const struct context *c);
void arrays_forget(void); /* in a forked child */

#endif
