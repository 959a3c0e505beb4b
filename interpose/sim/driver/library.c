/*
 * Libraries: code without a context, loaded into each context on first use there.
 *
 * Invariant: a kernel stands for one function in every context; a device's setting applies to all its
 * contexts, later ones included.
 */
#include <stdlib.h>
#include <string.h>

#include "sim/driver/driver.h"

#define KERNEL_ATTRIBUTES 16

struct setting {
	bool set;
	int value;
};

struct CUkern_st {
	CUlibrary library;
	const ptx_function *code; /* of the library's description */
	struct setting settings[SIM_MAX_DEVICES][KERNEL_ATTRIBUTES];
};

struct CUlib_st {
	char *text; /* NULL: the image has an unknown kind, which shows only when it is used */
	ptx_module *description; /* never run: only names and parameters */
	struct CUkern_st *kernels;
	size_t kernel_count;
	CUmodule *modules; /* one per context that has used it */
	size_t module_count;
};

static uint64_t describe_global(void *user, const ptx_global *g)
{
	uint64_t *next = user, at = *next;

	*next += ROUND_UP(g->size + 1, (uint64_t)SIM_ALIGNMENT);
	return at;
}

static CUresult library_load(const void *image, CUlibrary *out, char *log, size_t log_size)
{
	char *text = NULL;
	uint64_t next = SIM_GRANULARITY;
	ptx_loader loader = {.place_global = describe_global, .user = &next};
	CUresult result = image_text(image, &text, log, log_size);
	ptx_module *description = NULL;

	if (result && result != CUDA_ERROR_INVALID_IMAGE)
		return result;
	if (!result)
		description = ptx_load(text, &loader, log, log_size);
	if (!result && !description) {
		free(text);
		return CUDA_ERROR_INVALID_PTX;
	}
	CUlibrary library = sim_alloc(sizeof *library);
	library->text = text;
	library->description = description;
	library->kernel_count = description ? ptx_function_count(description) : 0;
	library->kernels = sim_alloc(library->kernel_count * sizeof *library->kernels);
	for (size_t i = 0; i < library->kernel_count; i++) {
		library->kernels[i].library = library;
		library->kernels[i].code = ptx_function_at(description, i);
		handle_add(&library->kernels[i], HANDLE_KERNEL);
	}
	handle_add(library, HANDLE_LIBRARY);
	*out = library;
	return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary *out, const void *image, CUjit_option *jit, void **jit_values, unsigned int jit_count,
			   CUlibraryOption *options, void **values, unsigned int count)
{
	char log[512] = "";
	CUresult result = sim_enter_driver();

	(void)options, (void)values, (void)count;
	if (result)
		return result;
	INVALID_IF(!out || !image || (jit_count && (!jit || !jit_values)));
	result = library_load(image, out, log, sizeof log);
	image_report(log, jit_count, jit, jit_values);
	if (result)
		sim_note("library not loaded: %s", log);
	return sim_leave(result);
}

CUresult cuLibraryLoadFromFile(CUlibrary *out, const char *path, CUjit_option *jit, void **jit_values, unsigned int jit_count,
			       CUlibraryOption *options, void **values, unsigned int count)
{
	void *image;
	CUresult result = sim_life();

	if (result)
		return result;
	result = path ? image_read(path, &image) : CUDA_ERROR_INVALID_VALUE;
	if (result)
		return result;
	result = cuLibraryLoadData(out, image, jit, jit_values, jit_count, options, values, count);
	free(image);
	return result;
}

static CUresult enter_library(CUlibrary library)
{
	CUresult result = sim_enter_driver();

	if (!result && !handle_is(library, HANDLE_LIBRARY))
		return sim_leave(CUDA_ERROR_INVALID_HANDLE);
	return result;
}

CUresult cuLibraryUnload(CUlibrary library)
{
	ENTER(enter_library(library));
	while (library->module_count) {
		CUmodule module = library->modules[library->module_count - 1];
		context_wait(module->ctx);
		engine_quiesce();
		if (!handle_is(library, HANDLE_LIBRARY))
			return sim_leave(CUDA_ERROR_INVALID_HANDLE);
		if (handle_is(module, HANDLE_MODULE))
			module_delete(module);
	}
	handle_remove(library);
	for (size_t i = 0; i < library->kernel_count; i++)
		handle_remove(&library->kernels[i]);
	ptx_unload(library->description);
	free(library->text);
	free(library->kernels);
	free(library->modules);
	free(library);
	return sim_leave(CUDA_SUCCESS);
}

void library_forget(CUmodule module)
{
	CUlibrary library = module->library;

	if (!library)
		return;
	for (size_t i = 0; i < library->module_count; i++) {
		if (library->modules[i] == module)
			library->modules[i--] = library->modules[--library->module_count];
	}
}

/* ---- in a context ---- */

static void apply_settings(const struct CUkern_st *kernel, CUfunction f)
{
	const struct setting *settings = kernel->settings[f->module->ctx->device];

	for (int i = 0; i < KERNEL_ATTRIBUTES; i++) {
		if (settings[i].set)
			function_set_attribute(f, (CUfunction_attribute)i, settings[i].value);
	}
}

static CUresult library_module(CUcontext ctx, CUlibrary library, CUmodule *out)
{
	char log[512];

	if (!library->text)
		return CUDA_ERROR_INVALID_IMAGE;
	for (size_t i = 0; i < library->module_count; i++) {
		if (library->modules[i]->ctx == ctx) {
			*out = library->modules[i];
			return CUDA_SUCCESS;
		}
	}

	ENTER(module_load(ctx, library->text, out, log, sizeof log));
	library->modules = realloc(library->modules, (library->module_count + 1) * sizeof *library->modules);
	if (!library->modules)
		abort();
	library->modules[library->module_count++] = *out;
	(*out)->library = library;
	for (size_t i = 0; i < library->kernel_count; i++) {
		CUfunction f = module_function(*out, ptx_info(library->kernels[i].code)->name);
		f->kernel = &library->kernels[i];
		apply_settings(f->kernel, f);
	}
	return CUDA_SUCCESS;
}

CUresult kernel_function(CUcontext ctx, CUkernel kernel, CUfunction *out)
{
	CUmodule module;
	CUresult result = library_module(ctx, kernel->library, &module);

	if (!result)
		*out = module_function(module, ptx_info(kernel->code)->name);
	return result;
}

static CUresult enter_library_in_context(CUlibrary library, CUmodule *module)
{
	CUcontext ctx;
	CUresult result = sim_enter(&ctx);

	if (result)
		return result;
	result = handle_is(library, HANDLE_LIBRARY) ? library_module(ctx, library, module) : CUDA_ERROR_INVALID_HANDLE;
	return result ? sim_leave(result) : CUDA_SUCCESS;
}

CUresult cuLibraryGetModule(CUmodule *out, CUlibrary library)
{
	CUmodule module;

	ENTER(enter_library_in_context(library, &module));
	INVALID_IF(!out);
	*out = module;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *size, CUlibrary library, const char *name)
{
	CUmodule module;

	ENTER(enter_library_in_context(library, &module));
	sim_leave(CUDA_SUCCESS);
	return cuModuleGetGlobal_v2(address, size, module, name);
}

/* ---- kernels ---- */

CUresult cuLibraryGetKernel(CUkernel *out, CUlibrary library, const char *name)
{
	ENTER(enter_library(library));
	INVALID_IF(!out || !name);
	if (!library->text)
		return sim_leave(CUDA_ERROR_INVALID_IMAGE);
	for (size_t i = 0; i < library->kernel_count; i++) {
		if (!strcmp(ptx_info(library->kernels[i].code)->name, name)) {
			*out = &library->kernels[i];
			return sim_leave(CUDA_SUCCESS);
		}
	}
	return sim_leave(CUDA_ERROR_NOT_FOUND);
}

CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary library)
{
	ENTER(enter_library(library));
	INVALID_IF(!count);
	*count = (unsigned)library->kernel_count;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuLibraryEnumerateKernels(CUkernel *out, unsigned int room, CUlibrary library)
{
	ENTER(enter_library(library));
	INVALID_IF(!out || !room);
	for (size_t i = 0; i < library->kernel_count && i < room; i++)
		out[i] = &library->kernels[i];
	return sim_leave(CUDA_SUCCESS);
}

static CUresult enter_kernel(CUkernel kernel)
{
	CUresult result = sim_enter_driver();

	if (!result && !handle_is(kernel, HANDLE_KERNEL))
		return sim_leave(CUDA_ERROR_INVALID_HANDLE);
	return result;
}

CUresult cuKernelGetFunction(CUfunction *out, CUkernel kernel)
{
	CUcontext ctx;

	ENTER(sim_enter(&ctx));
	INVALID_IF(!out);
	return sim_leave(handle_is(kernel, HANDLE_KERNEL) ? kernel_function(ctx, kernel, out) : CUDA_ERROR_INVALID_HANDLE);
}

CUresult cuKernelGetLibrary(CUlibrary *out, CUkernel kernel)
{
	ENTER(enter_kernel(kernel));
	INVALID_IF(!out);
	*out = kernel->library;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuKernelGetName(const char **name, CUkernel kernel)
{
	ENTER(enter_kernel(kernel));
	INVALID_IF(!name);
	*name = ptx_info(kernel->code)->name;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *size)
{
	CUresult result = enter_kernel(kernel);

	return result ? result : sim_leave(function_param(kernel->code, index, offset, size));
}

/* The kernel as a function of the device, for queries that depend on no context. */
static struct CUfunc_st stand_in(CUkernel kernel, CUdevice device)
{
	struct CUctx_st ctx = {.device = device};
	struct CUmod_st module = {.ctx = &ctx};
	struct CUfunc_st f = {.module = &module, .info = ptx_info(kernel->code), .carveout = -1};

	f.dynamic_shared_max = 49152 - (int)f.info->shared_bytes;
	apply_settings(kernel, &f);
	f.module = NULL;
	return f;
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device)
{
	ENTER(enter_kernel(kernel));
	if (!device_valid(device))
		return sim_leave(CUDA_ERROR_INVALID_DEVICE);
	struct CUfunc_st f = stand_in(kernel, device);
	return sim_leave(value ? function_attribute(&f, attribute, value) : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device)
{
	CUresult result = enter_kernel(kernel);

	if (result)
		return result;
	if (!device_valid(device))
		return sim_leave(CUDA_ERROR_INVALID_DEVICE);
	struct CUfunc_st f = stand_in(kernel, device);
	result = function_set_attribute(&f, attribute, value);
	if (result)
		return sim_leave(result);
	kernel->settings[device][attribute] = (struct setting){true, value};
	for (size_t i = 0; i < kernel->library->module_count; i++) {
		CUmodule module = kernel->library->modules[i];
		if (module->ctx->device == device)
			function_set_attribute(module_function(module, f.info->name), attribute, value);
	}
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device)
{
	ENTER(enter_kernel(kernel));
	if (!device_valid(device))
		return sim_leave(CUDA_ERROR_INVALID_DEVICE);
	return sim_leave(config >= CU_FUNC_CACHE_PREFER_NONE && config <= CU_FUNC_CACHE_PREFER_EQUAL
				 ? CUDA_SUCCESS
				 : CUDA_ERROR_INVALID_VALUE);
}
