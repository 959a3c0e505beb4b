/*
 * Records replayable launches: memory before and after, and the settings that apply.
 *
 * Invariant: between the two epochs of such a launch no other thread submits work, unless one of them
 * is loose. A launch is recorded as replayable only if both epochs were cut, or if it may have
 * crashed.
 */
#include <string.h>

#include "capture/drain.h"
#include "store/params.h"
#include "track/views.h"
#include "hooks/launch.h"

#define SETTINGS 32
#define VIEWS 64

static void attributes_of(struct tt_setting *to, uint32_t *n, CUfunction f, const struct context *c)
{
	static const CUfunction_attribute wanted[] = {
		CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,     CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
		CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET,          CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH,
		CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT,           CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH,
		CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE};
	bool kernel = function_is_kernel(f);

	for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++) {
		int value;
		CUresult r = !kernel                     ? real.cuFuncGetAttribute(&value, wanted[i], f)
			     : real.cuKernelGetAttribute ? real.cuKernelGetAttribute(&value, wanted[i], (CUkernel)f, c->device)
							 : CUDA_ERROR_NOT_SUPPORTED;
		if (r == CUDA_SUCCESS)
			to[(*n)++] = (struct tt_setting){TT_SETTING_ATTRIBUTE, wanted[i], (uint64_t)(int64_t)value};
	}
}

static uint32_t read_settings(struct tt_setting *to, const struct op *op, struct function *f, CUfunction handle)
{
	static const CUlimit limits[] = {CU_LIMIT_STACK_SIZE,
					 CU_LIMIT_PRINTF_FIFO_SIZE,
					 CU_LIMIT_MALLOC_HEAP_SIZE,
					 CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH,
					 CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT,
					 CU_LIMIT_MAX_L2_FETCH_GRANULARITY,
					 CU_LIMIT_PERSISTING_L2_CACHE_SIZE};
	CUfunc_cache cache;
	uint32_t n = 0;
	size_t value;
	int priority;

	attributes_of(to, &n, handle, op->context);
	to[n++] = (struct tt_setting){TT_SETTING_CACHE, 0, atomic_load(&f->cache)};
	if (real.cuCtxGetCacheConfig && real.cuCtxGetCacheConfig(&cache) == CUDA_SUCCESS)
		to[n++] = (struct tt_setting){TT_SETTING_CACHE, 1, cache};
	for (size_t i = 0; real.cuCtxGetLimit && i < sizeof(limits) / sizeof(*limits); i++)
		if (real.cuCtxGetLimit(&value, limits[i]) == CUDA_SUCCESS)
			to[n++] = (struct tt_setting){TT_SETTING_LIMIT, limits[i], value};
	if (real.cuStreamGetPriority && real.cuStreamGetPriority(op->stream->handle, &priority) == CUDA_SUCCESS)
		to[n++] = (struct tt_setting){TT_SETTING_PRIORITY, 0, (uint64_t)(int64_t)priority};
	return n;
}

/* The position of these records in params.bin; 0: none, or no room. */
static uint32_t keep(const void *records, uint32_t *count, size_t size)
{
	uint32_t position = 0;
	uint8_t *to = *count ? params_next(*count * size, &position) : NULL;

	if (!to) {
		*count = 0;
		return 0;
	}
	memcpy(to, records, *count * size);
	params_filled(to, *count * size);
	return position;
}

static uint32_t find_views(struct tt_view *to, const struct op *op, const struct function *f, const uint8_t *params)
{
	uint32_t n = params ? views_named(op->context, params, op->event->params_size, to, VIEWS - 1) : 0;

	if (module_has_references(f->module))
		to[n++] = (struct tt_view){.kind = TT_VIEW_REFERENCE, .param = TT_NO_ID};
	return n;
}

static void write_record(struct tt_launch *l, const struct op *op, struct function *f, const struct shape *s,
			 const uint8_t *params)
{
	struct tt_setting settings[SETTINGS];
	struct tt_view views[VIEWS];
	_Static_assert(sizeof(struct tt_launch_attribute) == sizeof(*s->attributes), "attributes are stored unchanged");

	l->setting_count = read_settings(settings, op, f, s->f);
	l->settings = keep(settings, &l->setting_count, sizeof(*settings));
	l->attribute_count = s->attribute_count;
	l->attributes = keep(s->attributes, &l->attribute_count, sizeof(*s->attributes));
	l->view_count = find_views(views, op, f, params);
	l->views = keep(views, &l->view_count, sizeof(*views));
	store_launch(session_store(), l);
}

bool replayable_begin(struct op *op, struct function *f, const struct shape *s)
{
	if (atomic_load(&captures_active))
		return false; /* loading code may be forbidden in other threads too */
	if (!(atomic_load(&f->known) & context_bit(op->context))) {
		op->t->busy++;
		function_describe(op->context, f, s->f); /* the epoch must have the variables of its module */
		op->t->busy--;
	}
	op->held = capture_hold(op->t, op->context, f->name_string, &op->seq, &op->before);
	op->t->submits_for = op->seq;
	if (op->held && options.crash_safe)
		drain_flush(); /* the ring is lost if the launch crashes the context */
	return op->held;
}

void replayable_end(struct op *op, CUresult r, struct function *f, const struct shape *s, const uint8_t *params)
{
	struct tt_launch l = {.seq = op->seq, .before = op->before, .after = TT_NO_EPOCH, .function = f->id};

	if (r == CUDA_SUCCESS)
		l.after = capture_after(op->t, op->context, f->name_string, op->seq);
	bool kept = l.after != TT_NO_EPOCH || (r == CUDA_SUCCESS && options.crash_safe);
	if (kept && op->event && (params || !f->param_bytes)) {
		write_record(&l, op, f, s, params);
		if (options.max_per_kernel && ++f->replayables >= options.max_per_kernel)
			atomic_store(&f->replayable, false);
	}
	capture_let_others(op->t);
}
