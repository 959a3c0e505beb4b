/*
 * Memory of the arena for other processes. It replaces cuIpcGetMemHandle, which the driver supports
 * for its own allocations only. A handle names an allocation. A process that opens it gets the
 * memory from a thread of the owner.
 *
 * Invariant: only recorded processes of the same user get memory, and only memory that is allocated
 * when they ask. A process that was never asked for a handle has neither the thread nor its socket.
 */
#ifndef TT_ARENA_SHARE_H
#define TT_ARENA_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#include "arena/arena.h"

struct shared_handle {
	char mark[8];      /* SHARE_MARK */
	char socket[24];   /* abstract address of the process that it is of */
	uint64_t base, id; /* of the allocation there */
	uint64_t size, mapped; /* its bytes, and those of the memory that begins with it or before */
};

/* False: the memory can't be shared. */
bool arena_share(CUdeviceptr p, struct shared_handle *h);
bool arena_is_shared_handle(const void *handle);
/* Maps it for the current context's device; opened again there it is at the same address. */
CUresult arena_open_shared(const struct shared_handle *h, CUdeviceptr *p);
/* What was opened at p as often as it is closed; false: p is none such. c: current. */
bool arena_close_shared(struct context *c, CUdeviceptr p, CUresult *r);
void arena_share_forget(void); /* in a fork's child */

#endif
