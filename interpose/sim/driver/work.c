/*
 * Work items: what stream operations and graph nodes have in common.
 *
 * Invariant: a shared work item never changes, so a stream, a graph and any number of instantiated graphs
 * may share it. A change of a node's parameters creates a new item.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/driver/driver.h"
#include "sim_trace.h"

struct sim_work *work_new(enum work_type type, CUcontext ctx)
{
	struct sim_work *w = sim_alloc(sizeof *w);

	w->refs = 1;
	w->type = type;
	w->ctx = ctx;
	return w;
}

struct sim_work *work_ref(struct sim_work *w)
{
	w->refs++;
	return w;
}

struct sim_work *work_traced(const struct sim_work *w, struct tt_sim_trace *trace)
{
	struct sim_work *own = sim_copy(w, sizeof *w);
	const ptx_function_info *info = w->kernel.function->info;

	own->refs = 1;
	own->kernel.params = sim_copy(w->kernel.params, info->param_bytes);
	own->kernel.pointers = NULL;
	own->kernel.trace = trace;
	return own;
}

void work_unref(struct sim_work *w)
{
	if (!w || --w->refs)
		return;
	switch (w->type) {
	case WORK_KERNEL:
		free(w->kernel.params);
		free(w->kernel.pointers);
		free(w->kernel.trace);
		break;
	case WORK_COPY:
		array_unref(w->copy.copy.src.array);
		array_unref(w->copy.copy.dst.array);
		free(w->copy.staged);
		break;
	case WORK_RECORD:
	case WORK_WAIT_EVENT:
		event_unref(w->event);
		break;
	case WORK_POOL_ALLOC:
		pool_forget_node(w);
		free(w->pool.access);
		break;
	case WORK_MEMOPS:
		free(w->memops.ops);
		break;
	case WORK_CONDITION:
		exec_unref(w->condition.root);
		op_unref(w->condition.end);
		break;
	default:
		break;
	}
	free(w);
}

/* ---- kernels ---- */

static void *translate(void *user, uint64_t address, size_t size, bool write)
{
	struct region_access access = *(struct region_access *)user;

	access.write = write;
	return region_resolve(address, size, &access);
}

static void describe(void *user, uint64_t address, char *text, size_t size)
{
	(void)user;
	region_describe(address, text, size);
}

static CUresult launch_result(ptx_status status)
{
	switch (status) {
	case PTX_OK:
		return CUDA_SUCCESS;
	case PTX_BAD_ADDRESS:
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	case PTX_MISALIGNED:
		return CUDA_ERROR_MISALIGNED_ADDRESS;
	case PTX_ASSERT:
		return CUDA_ERROR_ASSERT;
	case PTX_UNSUPPORTED:
		return CUDA_ERROR_NOT_SUPPORTED;
	case PTX_ILLEGAL:
		return CUDA_ERROR_ILLEGAL_INSTRUCTION;
	case PTX_TIMEOUT:
		return CUDA_ERROR_LAUNCH_TIMEOUT;
	default:
		return CUDA_ERROR_LAUNCH_FAILED;
	}
}

static CUresult kernel_run(struct sim_work *w, const struct work_part *part, char *why, size_t size)
{
	bool recorder = !strncmp(w->kernel.function->info->name, "tt_", 3);
	struct region_access access = {w->ctx->device, context_reach(w->ctx), false, true, recorder};
	ptx_launch_config config = {
		.dynamic_shared = w->kernel.shared,
		.params = w->kernel.params,
		.cooperative = w->kernel.cooperative,
		.schedule_seed = part->schedule_seed,
		.first = part->first,
		.count = part->count,
		.translate = translate,
		.describe = describe,
		.set_condition = conditional_set,
		.user = &access,
		.trace = w->kernel.trace,
		.pause = engine_pause,
		.deadlocks = sim_settings.deadlocks || (w->kernel.trace && w->kernel.trace->param.heartbeat),
	};

	memcpy(config.grid, w->kernel.grid, sizeof config.grid);
	memcpy(config.block, w->kernel.block, sizeof config.block);
	memcpy(config.cluster, w->kernel.cluster, sizeof config.cluster);
	return launch_result(ptx_launch(w->kernel.function->code, &config, why, size));
}

CUresult work_run(struct sim_work *w, const struct work_part *part, char *why, size_t size)
{
	switch (w->type) {
	case WORK_KERNEL:
		return kernel_run(w, part, why, size);
	case WORK_COPY:
		snprintf(why, size, "copy of memory that is gone or not accessible");
		return copy_run(w->ctx, &w->copy.copy, w->copy.staged);
	case WORK_FILL:
		snprintf(why, size, "fill of memory that is gone or not accessible");
		return fill_run(w->ctx, w->fill.dst, w->fill.pitch, w->fill.element, w->fill.value, w->fill.width,
				w->fill.height);
	default:
		return CUDA_SUCCESS;
	}
}
