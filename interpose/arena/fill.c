/*
 * Fills new memory. See fill.h for the invariant.
 */
#include "arena/fill.h"

#include <string.h>
#include <time.h>

#include "arena/mapping.h"
#include "arena/parts.h"
#include "util/clock.h"

#define CTAS 1024     /* CTAs of a launch for a range; each fills several parts */
#define SPIN_NS 50000 /* a sleep takes at least that long */

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

struct tt_fill_range fill_range(CUdeviceptr p, uint64_t size)
{
	if (options.fill.kind == FILL_PATTERN)
		return (struct tt_fill_range){.base = p, .size = size, .seed = options.fill.seed};
	return (struct tt_fill_range){
		.base = p, .size = size, .seed = options.fill.kind == FILL_ONES ? UINT64_MAX : 0, .constant = 1};
}

CUresult arena_submit(const struct arena_resources *h, CUstream stream, const struct tt_fill_range *ranges, unsigned count)
{
	struct tt_fill_params params;
	void *args[] = {&params};
	uint64_t most = 0;

	if (!count)
		return CUDA_SUCCESS;
	if (count == 1 && (ranges->constant || !h->fill))
		return real.cuMemsetD8Async(ranges->base, ranges->constant ? (unsigned char)ranges->seed : 0, ranges->size,
					    stream);
	if (!h->fill)
		return CUDA_ERROR_INVALID_CONTEXT;
	for (unsigned i = 0; i < count; i++)
		most = ranges[i].size > most ? ranges[i].size : most;
	memcpy(params.ranges, ranges, count * sizeof(*ranges));
	uint64_t ctas = (most / 8 + 2 + TT_FILL_THREADS - 1) / TT_FILL_THREADS;
	return real.cuLaunchKernel(h->fill, ctas < CTAS ? (unsigned)ctas : CTAS, count, 1, TT_FILL_THREADS, 1, 1, 0, stream,
				   args, NULL);
}

CUresult arena_await(struct arena_resources *h)
{
	uint64_t began = clock_ns(), deadline = began + options.stall_ms * 1000000ull;
	long pause = 1000;
	CUresult r;

	while ((r = real.cuStreamQuery(h->stream)) == CUDA_ERROR_NOT_READY && clock_ns() < deadline) {
		if (clock_ns() - began < SPIN_NS)
			continue;
		nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
		pause = pause < 200000 ? pause * 2 : pause;
	}
	h->timed_out = r == CUDA_ERROR_NOT_READY;
	if (h->timed_out)
		session_warn("the program's work blocks the device: %s",
			     options.deterministic ? "an allocation's address may differ between runs"
						   : "an allocation is not filled");
	return r;
}

CUresult arena_fill(struct arena_resources *h, const struct tt_fill_range *ranges, unsigned count)
{
	CUstreamCaptureMode mode = capture_mode_relax();
	CUresult r = h->timed_out ? real.cuStreamQuery(h->stream) : CUDA_SUCCESS; /* do not wait again */

	if (r == CUDA_ERROR_NOT_READY)
		r = CUDA_ERROR_INVALID_HANDLE;
	else if (r == CUDA_SUCCESS)
		r = arena_submit(h, h->stream, ranges, count);
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
	struct tt_fill_range range = fill_range(p, size);
	CUresult r = arena_fill(h, &range, 1);
	context_pop();
	return r == CUDA_SUCCESS ? FILL_DONE : r == CUDA_ERROR_NOT_READY ? FILL_LATE : FILL_NONE;
}

CUresult arena_fill_in_stream(struct context *c, CUstream stream, const struct tt_fill_range *ranges, unsigned count)
{
	if (!count || (count == 1 && ranges->constant))
		return arena_submit(NULL, stream, ranges, count);
	struct arena_resources *h = enter(c);
	if (!h)
		return CUDA_ERROR_INVALID_CONTEXT;
	CUresult r = arena_submit(h, stream, ranges, count);
	context_pop();
	return r;
}

CUresult fill_in_stream(struct context *c, CUstream stream, CUdeviceptr p, uint64_t size)
{
	struct tt_fill_range range = fill_range(p, size);

	return arena_fill_in_stream(c, stream, &range, 1);
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
