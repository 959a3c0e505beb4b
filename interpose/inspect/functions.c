/*
 * Asks the driver for functions and variables of modules. See functions.h.
 */
#include "inspect/functions.h"

#include "driver/driver.h"
#include "session/session.h"
#include "util/vector.h"

struct function *function_ask(CUfunction handle)
{
	const char *name = NULL;
	CUmodule module = NULL;

	if (!real.cuFuncGetName || real.cuFuncGetName(&name, handle) != CUDA_SUCCESS || !name)
		name = "?";
	else if (real.cuFuncGetModule)
		real.cuFuncGetModule(&module, handle);
	return function_seen(handle, name, module);
}

/* The first call of this thread's function_describe that found the context lost. */
static _Thread_local struct {
	CUresult result;
	const char *call;
} loss;

/* Reports what the driver does not tell about loaded code. */
static void not_told(const char *what, const char *name, const char *call, CUresult r)
{
	const char *error = "?";

	if (driver_context_lost(r)) {
		if (!loss.call) {
			loss.result = r;
			loss.call = call;
		}
		return;
	}
	real.cuGetErrorName(r, &error);
	session_lost("%s of %.80s are unknown: %s: %s", what, name, call, error);
}

/* All parameters or none: a launch with unknown parameters may reach all memory. */
static void read_params(struct function *f, CUfunction handle, bool kernel)
{
	struct function_param *params = NULL;
	uint32_t n = 0, bytes = 0;
	size_t offset, size, room = 0;

	for (; kernel ? real.cuKernelGetParamInfo != NULL : real.cuFuncGetParamInfo != NULL; n++) {
		CUresult r = kernel ? real.cuKernelGetParamInfo((CUkernel)handle, n, &offset, &size)
				    : real.cuFuncGetParamInfo(handle, n, &offset, &size);
		if (r != CUDA_SUCCESS && r != CUDA_ERROR_INVALID_VALUE) { /* the error after the last parameter */
			not_told("parameters", f->name, kernel ? "cuKernelGetParamInfo" : "cuFuncGetParamInfo", r);
			n = bytes = 0;
		}
		if (r != CUDA_SUCCESS)
			break;
		if (!make_room(&params, &room, n, 1, sizeof(*params))) {
			session_fail("no host memory for a kernel");
			break;
		}
		params[n] = (struct function_param){(uint32_t)offset, (uint32_t)size};
		bytes = (uint32_t)(offset + size);
	}
	f->params = params;
	f->param_count = n;
	f->param_bytes = bytes;
}

#define TOLD 4 /* older drivers may not tell those behind */

static void describe(struct function *f, CUfunction handle, bool kernel, CUdevice device, struct tt_function *record)
{
	static const CUfunction_attribute wanted[] = {
		CU_FUNC_ATTRIBUTE_NUM_REGS,
		CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
		CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
		CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
		CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH,
		CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT,
		CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH,
	};
	int value[TOLD + 3] = {0};

	for (int i = 0; i < TOLD + 3; i++) {
		CUresult r = !kernel ? real.cuFuncGetAttribute(&value[i], wanted[i], handle)
			     : real.cuKernelGetAttribute
				     ? real.cuKernelGetAttribute(&value[i], wanted[i], (CUkernel)handle, device)
				     : CUDA_SUCCESS;
		if (r != CUDA_SUCCESS && i < TOLD)
			not_told("registers and limits", f->name, kernel ? "cuKernelGetAttribute" : "cuFuncGetAttribute", r);
	}
	record->registers = (uint32_t)value[0];
	record->shared = (uint32_t)value[1];
	record->local = (uint32_t)value[2];
	record->max_threads = (uint32_t)value[3];
	for (int i = 0; i < 3; i++)
		record->cluster[i] = (uint16_t)value[TOLD + i];
	read_params(f, handle, kernel);
}

struct variable variable_at(CUdeviceptr address, size_t size)
{
	int managed = 0;
	bool told = real.cuPointerGetAttribute &&
		    real.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address) == CUDA_SUCCESS;

	return (struct variable){address, size, told && managed};
}

static struct variable find_variable(void *module, bool library, const char *name)
{
	CUdeviceptr address = 0;
	size_t size = 0;
	CUresult r = library ? real.cuLibraryGetGlobal(&address, &size, module, name)
			     : real.cuModuleGetGlobal_v2(&address, &size, module, name);

	if (r == CUDA_SUCCESS && address)
		return variable_at(address, size);
	if (r != CUDA_SUCCESS && r != CUDA_ERROR_NOT_FOUND)
		not_told("address and contents", name, library ? "cuLibraryGetGlobal" : "cuModuleGetGlobal_v2", r);
	return (struct variable){0};
}

void function_describe(struct context *c, struct function *f, CUfunction handle)
{
	static const struct code_answers answers = {describe, find_variable};
	const char *error = "?";

	loss.call = NULL;
	function_launched(c, f, handle, &answers);
	if (!loss.call)
		return;
	real.cuGetErrorName(loss.result, &error);
	/* Only now: the report names kernels, and function_launched holds their lock. */
	session_listeners.context_failed(c, loss.result, loss.call, 0);
	session_fail("the context failed (%s from %s)", error, loss.call);
}
