/*
 * Memory that processes share by handles.
 */
#include <string.h>

#include "arena/share.h"
#include "hooks/memory.h"

_Static_assert(sizeof(struct shared_handle) <= sizeof(CUipcMemHandle), "it travels as one");

EXPORT CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle *h, CUdeviceptr p)
{
	struct shared_handle ours;

	if (!REAL(cuIpcGetMemHandle))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!h || !arena_holds(p) || !arena_share(p, &ours))
		return real.cuIpcGetMemHandle(h, p);
	*h = (CUipcMemHandle){0};
	memcpy(h, &ours, sizeof(ours));
	return CUDA_SUCCESS;
}

static CUresult open_handle(uint32_t call, CUdeviceptr *p, CUipcMemHandle h, unsigned flags,
			    CUresult (*open_real)(CUdeviceptr *, CUipcMemHandle, unsigned))
{
	struct shared_handle theirs;
	CUresult r;
	OP(op);

	op_begin(&op, call);
	bool shared = arena_is_shared_handle(&h);
	if (shared) {
		memcpy(&theirs, &h, sizeof(theirs));
		r = arena_open_shared(&theirs, p);
	} else {
		r = open_real(p, h, flags);
	}
	if (r == CUDA_SUCCESS)
		memory_born(&op, r, TT_REGION_IPC, *p, shared ? theirs.size : memory_range_size(*p));
	else
		memory_born(&op, r, TT_REGION_IPC, 0, 0);
	return r;
}

EXPORT CUresult CUDAAPI cuIpcOpenMemHandle(CUdeviceptr *p, CUipcMemHandle h, unsigned flags)
{
	return REAL(cuIpcOpenMemHandle) ? open_handle(CALL_cuIpcOpenMemHandle, p, h, flags, real.cuIpcOpenMemHandle)
					: CUDA_ERROR_NOT_SUPPORTED;
}

EXPORT CUresult CUDAAPI cuIpcOpenMemHandle_v2(CUdeviceptr *p, CUipcMemHandle h, unsigned flags)
{
	return REAL(cuIpcOpenMemHandle_v2) ? open_handle(CALL_cuIpcOpenMemHandle_v2, p, h, flags, real.cuIpcOpenMemHandle_v2)
					   : CUDA_ERROR_NOT_SUPPORTED;
}

EXPORT CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr p)
{
	struct context *c;
	CUresult r;
	OP(op);

	if (!REAL(cuIpcCloseMemHandle))
		return CUDA_ERROR_NOT_SUPPORTED;
	op_begin_always(&op, CALL_cuIpcCloseMemHandle);
	memory_dies(&op, p);
	c = context_current(thread_current());
	if (!c || !arena_close_shared(c, p, &r))
		r = real.cuIpcCloseMemHandle(p);
	memory_died(&op, r, p);
	return r;
}
