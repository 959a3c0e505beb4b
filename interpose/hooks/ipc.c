/*
 * Wrappers of calls that share memory between processes by handles.
 */
#include <string.h>

#include "arena/share.h"
#include "hooks/memory.h"

_Static_assert(sizeof(struct shared_handle) <= sizeof(CUipcMemHandle), "a shared handle fits into a CUipcMemHandle");

EXPORT CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle *h, CUdeviceptr p)
{
	struct shared_handle handle;

	HOOK(op, cuIpcGetMemHandle);
	if (!h || !arena_holds(p) || !arena_share(p, &handle))
		return real.cuIpcGetMemHandle(h, p);
	*h = (CUipcMemHandle){0};
	memcpy(h, &handle, sizeof(handle));
	return CUDA_SUCCESS;
}

static CUresult open_handle(struct op *op, CUdeviceptr *p, CUipcMemHandle h, unsigned flags,
			    CUresult (*open_real)(CUdeviceptr *, CUipcMemHandle, unsigned))
{
	struct shared_handle theirs;
	CUresult r;

	bool shared = arena_is_shared_handle(&h);
	if (shared) {
		memcpy(&theirs, &h, sizeof(theirs));
		r = arena_open_shared(&theirs, p);
	} else {
		r = open_real(p, h, flags);
	}
	if (r == CUDA_SUCCESS)
		memory_born(op, r, TT_REGION_IPC, *p, shared ? theirs.size : memory_range_size(*p));
	else
		memory_born(op, r, TT_REGION_IPC, 0, 0);
	return r;
}

#define OPENS(symbol) \
	EXPORT CUresult CUDAAPI symbol(CUdeviceptr *p, CUipcMemHandle h, unsigned flags) \
	{ \
		HOOK(op, symbol, op_begin(&op)); \
		return open_handle(&op, p, h, flags, real.symbol); \
	}
OPENS(cuIpcOpenMemHandle)
OPENS(cuIpcOpenMemHandle_v2)

EXPORT CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr p)
{
	struct context *c;
	CUresult r;

	HOOK(op, cuIpcCloseMemHandle, op_begin_at(&op, p));
	struct region *ended = memory_dies(&op, p);
	c = context_current(thread_current());
	if (!c || !arena_close_shared(c, p, &r))
		r = real.cuIpcCloseMemHandle(p);
	memory_died(&op, r, p, ended);
	return r;
}
