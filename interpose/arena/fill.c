/*
 * Fills new memory. See fill.h for the invariant.
 */
#include "arena/fill.h"

#include <time.h>

#include "arena/mapping.h"
#include "arena/parts.h"
#include "fill_pattern.h"
#include "util/clock.h"

#define CTAS 1024 /* CTAs of a launch; each fills several parts */

extern const char fill_ptx[];

/* Loads the kernel now: a driver that loads it at its first launch would wait then for all running work. */
void arena_load_fill(struct arena_resources *h)
{
	CUmodule module = NULL;
	CUresult r = real.cuModuleLoadData(&module, fill_ptx);

	if (r == CUDA_SUCCESS)
		r = real.cuModuleGetFunction(&h->fill, module, TT_KERNEL_FILL);
	if (r == CUDA_SUCCESS && real.cuFuncLoad)
		r = real.cuFuncLoad(h->fill);
	if (r == CUDA_SUCCESS)
		return;
	h->fill = NULL;
	session_warn("the driver refused the kernel that fills memory: new memory is zero");
}

CUresult arena_pattern(const struct arena_resources *h, CUstream stream, CUdeviceptr p, uint64_t size, uint64_t seed)
{
	struct tt_fill_params params = {.base = p, .size = size, .seed = seed};
	void *args[] = {&params};
	uint64_t ctas = (size / 8 + 2 + TT_FILL_THREADS - 1) / TT_FILL_THREADS;

	return real.cuLaunchKernel(h->fill, ctas < CTAS ? (unsigned)ctas : CTAS, 1, 1, TT_FILL_THREADS, 1, 1, 0, stream, args,
				   NULL);
}

static CUresult submit(const struct arena_resources *h, CUstream stream, CUdeviceptr p, uint64_t size)
{
	if (options.fill.kind == FILL_PATTERN && h && h->fill)
		return arena_pattern(h, stream, p, size, options.fill.seed);
	return real.cuMemsetD8Async(p, options.fill.kind == FILL_ONES ? 0xff : 0, size, stream);
}

CUresult arena_await(struct arena_resources *h)
{
	uint64_t deadline = clock_ns() + options.stall_ms * 1000000ull;
	long pause = 0;
	CUresult r;

	while ((r = real.cuStreamQuery(h->stream)) == CUDA_ERROR_NOT_READY && clock_ns() < deadline) {
		if (pause)
			nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
		pause = pause ? (pause < 200000 ? pause * 2 : pause) : 1000;
	}
	h->timed_out = r == CUDA_ERROR_NOT_READY;
	if (h->timed_out)
		session_warn("the program's work blocks the device: %s",
			     options.deterministic ? "an allocation's address may differ between runs"
						   : "an allocation is not filled");
	return r;
}

CUresult arena_fill(struct arena_resources *h, CUdeviceptr p, uint64_t size)
{
	CUstreamCaptureMode mode = capture_mode_relax();
	CUresult r = h->timed_out ? real.cuStreamQuery(h->stream) : CUDA_SUCCESS; /* do not wait again */

	if (r == CUDA_ERROR_NOT_READY)
		r = CUDA_ERROR_INVALID_HANDLE;
	else if (r == CUDA_SUCCESS)
		r = submit(h, h->stream, p, size);
	if (r == CUDA_SUCCESS)
		r = arena_await(h);
	capture_mode_restore(mode);
	return r;
}

/* NULL: the context or its resources are not available. */
static struct arena_resources *enter(struct context *c)
{
	if (!context_push(c->handle))
		return NULL;
	struct arena_resources *h = arena_resources_of(c);
	if (!h)
		context_pop();
	return h;
}

enum fill_result fill_now(struct context *c, CUdeviceptr p, uint64_t size)
{
	struct arena_resources *h = enter(c);

	if (!h)
		return FILL_NONE;
	CUresult r = arena_fill(h, p, size);
	context_pop();
	return r == CUDA_SUCCESS ? FILL_DONE : r == CUDA_ERROR_NOT_READY ? FILL_LATE : FILL_NONE;
}

CUresult fill_in_stream(struct context *c, CUstream stream, CUdeviceptr p, uint64_t size)
{
	if (options.fill.kind != FILL_PATTERN)
		return submit(NULL, stream, p, size);
	struct arena_resources *h = enter(c);
	if (!h)
		return CUDA_ERROR_INVALID_CONTEXT;
	CUresult r = submit(h, stream, p, size);
	context_pop();
	return r;
}

/* Maps the memory at a temporary address. */
enum fill_result fill_unmapped(struct context *c, CUmemGenericAllocationHandle memory, uint64_t size)
{
	enum fill_result result = FILL_NONE;
	CUdeviceptr at;

	CUstreamCaptureMode mode = capture_mode_relax();
	if (real.cuMemAddressReserve(&at, size, 0, 0, 0) == CUDA_SUCCESS) {
		bool mapped = real.cuMemMap(at, size, 0, memory, 0) == CUDA_SUCCESS;
		if (mapped && mapping_set_access(at, size, c->device, 0) == CUDA_SUCCESS)
			result = fill_now(c, at, size);
		if (mapped && result != FILL_LATE)
			real.cuMemUnmap(at, size);
		if (result != FILL_LATE)
			real.cuMemAddressFree(at, size);
	}
	capture_mode_restore(mode);
	return result;
}
