/*
 * The recorder's own memory that kernels access: on a device, or pinned on the host.
 *
 * Invariant: device memory has its own addresses, with unmapped pages around, so a program that
 * writes past its allocations does not reach it. If a device cannot map memory at chosen addresses,
 * unused memory of the recorder replaces the unmapped pages. Host memory has its own pages, because
 * small pinned allocations of the driver share pages and flags.
 */
#ifndef TT_CAPTURE_MEMORY_H
#define TT_CAPTURE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/driver.h"

struct context;

struct memory {
	CUdeviceptr device;
	void *host; /* NULL: device memory */
	uint64_t size;
	uint64_t mapped; /* bytes of host pages, between two inaccessible ones; 0: allocated by the driver */
	bool lent; /* a part of other memory */
};

/* In the current context. False: no memory. */
bool memory_on_device(struct context *c, struct memory *m, uint64_t size);
/* The same memory twice, one behind the other: what is written past the end is at the beginning. size: pages of 2 MiB. */
bool memory_mirrored(struct context *c, struct memory *m, uint64_t size);
bool memory_on_host(struct memory *m, uint64_t size);
/* On the device, or on the host if `host` is set or the device has no room. */
bool memory_anywhere(struct context *c, struct memory *m, uint64_t size, bool host);
/* No work may use the memory any more. */
void memory_free(struct context *c, struct memory *m);
/* Frees the rest of a destroyed context's memory. */
void memory_context_gone(const struct context *c);
void memory_forget(void); /* in a forked child */

#endif
