/*
 * Wrappers of modules, libraries, and lookups in them.
 */
#include <stdlib.h>
#include <string.h>

#include "delay/points.h"
#include "instrument/instrument.h"
#include "hooks/delayed_modules.h"
#include "hooks/op.h"

#define SETTINGS 64 /* larger than the number of options */

/* Also before a context exists and recording begins: libraries can be loaded then. */
static bool watching(void)
{
	return (recording() || (atomic_load(&session_state) == SESSION_UNDECIDED && real.cuCtxGetCurrent)) &&
	       !thread_current()->busy;
}

static void loaded(struct op *op, CUresult r, void *handle, bool library, const struct loading *l)
{
	uint32_t id = TT_NO_ID;

	if (r == CUDA_SUCCESS && (op->on || watching())) {
		struct thread *t = thread_current();
		t->busy++;
		id = module_loaded(context_current(t), handle, library, l, op->on ? op->seq : session_next_seq());
		if (options.instrument && id != TT_NO_ID)
			instrument_module(id, l);
		t->busy--;
	}
	RECORD(op, r, TT_EVENT_MODULE_LOAD, e->id = id);
	if (op->on && r == CUDA_SUCCESS)
		capture_prepare(op->t, op->context);
}

/* False: the value points to memory of the program, such as a log, or is valid only in this process. */
static bool is_plain(CUjit_option o)
{
	return o != CU_JIT_WALL_TIME && o != CU_JIT_INFO_LOG_BUFFER && o != CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES &&
	       o != CU_JIT_ERROR_LOG_BUFFER && o != CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES && o != CU_JIT_LOG_VERBOSE;
}

/* Options before the call, because the driver returns results through some of them. */
static uint32_t read_options(struct tt_setting *to, const CUjit_option *jit, void *const *jit_values, unsigned jit_count,
			     const CUlibraryOption *library, void *const *values, unsigned count)
{
	uint32_t n = 0;

	for (unsigned i = 0; jit && jit_values && i < jit_count && n < SETTINGS; i++)
		if (is_plain(jit[i]))
			to[n++] = (struct tt_setting){TT_SETTING_JIT, (uint32_t)jit[i], (uintptr_t)jit_values[i]};
	for (unsigned i = 0; library && i < count && n < SETTINGS; i++)
		to[n++] = (struct tt_setting){TT_SETTING_LIBRARY, (uint32_t)library[i], values ? (uintptr_t)values[i] : 0};
	return n;
}

/* Returns a patched image if its kernels have delays. */
static void *substitute(const struct loading *l)
{
	void *image = NULL;

	if (delays_in_kernels() && watching()) {
		struct thread *t = thread_current();
		t->busy++;
		image = delayed_image(l);
		t->busy--;
	}
	return image;
}

/* The image may be the only copy, if the driver was told to keep none. */
static void substituted(void *image, const CUlibraryOption *options, unsigned count)
{
	bool kept = false;

	for (unsigned i = 0; options && i < count; i++)
		kept |= options[i] == CU_LIBRARY_BINARY_IS_PRESERVED;
	if (!kept)
		free(image);
}

/* The driver returns results through the values of options. */
static void keep_values(void **kept, void *const *values, unsigned count)
{
	if (values)
		memcpy(kept, values, (count < SETTINGS ? count : SETTINGS) * sizeof(*kept));
}

static void give_back_values(void *const *kept, void **values, unsigned count)
{
	if (values)
		memcpy(values, kept, (count < SETTINGS ? count : SETTINGS) * sizeof(*kept));
}

/* with: the call for an image that is not the program's. */
#define LOADS(symbol, library, image, path, options_, values, kept, params, args, with) \
	EXPORT CUresult CUDAAPI symbol params \
	{ \
		struct tt_setting settings[SETTINGS]; \
		struct loading l = {image, path, settings, 0}; \
		HOOK(op, symbol, op_begin(&op)); \
		l.setting_count = read_options options_; \
		void *other = substitute(&l), *before[SETTINGS]; \
		if (other) \
			keep_values(before, values); \
		CUresult r = other ? real.with : real.symbol args; \
		if (other && r != CUDA_SUCCESS) { \
			CUresult refused = r; \
			give_back_values(before, values); \
			r = real.symbol args; \
			delayed_refused(refused, r); \
		} \
		substituted(other, kept); \
		loaded(&op, r, r == CUDA_SUCCESS ? (void *)*out : NULL, library, &l); \
		return r; \
	}
#define NO_OPTIONS (settings, NULL, NULL, 0, NULL, NULL, 0)
#define MODULE_OPTIONS (settings, o, v, n, NULL, NULL, 0)
#define LIBRARY_OPTIONS (settings, jo, jv, jn, lo, lv, ln)
#define NONE NULL, 0
#define MODULE_VALUES v, n
#define LIBRARY_VALUES jv, jn
#define LIBRARY_KEPT lo, ln
LOADS(cuModuleLoad, false, NULL, name, NO_OPTIONS, NONE, NONE, (CUmodule *out, const char *name), (out, name), cuModuleLoadData(out, other))
LOADS(cuModuleLoadData, false, image_, NULL, NO_OPTIONS, NONE, NONE, (CUmodule *out, const void *image_), (out, image_), cuModuleLoadData(out, other))
LOADS(cuModuleLoadDataEx, false, image_, NULL, MODULE_OPTIONS, MODULE_VALUES, NONE, (CUmodule *out, const void *image_, unsigned n, CUjit_option *o, void **v), (out, image_, n, o, v), cuModuleLoadDataEx(out, other, n, o, v))
LOADS(cuModuleLoadFatBinary, false, image_, NULL, NO_OPTIONS, NONE, NONE, (CUmodule *out, const void *image_), (out, image_), cuModuleLoadData(out, other))
LOADS(cuLibraryLoadData, true, image_, NULL, LIBRARY_OPTIONS, LIBRARY_VALUES, LIBRARY_KEPT, (CUlibrary *out, const void *image_, CUjit_option *jo, void **jv, unsigned jn, CUlibraryOption *lo, void **lv, unsigned ln), (out, image_, jo, jv, jn, lo, lv, ln), cuLibraryLoadData(out, other, jo, jv, jn, lo, lv, ln))
LOADS(cuLibraryLoadFromFile, true, NULL, name, LIBRARY_OPTIONS, LIBRARY_VALUES, LIBRARY_KEPT, (CUlibrary *out, const char *name, CUjit_option *jo, void **jv, unsigned jn, CUlibraryOption *lo, void **lv, unsigned ln), (out, name, jo, jv, jn, lo, lv, ln), cuLibraryLoadData(out, other, jo, jv, jn, lo, lv, ln))

/* A thread may be reading its variables. */
static void unloads(struct op *op, void *handle)
{
	struct thread *t = thread_current();

	if (!op_begin_always(op) && !watching())
		return;
	gate_enter(t);
	uint32_t id;
	uint64_t contexts = module_unloaded(handle, op->on ? op->seq : session_next_seq(), &id);
	if (options.instrument)
		instrument_module_unloaded(id);
	gate_leave(t);
	op_settle(t, contexts);
}

#define UNLOADS(symbol, type) \
	EXPORT CUresult CUDAAPI symbol(type handle) \
	{ \
		HOOK(op, symbol, unloads(&op, handle)); \
		CUresult r = real.symbol(handle); \
		RECORD(&op, r, TT_EVENT_MODULE_UNLOAD); \
		return r; \
	}
UNLOADS(cuModuleUnload, CUmodule)
UNLOADS(cuLibraryUnload, CUlibrary)

static void note_kernels(CUkernel *kernels, unsigned n, CUlibrary l)
{
	const char *name;

	for (unsigned i = 0; real.cuKernelGetName && i < n && kernels[i]; i++)
		if (real.cuKernelGetName(&name, kernels[i]) == CUDA_SUCCESS)
			module_function(l, kernels[i], name, true);
}

static void note_function_of(CUfunction f, CUkernel k)
{
	const char *name = NULL;
	CUlibrary library = NULL;

	if (real.cuKernelGetName && real.cuKernelGetName(&name, k) == CUDA_SUCCESS && real.cuKernelGetLibrary &&
	    real.cuKernelGetLibrary(&library, k) == CUDA_SUCCESS)
		module_function(library, f, name, false);
}

#define WATCHED(symbol, params, args, ...) AFTER(symbol, params, args, if (watching()) __VA_ARGS__)
WATCHED(cuModuleGetFunction, (CUfunction *f, CUmodule m, const char *name), (f, m, name), module_function(m, *f, name, false))
WATCHED(cuLibraryGetKernel, (CUkernel *k, CUlibrary l, const char *name), (k, l, name), module_function(l, *k, name, true))
WATCHED(cuLibraryEnumerateKernels, (CUkernel *kernels, unsigned n, CUlibrary l), (kernels, n, l), note_kernels(kernels, n, l))
WATCHED(cuKernelGetFunction, (CUfunction *f, CUkernel k), (f, k), note_function_of(*f, k))
WATCHED(cuModuleGetTexRef, (CUtexref *reference, CUmodule m, const char *name), (reference, m, name), module_reference(m))
WATCHED(cuModuleGetSurfRef, (CUsurfref *reference, CUmodule m, const char *name), (reference, m, name), module_reference(m))
WATCHED(cuFuncSetCacheConfig, (CUfunction f, CUfunc_cache config), (f, config), function_cache(f, config))
WATCHED(cuKernelSetCacheConfig, (CUkernel k, CUfunc_cache config, CUdevice device), (k, config, device), function_cache((CUfunction)k, config))

AFTER(cuLibraryGetModule, (CUmodule *m, CUlibrary l), (m, l), if (op_begin(&op)) module_alias(op.context, l, *m, op.seq))

#define VARIABLE(symbol, type, library) \
	AFTER(symbol, (CUdeviceptr *p, size_t *n, type m, const char *name), (p, n, m, name), \
	      CUdeviceptr address = 0; size_t size = 0; \
	      if (op_begin(&op) && real.symbol(&address, &size, m, name) == CUDA_SUCCESS) \
		      module_variable(op.context, m, library, name, variable_at(address, size), op.seq))
VARIABLE(cuModuleGetGlobal_v2, CUmodule, false)
VARIABLE(cuLibraryGetGlobal, CUlibrary, true)
VARIABLE(cuLibraryGetManaged, CUlibrary, true)
