/*
 * Modules and functions.
 *
 * Invariant: a module's variables are regions of its context while it is loaded. It is unloaded only when
 * no work of its context is left that could use them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/driver/driver.h"

/* ---- loading ---- */

static uint64_t place_global(void *user, const ptx_global *g)
{
	CUmodule module = user;
	struct region *r;
	CUcontext ctx = module->ctx;

	if (region_new(ctx->device, ctx, g->size ? g->size : 1, g->align, REGION_GLOBAL, &r)) {
		module->starved = true;
		return 0;
	}
	if (g->init)
		memcpy(r->memory, g->init, g->size);
	else
		memset(r->memory, 0, g->size);
	r->read_only = g->constant;
	module->globals = realloc(module->globals, (module->global_count + 1) * sizeof *module->globals);
	if (!module->globals)
		abort();
	module->globals[module->global_count++] = r;
	return r->base;
}

static bool module_charge(CUmodule module)
{
	struct sim_device *d = &sim_devices[module->ctx->device];

	if (d->kept) {
		d->kept -= SIM_GRANULARITY;
		return module->charged = true;
	}
	return module->charged = device_charge(module->ctx->device, SIM_GRANULARITY);
}

static void module_free(CUmodule module)
{
	if (module->charged)
		sim_devices[module->ctx->device].kept += SIM_GRANULARITY;
	for (size_t i = 0; i < module->global_count; i++)
		region_delete(module->globals[i]);
	if (module->code)
		ptx_unload(module->code);
	free(module->globals);
	free(module->functions);
	free(module->text);
	free(module);
}

static const struct tt_sim_delays *delays; /* of kernels; NULL: none */

__attribute__((visibility("default"))) void ttSimDelays(const struct tt_sim_delays *choose)
{
	pthread_mutex_lock(&sim_mutex);
	delays = choose;
	pthread_mutex_unlock(&sim_mutex);
}

CUresult module_load(CUcontext ctx, const char *text, CUmodule *out, char *log, size_t log_size)
{
	CUmodule module = sim_alloc(sizeof *module);
	ptx_loader loader = {.place_global = place_global, .user = module};

	module->ctx = ctx;
	if (!(module->text = strdup(text)))
		abort();
	module->code = ptx_load(text, &loader, log, log_size);
	if (!module->code) {
		CUresult result = module->starved ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_PTX;
		module_free(module);
		return result;
	}
	if (delays && !ptx_delay(module->code, delays)) {
		module_free(module);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (sim_settings.keeps && !module_charge(module)) {
		module_free(module);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	module->function_count = ptx_function_count(module->code);
	module->functions = sim_alloc(module->function_count * sizeof *module->functions);
	for (size_t i = 0; i < module->function_count; i++) {
		CUfunction f = &module->functions[i];
		f->module = module;
		f->code = ptx_function_at(module->code, i);
		f->info = ptx_info(f->code);
		f->dynamic_shared_max = 49152 - (int)f->info->shared_bytes;
		f->carveout = -1;
		f->loaded = !sim_settings.lazy;
		handle_add(f, HANDLE_FUNCTION);
	}
	LIST_INSERT_HEAD(&ctx->modules, module, all);
	handle_add(module, HANDLE_MODULE);
	*out = module;
	return CUDA_SUCCESS;
}

void function_load(CUfunction f)
{
	if (!f->loaded)
		context_wait(f->module->ctx);
	f->loaded = true;
}

void module_delete(CUmodule module)
{
	library_forget(module);
	handle_remove(module);
	LIST_REMOVE(module, all);
	for (size_t i = 0; i < module->function_count; i++)
		handle_remove(&module->functions[i]);
	module_free(module);
}

CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned int count, CUjit_option *options, void **values)
{
	CUcontext ctx;
	char log[512] = "", *text;
	CUresult result = sim_enter(&ctx);

	if (result)
		return result;
	INVALID_IF(!out || !image || (count && (!options || !values)));
	result = image_text(image, &text, log, sizeof log);
	if (!result) {
		result = module_load(ctx, text, out, log, sizeof log);
		free(text);
	}
	image_report(log, count, options, values);
	if (result)
		sim_note("module not loaded: %s", log);
	return sim_leave(result);
}

CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
	return cuModuleLoadDataEx(out, image, 0, NULL, NULL);
}

CUresult cuModuleLoadFatBinary(CUmodule *out, const void *image)
{
	return cuModuleLoadDataEx(out, image, 0, NULL, NULL);
}

CUresult cuModuleLoad(CUmodule *out, const char *path)
{
	void *image;
	CUresult result = sim_life();

	if (result)
		return result;
	result = path ? image_read(path, &image) : CUDA_ERROR_INVALID_VALUE;
	if (result)
		return result;
	result = cuModuleLoadData(out, image);
	free(image);
	return result;
}

static CUresult enter_module(CUmodule module)
{
	CUcontext ctx;
	CUresult result = sim_enter(&ctx);

	if (!result && !handle_is(module, HANDLE_MODULE))
		return sim_leave(CUDA_ERROR_INVALID_HANDLE);
	return result;
}

CUresult cuModuleUnload(CUmodule module)
{
	CUresult result = enter_module(module);

	if (result)
		return result;
	result = capture_forbids();
	if (result)
		return sim_leave(result);
	CUcontext ctx = module->ctx;
	context_wait(ctx);
	engine_quiesce();
	if (!handle_is(module, HANDLE_MODULE) || module->library)
		return sim_leave(CUDA_ERROR_INVALID_HANDLE);
	module_delete(module);
	return sim_leave(ctx->fault);
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
	ENTER(sim_enter_driver());
	INVALID_IF(!mode);
	*mode = CU_MODULE_EAGER_LOADING;
	return sim_leave(CUDA_SUCCESS);
}

/* ---- what a module holds ---- */

CUfunction module_function(CUmodule module, const char *name)
{
	for (size_t i = 0; i < module->function_count; i++) {
		if (!strcmp(module->functions[i].info->name, name))
			return &module->functions[i];
	}
	return NULL;
}

CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name)
{
	ENTER(enter_module(module));
	INVALID_IF(!out || !name);
	CUfunction f = module_function(module, name);
	if (f)
		*out = f;
	return sim_leave(f ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
}

CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule module)
{
	ENTER(enter_module(module));
	INVALID_IF(!count);
	*count = (unsigned)module->function_count;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuModuleEnumerateFunctions(CUfunction *out, unsigned int room, CUmodule module)
{
	ENTER(enter_module(module));
	INVALID_IF(!out || !room);
	for (size_t i = 0; i < module->function_count && i < room; i++)
		out[i] = &module->functions[i];
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *size, CUmodule module, const char *name)
{
	uint64_t at;
	size_t bytes;

	ENTER(enter_module(module));
	INVALID_IF(!name || (!address && !size));
	if (!ptx_find_global(module->code, name, &at, &bytes))
		return sim_leave(CUDA_ERROR_NOT_FOUND);
	if (address)
		*address = at;
	if (size)
		*size = bytes;
	return sim_leave(CUDA_SUCCESS);
}

/* ---- functions ---- */

CUresult function_get(CUcontext ctx, CUfunction handle, CUfunction *out)
{
	if (handle_is(handle, HANDLE_KERNEL))
		return kernel_function(ctx, (CUkernel)handle, out);
	if (!handle_is(handle, HANDLE_FUNCTION))
		return CUDA_ERROR_INVALID_HANDLE;
	*out = handle;
	return CUDA_SUCCESS;
}

static CUresult enter_function(CUfunction *f)
{
	CUcontext ctx;
	CUresult result = sim_enter(&ctx);

	if (result)
		return result;
	result = function_get(ctx, *f, f);
	return result ? sim_leave(result) : CUDA_SUCCESS;
}

CUresult function_attribute(const struct CUfunc_st *f, CUfunction_attribute attribute, int *out)
{
	switch (attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*out = (int)f->info->max_threads;
		break;
	case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
		*out = (int)f->info->shared_bytes;
		break;
	case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
		*out = (int)f->info->local_bytes;
		break;
	case CU_FUNC_ATTRIBUTE_NUM_REGS:
		*out = (int)f->info->registers;
		break;
	case CU_FUNC_ATTRIBUTE_PTX_VERSION:
	case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
		*out = 90;
		break;
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		*out = f->dynamic_shared_max;
		break;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		*out = f->carveout;
		break;
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
		*out = f->large_clusters;
		break;
	case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		*out = f->cluster_policy;
		break;
	case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
	case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
	case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
		*out = 0;
		break;
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
		*out = (int)f->info->cluster[attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH];
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

CUresult function_set_attribute(CUfunction f, CUfunction_attribute attribute, int value)
{
	int room = device_attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 0) - (int)f->info->shared_bytes;

	switch (attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		if (value < 0 || value > room)
			return CUDA_ERROR_INVALID_VALUE;
		f->dynamic_shared_max = value;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		if (value < -1 || value > 100)
			return CUDA_ERROR_INVALID_VALUE;
		f->carveout = value;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
		f->large_clusters = value != 0;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		if (value < CU_CLUSTER_SCHEDULING_POLICY_DEFAULT || value > CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING)
			return CUDA_ERROR_INVALID_VALUE;
		f->cluster_policy = value;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult function_param(const ptx_function *f, size_t index, size_t *offset, size_t *size)
{
	const ptx_function_info *info = ptx_info(f);

	if (!offset || index >= info->param_count)
		return CUDA_ERROR_INVALID_VALUE;
	*offset = info->params[index].offset;
	if (size)
		*size = info->params[index].size;
	return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction f)
{
	ENTER(enter_function(&f));
	return sim_leave(value ? function_attribute(f, attribute, value) : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute attribute, int value)
{
	CUresult result = enter_function(&f);

	return result ? result : sim_leave(function_set_attribute(f, attribute, value));
}

CUresult cuFuncSetCacheConfig(CUfunction f, CUfunc_cache config)
{
	ENTER(enter_function(&f));
	return sim_leave(config >= CU_FUNC_CACHE_PREFER_NONE && config <= CU_FUNC_CACHE_PREFER_EQUAL
				 ? CUDA_SUCCESS
				 : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuFuncSetSharedMemConfig(CUfunction f, CUsharedconfig config)
{
	ENTER(enter_function(&f));
	return sim_leave(config >= 0 && config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE ? CUDA_SUCCESS
											    : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuFuncGetModule(CUmodule *out, CUfunction f)
{
	ENTER(enter_function(&f));
	INVALID_IF(!out);
	*out = f->module;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuFuncGetName(const char **name, CUfunction f)
{
	ENTER(enter_function(&f));
	INVALID_IF(!name);
	*name = f->info->name;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuFuncGetParamInfo(CUfunction f, size_t index, size_t *offset, size_t *size)
{
	CUresult result = enter_function(&f);

	return result ? result : sim_leave(function_param(f->code, index, offset, size));
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction f)
{
	ENTER(enter_function(&f));
	INVALID_IF(!state);
	*state = f->loaded ? CU_FUNCTION_LOADING_STATE_LOADED : CU_FUNCTION_LOADING_STATE_UNLOADED;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuFuncLoad(CUfunction f)
{
	ENTER(enter_function(&f));
	function_load(f);
	return sim_leave(CUDA_SUCCESS);
}
