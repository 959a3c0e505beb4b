/*
 * Wrappers of initialisation, contexts and their synchronisation.
 */
#include "capture/arrays.h"
#include "capture/graph_epochs.h"
#include "lifecycle/inflight.h"
#include "arena/arena.h"
#include "instrument/instrument.h"
#include "hooks/op.h"
#include "track/copy_sources.h"

EXPORT CUresult CUDAAPI cuInit(unsigned flags)
{
	if (!REAL(cuInit))
		return CUDA_ERROR_NOT_INITIALIZED;
	instrument_open();
	return real.cuInit(flags);
}

/* How often the program retained a device's primary context: the last release destroys it. */
static struct {
	_Atomic int retains;
	CUcontext _Atomic handle;
} primaries[64];

static bool holds(CUdevice d)
{
	return d >= 0 && d < 64;
}

static void retained(CUcontext c, CUdevice d)
{
	if (!holds(d))
		return;
	atomic_store(&primaries[d].handle, c);
	atomic_fetch_add(&primaries[d].retains, 1);
}
AFTER(cuDevicePrimaryCtxRetain, (CUcontext *c, CUdevice d), (c, d), retained(*c, d))

static struct context *primary_of(CUdevice d)
{
	CUcontext handle = holds(d) ? atomic_load(&primaries[d].handle) : NULL;

	return handle ? context_find(handle) : NULL;
}

/* Destroys the recorder's objects while the context still exists. */
static struct context *ending(struct op *op, struct context *c)
{
	if (c)
		copy_sources_context_ends(c);
	if (!c || !op_start(op, recording_or_stopped()))
		return NULL;
	if (!capture_enter(c)) {
		capture_abandon(op->t, c);
		return NULL;
	}
	inflight_handle_ends();
	delays_context_ends(c);
	instrument_context_ends(c);
	capture_end(op->t, c, true, false);
	timeline_context_ends(c);
	instrumentation_context_ends(c);
	context_pop();
	return c;
}

/* c: what `ending` returned; in_arena: the same context if the arena may have memory of it. */
static CUresult ended(CUresult r, struct context *c, struct context *in_arena, bool primary)
{
	if (r != CUDA_SUCCESS)
		return r;
	if (c) {
		regions_died_of_context(c, &(struct region_origin){.seq = session_next_seq(),
								   .time_ns = clock_ns(),
								   .call = TT_NO_ID,
								   .label = TT_NO_ID});
		capture_streams_gone(c);
		arrays_context_gone(c);
		memory_context_gone(c);
		context_destroyed(c);
	}
	arena_context_gone(in_arena, primary);
	return r;
}

static CUresult release(struct op *op, CUdevice d, CUresult (*release_real)(CUdevice))
{
	bool last = holds(d) && atomic_load(&primaries[d].retains) == 1;
	struct context *known = last ? primary_of(d) : NULL, *c = ending(op, known);
	CUresult r = release_real(d);

	if (r == CUDA_SUCCESS && holds(d) && atomic_load(&primaries[d].retains) > 0)
		atomic_fetch_sub(&primaries[d].retains, 1);
	return ended(r, c, known, true);
}

static CUresult reset(struct op *op, CUdevice d, CUresult (*reset_real)(CUdevice))
{
	struct context *known = primary_of(d), *c = ending(op, known);

	return ended(reset_real(d), c, known, true);
}

static CUresult destroy(struct op *op, CUcontext handle, CUresult (*destroy_real)(CUcontext))
{
	struct context *known = context_find(handle), *c = ending(op, known);

	return ended(destroy_real(handle), c, known, false);
}

/* Its objects end with it; for the recording, so does memory that was allocated in it. */
static CUresult destroy_green(struct op *op, CUgreenCtx green, CUresult (*destroy_real)(CUgreenCtx))
{
	CUcontext handle = NULL;
	struct context *c = NULL;

	if (recording_or_stopped() && real.cuCtxFromGreenCtx && real.cuCtxFromGreenCtx(&handle, green) == CUDA_SUCCESS)
		c = ending(op, context_find(handle));
	return ended(destroy_real(green), c, NULL, false);
}

#define ENDS(symbol, type, how) \
	EXPORT CUresult CUDAAPI symbol(type what) \
	{ \
		HOOK(op, symbol); \
		return how(&op, what, real.symbol); \
	}
ENDS(cuDevicePrimaryCtxRelease, CUdevice, release)
ENDS(cuDevicePrimaryCtxRelease_v2, CUdevice, release)
ENDS(cuDevicePrimaryCtxReset, CUdevice, reset)
ENDS(cuDevicePrimaryCtxReset_v2, CUdevice, reset)
ENDS(cuCtxDestroy, CUcontext, destroy)
ENDS(cuCtxDestroy_v2, CUcontext, destroy)
ENDS(cuGreenCtxDestroy, CUgreenCtx, destroy_green)

/* Work of each stream before the wait is complete; reads the counts before. */
static uint64_t total(const struct op *op)
{
	return op->on ? context_work(op->context) : 0;
}

static void waited(struct op *op, CUresult r, uint64_t before)
{
	RECORD(op, r, TT_EVENT_SYNC);
	if (op->on && r == CUDA_SUCCESS && before == context_work(op->context))
		for (struct stream *s = atomic_load(&op->context->streams); s; s = s->next_of_context)
			atomic_store(&s->settled, atomic_load(&s->submitted));
	if (op->on && r == CUDA_SUCCESS)
		inflight_completed(op->context, op->seq + 1);
	if (op->on && r == CUDA_SUCCESS)
		copy_sources_complete(op->context, NULL, op->seq);
	if (r == CUDA_SUCCESS && options.epoch.sync)
		op_epoch(op, TT_TRIGGER_SYNC, TT_NO_ID);
}

/* Also for calls that are not recorded; c: NULL for the current context. */
static void freed_is_free(const struct op *op, CUresult r, CUcontext c, uint64_t mark)
{
	struct context *of = op->on ? op->context : c ? context_find(c) : context_current(thread_current());

	if (r == CUDA_SUCCESS && of)
		arena_context_waited_for(of, mark);
}

static void begin_wait(struct op *op, CUcontext c)
{
	struct context *of = c ? context_find(c) : NULL;

	if (op_begin(op) && of)
		op->context = of;
}

#define SYNCHRONIZES(symbol, context, params, args) \
	EXPORT CUresult CUDAAPI symbol params \
	{ \
		HOOK(op, symbol, copy_sources_look(), begin_wait(&op, context)); \
		uint64_t before = total(&op), mark = arena_mark(); \
		uint64_t since = op_only_waits(&op); \
		CUresult r = real.symbol args; \
		op_waited(&op, since); \
		if (unlikely(mark)) \
			freed_is_free(&op, r, context, mark); \
		waited(&op, r, before); \
		return r; \
	}
SYNCHRONIZES(cuCtxSynchronize, NULL, (void), ())
SYNCHRONIZES(cuCtxSynchronize_v2, c, (CUcontext c), (c))
