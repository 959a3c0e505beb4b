/*
 * Memory of the arena for other processes. It replaces cuIpcGetMemHandle, which the driver supports for its own
 * allocations only. A handle names an allocation. A process that opens it gets the memory from a thread of the
 * owner.
 *
 * Invariant: only recorded processes of the same user get memory, and only memory that is allocated when they ask.
 * The thread and its socket exist only after a first request for a handle.
 */
#ifndef TT_ARENA_SHARE_H
#define TT_ARENA_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#include "arena/arena.h"

struct shared_handle {
	char mark[8];      /* SHARE_MARK */
	char socket[24];   /* abstract address of the owner's socket */
	uint64_t base, id; /* of the allocation in the owner */
	uint64_t size, mapped; /* bytes of the allocation, and of the memory that holds it */
};

/* False: the memory can't be shared. */
bool arena_share(CUdeviceptr p, struct shared_handle *h);
bool arena_is_shared_handle(const void *handle);
/* Maps it for the current context's device; a second call returns the same address. */
CUresult arena_open_shared(const struct shared_handle *h, CUdeviceptr *p);
/* Unmaps p after as many calls as it was opened. False: p was not opened here. c: current. */
bool arena_close_shared(struct context *c, CUdeviceptr p, CUresult *r);
void arena_share_forget(void); /* in a forked child */

#endif
