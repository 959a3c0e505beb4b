/*
 * Modules, libraries, and what the program looks up in them.
 */
#include "op.h"

static void loaded(struct op *op, CUresult r, void *handle, bool library, const void *image, const char *path)
{
	struct tt_event *e;

	if (!op->on)
		return;
	uint32_t id = TT_NO_ID;
	if (r == CUDA_SUCCESS) {
		op->t->busy++;
		id = module_loaded(op->t, handle, library, image, path, op->seq);
		op->t->busy--;
	}
	if ((e = op_event(op, r))) {
		e->id = id;
		events_publish(e, TT_EVENT_MODULE_LOAD);
	}
}

#define LOADS(symbol, library, image, path, params, args) \
	EXPORT CUresult CUDAAPI symbol params \
	{ \
		OP(op); \
		if (!REAL(symbol)) \
			return CUDA_ERROR_NOT_SUPPORTED; \
		op_begin(&op, CALL_##symbol); \
		CUresult r = real.symbol args; \
		loaded(&op, r, r == CUDA_SUCCESS ? (void *)*out : NULL, library, image, path); \
		return r; \
	}
LOADS(cuModuleLoad, false, NULL, name, (CUmodule *out, const char *name), (out, name))
LOADS(cuModuleLoadData, false, image_, NULL, (CUmodule *out, const void *image_), (out, image_))
LOADS(cuModuleLoadDataEx, false, image_, NULL, (CUmodule *out, const void *image_, unsigned n, CUjit_option *o, void **v), (out, image_, n, o, v))
LOADS(cuModuleLoadFatBinary, false, image_, NULL, (CUmodule *out, const void *image_), (out, image_))
LOADS(cuLibraryLoadData, true, image_, NULL, (CUlibrary *out, const void *image_, CUjit_option *jo, void **jv, unsigned jn, CUlibraryOption *lo, void **lv, unsigned ln), (out, image_, jo, jv, jn, lo, lv, ln))
LOADS(cuLibraryLoadFromFile, true, NULL, name, (CUlibrary *out, const char *name, CUjit_option *jo, void **jv, unsigned jn, CUlibraryOption *lo, void **lv, unsigned ln), (out, name, jo, jv, jn, lo, lv, ln))

#define UNLOADS(symbol, type) \
	EXPORT CUresult CUDAAPI symbol(type handle) \
	{ \
		OP(op); \
		if (!REAL(symbol)) \
			return CUDA_ERROR_NOT_SUPPORTED; \
		if (op_begin_always(&op, CALL_##symbol)) { \
			gate_enter(op.t); \
			module_unloaded(handle, op.seq); \
			gate_leave(op.t); \
			capture_settle(op.t, op.context); /* its variables may be being read */ \
		} \
		CUresult r = real.symbol(handle); \
		struct tt_event *e = op_event(&op, r); \
		if (e) \
			events_publish(e, TT_EVENT_MODULE_UNLOAD); \
		return r; \
	}
UNLOADS(cuModuleUnload, CUmodule)
UNLOADS(cuLibraryUnload, CUlibrary)

EXPORT CUresult CUDAAPI cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name)
{
	if (!REAL(cuModuleGetFunction))
		return CUDA_ERROR_NOT_SUPPORTED;
	CUresult r = real.cuModuleGetFunction(f, m, name);
	if (r == CUDA_SUCCESS && recording() && !thread_current()->busy)
		module_function(m, *f, name, false);
	return r;
}

EXPORT CUresult CUDAAPI cuLibraryGetKernel(CUkernel *k, CUlibrary l, const char *name)
{
	if (!REAL(cuLibraryGetKernel))
		return CUDA_ERROR_NOT_SUPPORTED;
	CUresult r = real.cuLibraryGetKernel(k, l, name);
	if (r == CUDA_SUCCESS && recording() && !thread_current()->busy)
		module_function(l, *k, name, true);
	return r;
}

EXPORT CUresult CUDAAPI cuKernelGetFunction(CUfunction *f, CUkernel k)
{
	const char *name = NULL;
	CUlibrary library = NULL;

	if (!REAL(cuKernelGetFunction))
		return CUDA_ERROR_NOT_SUPPORTED;
	CUresult r = real.cuKernelGetFunction(f, k);
	if (r == CUDA_SUCCESS && recording() && !thread_current()->busy && real.cuKernelGetName &&
	    real.cuKernelGetName(&name, k) == CUDA_SUCCESS && real.cuKernelGetLibrary &&
	    real.cuKernelGetLibrary(&library, k) == CUDA_SUCCESS)
		module_function(library, *f, name, false);
	return r;
}

EXPORT CUresult CUDAAPI cuLibraryGetModule(CUmodule *m, CUlibrary l)
{
	OP(op);

	if (!REAL(cuLibraryGetModule))
		return CUDA_ERROR_NOT_SUPPORTED;
	CUresult r = real.cuLibraryGetModule(m, l);
	if (r == CUDA_SUCCESS && op_begin(&op, CALL_cuLibraryGetModule))
		module_alias(op.t, l, *m, op.seq);
	return r;
}

#define VARIABLE(symbol, type, library) \
	EXPORT CUresult CUDAAPI symbol(CUdeviceptr *p, size_t *n, type m, const char *name) \
	{ \
		CUdeviceptr address = 0; \
		size_t size = 0; \
		OP(op); \
		if (!REAL(symbol)) \
			return CUDA_ERROR_NOT_SUPPORTED; \
		CUresult r = real.symbol(p, n, m, name); \
		if (r == CUDA_SUCCESS && op_begin(&op, CALL_##symbol) && \
		    real.symbol(&address, &size, m, name) == CUDA_SUCCESS) \
			module_variable(op.t, m, library, name, address, size, op.seq); \
		return r; \
	}
VARIABLE(cuModuleGetGlobal_v2, CUmodule, false)
VARIABLE(cuLibraryGetGlobal, CUlibrary, true)
VARIABLE(cuLibraryGetManaged, CUlibrary, true)
