/* TT_SIM_FAULT=ptx:bump: a module that mentions that name does not load, another does. */
#include "program.h"

int main(void)
{
	static const char other[] = ".version 6.3\n.target sm_70\n.address_size 64\n.visible .entry nothing()\n{\nret;\n}\n";
	char log[200] = "";
	CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
	void *values[] = {log, (void *)(uintptr_t)sizeof(log)};
	CUmodule module;
	CUlibrary library;

	start();
	SHOW(cuModuleLoadDataEx(&module, KERNELS, 2, options, values));
	printf("log: %s\n", log);
	SHOW(cuLibraryLoadData(&library, KERNELS, NULL, NULL, 0, NULL, NULL, 0));
	SHOW(cuModuleLoadData(&module, other));
	return 0;
}
