/*
 * Wrappers of kernel launches, host functions and graph launches.
 */
#include <string.h>

#include "capture/graph_epochs.h"
#include "store/params.h"
#include "track/graphs.h"
#include "hooks/launch.h"
#include "instrument/graph_launches.h"
#include "hooks/plain_launch.h"

/* Stores the parameters of a successful launch, whose pointers the driver has read. Returns the stored copy. */
static const uint8_t *keep_params(struct tt_event *e, const struct function *f, void **params, void **extra)
{
	size_t size;
	const void *buffer = launch_buffer(extra, &size);
	uint8_t *to;

	if (!buffer)
		size = params && f ? f->param_bytes : 0;
	if (!size || !(to = params_next(size, &e->params)))
		return NULL;
	e->params_size = (uint32_t)size;
	if (buffer)
		memcpy(to, buffer, size);
	for (uint32_t i = 0; !buffer && i < f->param_count; i++)
		memcpy(to + f->params[i].offset, params[i], f->params[i].size);
	params_filled(to, size);
	return to;
}

void launch_extras(struct tt_event *e, CUresult r, const struct function *f, void **params, void **extra)
{
	if (options.launch_stacks)
		e->stack = op_stack();
	if (options.params && r == CUDA_SUCCESS)
		keep_params(e, f, params, extra);
}

void launch_touches(struct context *c, const struct function *f, void **params, void **extra)
{
	size_t size;
	const void *buffer = launch_buffer(extra, &size);

	if (!f || !f->param_count) {
		regions_touch_all(c);
		return;
	}
	if (buffer)
		regions_touch_pointers(buffer, size);
	for (uint32_t i = 0; params && i < f->param_count; i++)
		regions_touch_pointers(params[i], f->params[i].size);
}

/*
 * Whether a launch may write memory that a capture is reading, and in which region; 0: any. True for launches
 * without known parameters.
 */
static __attribute__((noinline)) bool may_write_captured(const struct op *op, const struct function *f, const struct shape *s,
							 uint64_t *base)
{
	uint32_t awaited = atomic_load(&op->stream->awaited_capture);
	const void *buffer;
	size_t size;

	if (!f || !(atomic_load(&f->known) & context_bit(op->context)) || !f->param_count ||
	    (int32_t)(atomic_load(&op->context->rest_captured_by) - awaited) > 0)
		return true;
	if ((buffer = launch_buffer(s->extra, &size)))
		return (*base = regions_point_to_captured(buffer, size, awaited));
	for (uint32_t i = 0; s->params && i < f->param_count; i++)
		if ((*base = regions_point_to_captured(s->params[i], f->params[i].size, awaited)))
			return true;
	return !s->params;
}

static void order_launch(struct op *op, const struct function *f, const struct shape *s)
{
	uint64_t base = 0;

	if (may_write_captured(op, f, s, &base))
		op_catch_up(op, base);
	else
		capture_overtake(op->stream);
}

/* Epochs before the launch: they close the gate, so leave it meanwhile. */
static void begin_chosen(struct op *op, struct function *f, const struct shape *s)
{
	if (!capture_in_window(1))
		return;
	atomic_fetch_add(&gate_ahead, 1);
	gate_leave(op->t);
	if (!atomic_load(&f->replayable) || !replayable_begin(op, f, s)) {
		if (f->chosen)
			op_epoch(op, TT_TRIGGER_KERNEL_BEFORE, f->name_string);
		gate_enter(op->t);
	}
	atomic_fetch_sub(&gate_ahead, 1);
	op_catch_up(op, 0);
}

static void begin_traced(struct op *op, struct function *f, struct shape *s)
{
	if (op->capturing || !instrument_next())
		return;
	CUstreamCaptureMode mode = recorder_work_begin(op->t);
	if (!(atomic_load(&f->known) & context_bit(op->context)))
		function_describe(op->context, f, s->f);
	struct traced_launch l = {
		.program = {s->f, s->params, s->extra, s->block[0] * s->block[1] * s->block[2],
			    launch_is_flat(s->grid, s->block), op->stream->handle},
		.grid = s->grid,
		.block = s->block,
		.seq = op->seq,
		.number = TT_NO_ID,
		.refused = s->params && s->extra ? "one passes its parameters twice, which the driver refuses" : NULL,
	};
	s->flight = instrument_begin(op->context, f, &l);
	s->runs = l.runs;
	s->replaced = l.runs.f;
	recorder_work_end(op->t, mode);
}

static __attribute__((noinline)) void end_traced(struct op *op, struct shape *s, const struct function *f, CUresult r)
{
	CUstreamCaptureMode mode = recorder_work_begin(op->t);

	instrument_submitted(s->flight, f, op->stream->handle, r != CUDA_SUCCESS);
	recorder_work_end(op->t, mode);
}

/* The driver refused to launch the code that records: the program's own is launched. */
static __attribute__((noinline)) void not_traced(struct op *op, struct shape *s, const struct function *f, CUresult r)
{
	const char *error = NULL;

	real.cuGetErrorName(r, &error);
	session_lost("a launch of %.120s is not traced: the driver refused its patched code (%s)", f->name,
		     error ? error : "?");
	end_traced(op, s, f, r);
	s->flight = NULL;
}

static __attribute__((noinline)) void begin_special(struct op *op, struct function *f, struct shape *s)
{
	if ((f->chosen || atomic_load(&f->replayable)) && !op->capturing)
		begin_chosen(op, f, s);
	if (f->traced)
		begin_traced(op, f, s);
}

HOT static __attribute__((noinline)) struct function *begin_launch(struct op *op, struct shape *s, CUstream stream,
								   bool per_thread)
{
	if (!op_begin_launch(op, stream, per_thread))
		return NULL;
	struct function *f = function_of(s->f);
	if (options.deps_of_regions && !op->capturing && stream_is_behind(op->stream))
		order_launch(op, f, s);
	if (f && unlikely(function_is_special(f)))
		begin_special(op, f, s);
	op_time(op);
	return f;
}

/* A graph launch counts as a kernel launch. Returns its number, 0 if launches are not counted. */
static inline uint64_t count_launch(void)
{
	return options.epoch.launch || options.epoch.window ? capture_count_launch() : 0;
}

static inline bool is_epoch_due(uint64_t number)
{
	return number && options.epoch.launch && (number - options.epoch.first) % options.epoch.launch == 0;
}

static void end_count(struct op *op, uint64_t number, uint32_t label)
{
	if (is_epoch_due(number))
		op_epoch(op, TT_TRIGGER_LAUNCH, label);
}

void launch_counted(const struct plain *p)
{
	if (is_epoch_due(count_launch()) && session_state == SESSION_ON)
		capture_epoch(&thread_self, p->stream->context, TT_TRIGGER_LAUNCH, p->function->name_string, p->seq, false);
}

static inline void write_shape(struct tt_event *e, uint32_t id, const struct shape *s)
{
	event_pair(e, offsetof(struct tt_event, id), id, s->shared);
	event_pair(e, offsetof(struct tt_event, grid), s->grid[0], s->grid[1]);
	event_pair(e, offsetof(struct tt_event, grid[2]), s->grid[2], s->block[0]);
	event_pair(e, offsetof(struct tt_event, block[1]), s->block[1], s->block[2]);
	event_pair(e, offsetof(struct tt_event, cluster), s->cluster[0], s->cluster[1]);
	event_pair(e, offsetof(struct tt_event, cluster[2]), s->cluster[2], 0); /* parameters, if any, come later */
	if (unlikely(s->flags))
		e->flags |= s->flags;
}

HOT static void end_launch(struct op *op, CUresult r, struct shape *s, struct function *f)
{
	const uint8_t *params = NULL;
	struct tt_event *e;

	if (!op->on)
		return;
	if (unlikely(s->flight != NULL))
		end_traced(op, s, f, r);
	if (r == CUDA_SUCCESS && f &&
	    unlikely(!(atomic_load_explicit(&f->known, memory_order_acquire) & context_bit(op->context)))) {
		op->t->busy++;
		function_describe(op->context, f, s->f);
		delays_look_for_clusters(f->name, s->f, s->cluster);
		op->t->busy--;
	}
	if (options.launch_events && (e = op_slot(op, r, options.launch_stacks))) {
		e->dst = op->waited_for;
		write_shape(e, f ? f->id : TT_NO_ID, s);
		if (options.params && r == CUDA_SUCCESS)
			params = keep_params(e, f, s->params, s->extra);
		event_commit(e, TT_EVENT_LAUNCH);
	}
	if (controls.touched && r == CUDA_SUCCESS)
		launch_touches(op->context, f, s->params, s->extra);
	op_end(op, r);
	if (unlikely(op->held))
		replayable_end(op, r, f, s, params);
	if (r != CUDA_SUCCESS || op->capturing)
		return;
	uint64_t number = count_launch();
	if (f && unlikely(f->chosen) && !op->held)
		op_epoch(op, TT_TRIGGER_KERNEL_AFTER, f->name_string);
	end_count(op, number, f ? f->name_string : TT_NO_ID);
}

/* with: the call with the arguments of other code. */
#define ANY_LAUNCH(head, symbol, per_thread, stream, shape_, params, args, with) \
	head params \
	{ \
		struct shape shape; \
		HOOK(op, symbol); \
		shape_; \
		struct function *f = begin_launch(&op, &shape, stream, per_thread); \
		CUresult r = CUDA_ERROR_UNKNOWN; \
		if (unlikely(shape.replaced) && (r = real.symbol with) != CUDA_SUCCESS) \
			not_traced(&op, &shape, f, r); \
		if (r != CUDA_SUCCESS) \
			r = real.symbol args; \
		end_launch(&op, r, &shape, f); \
		return r; \
	}

/* For calls that may launch a plain kernel; condition: this one does. */
#define LAUNCH(symbol, per_thread, stream, shape_, params, args, with, condition, ...) \
	ANY_LAUNCH(static __attribute__((noinline)) CUresult any_##symbol, symbol, per_thread, stream, shape_, params, args, with) \
	EXPORT HOT CUresult CUDAAPI symbol params \
	{ \
		__typeof__(&symbol) call = __atomic_load_n(&real.symbol, __ATOMIC_ACQUIRE); \
		struct plain plain; \
		if (unlikely(!call) || !(condition) || !plain_begin(&plain, CALL_##symbol, f_, stream, per_thread)) \
			return any_##symbol args; \
		CUresult r = call args; \
		plain_end(&plain, CALL_##symbol, r, (const struct plain_arguments)__VA_ARGS__); \
		return r; \
	}

/* Not all of it: that takes as long as the rest of a wrapper. */
static inline void shape_of(struct shape *s, CUfunction f, void **params, void **extra, uint32_t flags)
{
	s->f = f;
	s->params = params;
	s->extra = extra;
	s->flags = flags;
	s->cluster[0] = s->cluster[1] = s->cluster[2] = 0;
	s->attributes = NULL;
	s->attribute_count = 0;
	s->flight = NULL;
	s->replaced = false;
}

static inline void shape_sizes(struct shape *s, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
			       unsigned shared)
{
	s->grid[0] = gx, s->grid[1] = gy, s->grid[2] = gz;
	s->block[0] = bx, s->block[1] = by, s->block[2] = bz;
	s->shared = shared;
}

#define SHAPE(flags, extra) \
	shape_of(&shape, f_, params, extra, flags); \
	shape_sizes(&shape, gx, gy, gz, bx, by, bz, shared)

static inline void shape_of_config(struct shape *s, const CUlaunchConfig *c, CUfunction f, void **params, void **extra)
{
	shape_of(s, f, params, extra, 0);
	if (!c) {
		shape_sizes(s, 0, 0, 0, 0, 0, 0, 0);
		return;
	}
	shape_sizes(s, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ, c->sharedMemBytes);
	s->attributes = c->attrs;
	s->attribute_count = c->attrs ? c->numAttrs : 0;
	for (unsigned i = 0; c->attrs && i < c->numAttrs; i++) {
		const CUlaunchAttribute *a = &c->attrs[i];
		if (a->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
			s->cluster[0] = a->value.clusterDim.x, s->cluster[1] = a->value.clusterDim.y,
			s->cluster[2] = a->value.clusterDim.z;
		if (a->id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && a->value.cooperative)
			s->flags |= TT_EVENTF_COOPERATIVE;
	}
}

static inline bool is_plain_config(const CUlaunchConfig *c)
{
	for (unsigned i = 0; c && c->attrs && i < c->numAttrs; i++)
		if (c->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION ||
		    c->attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
			return false;
	return c;
}

/* The event of a launch whose function is not known. */
static __attribute__((noinline)) struct tt_event *event_of_launch(struct op *op, CUresult r)
{
	struct tt_event *e = op_slot(op, r, options.launch_stacks);

	if (e)
		e->id = TT_NO_ID;
	return e;
}

static void end_other(struct op *op, CUresult r, uint32_t kind, bool touches)
{
	struct tt_event *e = kind != TT_EVENT_LAUNCH ? op_event(op, r) : options.launch_events ? event_of_launch(op, r) : NULL;

	if (kind == TT_EVENT_LAUNCH_HOST)
		op_host_bound(op, r);
	if (e)
		events_publish(e, kind);
	if (touches && op->on && controls.touched)
		regions_touch_all(op->context);
	op_end(op, r);
	if (op->on && r == CUDA_SUCCESS && !op->capturing && kind != TT_EVENT_LAUNCH_HOST)
		end_count(op, count_launch(), TT_NO_ID);
}

#define OTHER(symbol, per_thread, stream, kind, touches, params, args) \
	EXPORT CUresult CUDAAPI symbol params \
	{ \
		HOOK(op, symbol, op_begin_work(&op, stream, per_thread, true, DELAYS)); \
		if ((kind) == TT_EVENT_LAUNCH) \
			op_time(&op); \
		else \
			op_delay(&op); \
		CUresult r = real.symbol args; \
		end_other(&op, r, kind, touches); \
		return r; \
	}

/* As order_launch for kernels. */
static void order_graph(struct op *op, struct exec *x)
{
	uint32_t awaited = atomic_load(&op->stream->awaited_capture);
	uint64_t base = 0;

	if ((int32_t)(atomic_load(&op->context->rest_captured_by) - awaited) > 0 || graph_may_write_captured(x, awaited, &base))
		op_catch_up(op, base);
	else
		capture_overtake(op->stream);
}

static struct exec *begin_graph(struct op *op, CUgraphExec handle)
{
	struct exec *x = graphs_find(handle);

	graphs_write();
	if (options.deps_of_regions && !op->capturing && stream_is_behind(op->stream))
		order_graph(op, x);
	if (unlikely(contexts_several()) && op->on && x && !op->capturing) {
		uint64_t spread = graph_spread(x);
		for (struct context *c = context_first(); c; c = c->next)
			if (spread & context_bit(c))
				op_reaches(op, c);
	}
	return x;
}

/* Prepares epochs inside the graph, last before the call. NULL: none. */
static struct instrumentation *begin_inside(struct op *op, struct exec *x)
{
	struct instrumentation *inserted = op->capturing || !capture_in_window(1) ? NULL : graph_instrumentation(x);

	if (inserted && !instrumentation_begin(op->t, inserted, x, op->stream, op->seq))
		inserted = NULL;
	op_time(op);
	return inserted;
}

static void end_graph(struct op *op, CUresult r, struct exec *x)
{
	struct tt_event *e = event_of_launch(op, r);
	bool born = false;

	if (e) {
		e->id = graph_number(x);
		e->dst = op->waited_for;
		events_publish(e, TT_EVENT_GRAPH_LAUNCH);
	}
	if (r == CUDA_SUCCESS && !op->capturing && graph_keeps_memory(x)) {
		struct region_origin origin = op_origin(op);
		born = graph_memory_launched(x, op->context, &origin);
	}
	if (controls.touched && r == CUDA_SUCCESS && !graph_touch(x))
		regions_touch_all(op->context);
	op_end(op, r);
	if (born)
		capture_prepare(op->t, op->context);
	if (r == CUDA_SUCCESS && op->capturing && graph_instrumentation(x) &&
	    !instrumentation_has_shadow(graph_instrumentation(x)))
		instrumentation_give_up(
			graph_instrumentation(x)); /* part of another graph now, whose launches are not tracked */
	if (r != CUDA_SUCCESS || op->capturing)
		return;
	uint64_t number = count_launch();
	if (options.epoch.graph)
		op_epoch(op, TT_TRIGGER_GRAPH, graph_label(x));
	end_count(op, number, TT_NO_ID);
}

/* Launches a graph, or the copy of it that records. */
static CUresult launch_graph(struct op *op, struct exec *x, CUgraphExec runs, CUstream stream,
			     __typeof__(&cuGraphLaunch) launch)
{
	struct graph_launch l = {op->context, x, op->seq, op->stream->handle, NULL};
	CUstreamCaptureMode mode = recorder_work_begin(op->t);
	CUgraphExec copy = traced_graph_begin(&l);
	recorder_work_end(op->t, mode);
	CUresult r = copy ? launch(copy, stream) : CUDA_ERROR_UNKNOWN;

	mode = recorder_work_begin(op->t);
	if (copy && r != CUDA_SUCCESS)
		traced_graph_refused(&l, r);
	recorder_work_end(op->t, mode);
	if (r != CUDA_SUCCESS)
		r = launch(runs, stream);
	mode = recorder_work_begin(op->t);
	traced_graph_end(&l, r != CUDA_SUCCESS);
	recorder_work_end(op->t, mode);
	return r;
}

static CUgraphExec what_runs(CUgraphExec exec, const struct exec *x, bool capturing)
{
	struct instrumentation *inserted = capturing ? NULL : graph_instrumentation(x);
	CUgraphExec shadow = inserted ? instrumentation_shadow(inserted) : NULL;

	return shadow ? shadow : exec;
}

#define GRAPH(symbol, per_thread) \
	EXPORT CUresult CUDAAPI symbol(CUgraphExec exec, CUstream stream) \
	{ \
		HOOK(op, symbol, op_begin_launch(&op, stream, per_thread)); \
		struct exec *x = op.on ? begin_graph(&op, exec) : NULL; \
		struct instrumentation *inserted = op.on ? begin_inside(&op, x) : NULL; \
		CUgraphExec runs = what_runs(exec, op.on ? x : graphs_find(exec), op.capturing); \
		CUresult r = op.on && options.instrument && x && !op.capturing \
				     ? launch_graph(&op, x, runs, stream, real.symbol) \
				     : real.symbol(runs, stream); \
		if (inserted) \
			instrumentation_end(op.t, inserted, op.stream, r == CUDA_SUCCESS); \
		if (op.on) \
			end_graph(&op, r, x); \
		return r; \
	}

#define LAUNCHES(S, PT) \
	LAUNCH(cuLaunchKernel##S, PT, stream, SHAPE(0, extra), (CUfunction f_, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream stream, void **params, void **extra), (f_, gx, gy, gz, bx, by, bz, shared, stream, params, extra), (shape.runs.f, gx, gy, gz, bx, by, bz, shared, stream, shape.runs.params, NULL), true, {{gx, gy, gz}, {bx, by, bz}, shared, params, extra}) \
	ANY_LAUNCH(EXPORT HOT CUresult CUDAAPI cuLaunchCooperativeKernel##S, cuLaunchCooperativeKernel##S, PT, stream, SHAPE(TT_EVENTF_COOPERATIVE, NULL), (CUfunction f_, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream stream, void **params), (f_, gx, gy, gz, bx, by, bz, shared, stream, params), (shape.runs.f, gx, gy, gz, bx, by, bz, shared, stream, shape.runs.params)) \
	LAUNCH(cuLaunchKernelEx##S, PT, config ? config->hStream : NULL, shape_of_config(&shape, config, f_, params, extra), (const CUlaunchConfig *config, CUfunction f_, void **params, void **extra), (config, f_, params, extra), (config, shape.runs.f, shape.runs.params, NULL), is_plain_config(config), {{config->gridDimX, config->gridDimY, config->gridDimZ}, {config->blockDimX, config->blockDimY, config->blockDimZ}, config->sharedMemBytes, params, extra}) \
	OTHER(cuLaunchHostFunc##S, PT, stream, TT_EVENT_LAUNCH_HOST, false, (CUstream stream, CUhostFn fn, void *user), (stream, fn, user)) \
	OTHER(cuStreamAddCallback##S, PT, stream, TT_EVENT_LAUNCH_HOST, false, (CUstream stream, CUstreamCallback fn, void *user, unsigned flags), (stream, fn, user, flags)) \
	GRAPH(cuGraphLaunch##S, PT)

LAUNCHES(, false)
LAUNCHES(_ptsz, true)

OTHER(cuLaunch, false, NULL, TT_EVENT_LAUNCH, true, (CUfunction f), (f))
OTHER(cuLaunchGrid, false, NULL, TT_EVENT_LAUNCH, true, (CUfunction f, int w, int h), (f, w, h))
OTHER(cuLaunchGridAsync, false, stream, TT_EVENT_LAUNCH, true, (CUfunction f, int w, int h, CUstream stream), (f, w, h, stream))
OTHER(cuLaunchCooperativeKernelMultiDevice, false, list ? list->hStream : NULL, TT_EVENT_LAUNCH, true, (CUDA_LAUNCH_PARAMS *list, unsigned n, unsigned flags), (list, n, flags))
