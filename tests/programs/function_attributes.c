/* Attributes of functions: limits, name, module, offsets of parameters. */
#include "program.h"

int main(void)
{
	static const char *const names[] = {"fill", "params", "bump", "fail"};
	const char *name;
	CUmodule of;
	int value = -1;

	start();
	CUmodule module = load_kernels();
	for (unsigned i = 0; i < 4; i++) {
		CUfunction f = get_kernel(module, names[i]);
		size_t offset, size;
		CUresult r;

		OK(cuFuncGetName(&name, f));
		OK(cuFuncGetModule(&of, f));
		printf("%s, of its module %d\n", name, of == module);
		SHOW(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, f));
		printf("threads %d\n", value);
		SHOW(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, f));
		printf("shared %d\n", value);
		for (unsigned k = 0; (r = cuFuncGetParamInfo(f, k, &offset, &size)) == CUDA_SUCCESS; k++)
			printf("parameter %u at %zu, %zu bytes\n", k, offset, size);
		printf("then %s\n", result_name(r));
	}
	SHOW(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, get_kernel(module, "fill")));
	printf("dynamic shared %d\n", value);
	SHOW(cuFuncSetAttribute(get_kernel(module, "fill"), CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1000));
	SHOW(cuFuncGetAttribute(&value, 9999, get_kernel(module, "fill")));
	return 0;
}
