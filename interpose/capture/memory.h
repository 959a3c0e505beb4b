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
	void *host; /* NULL: on the device */
	uint64_t size;
	uint64_t mapped; /* bytes of the host's pages, between two that nobody may touch; 0: the driver's */
	bool lent; /* a part of another */
};

/* The context is the current one. False: there is none. */
bool memory_on_device(struct context *c, struct memory *m, uint64_t size);
bool memory_on_host(struct memory *m, uint64_t size);
/* On the device unless host says otherwise or it has none. */
bool memory_anywhere(struct context *c, struct memory *m, uint64_t size, bool host);
/* No work may use it any more. */
void memory_free(struct context *c, struct memory *m);
/* What is left of a context's, after its end. */
void memory_context_gone(const struct context *c);
void memory_forget(void); /* in a fork's child */

#endif
