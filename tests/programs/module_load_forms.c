/* Modules from memory, with options, and from a file; and data that is no module. */
#include "program.h"
#include <unistd.h>

int main(void)
{
	char log[1000] = "", path[] = "/tmp/module_load_forms_XXXXXX";
	CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_MAX_REGISTERS};
	CUmodule module;
	CUfunction f;

	start();
	int fd = mkstemp(path);
	if (fd < 0 || write(fd, KERNELS, strlen(KERNELS)) != (ssize_t)strlen(KERNELS))
		return 1;
	close(fd);
	SHOW(cuModuleLoadData(&module, KERNELS));
	SHOW(cuModuleGetFunction(&f, module, "fill"));
	SHOW(cuModuleGetFunction(&f, module, "no_such_kernel"));
	SHOW(cuModuleUnload(module));
	SHOW(cuModuleLoadDataEx(&module, KERNELS, 3, options, PARAMS(log, (void *)sizeof(log), (void *)32)));
	SHOW(cuModuleGetFunction(&f, module, "add"));
	SHOW(cuModuleUnload(module));
	SHOW(cuModuleLoad(&module, path));
	SHOW(cuModuleGetFunction(&f, module, "mix"));
	SHOW(cuModuleUnload(module));
	unlink(path);
	SHOW(cuModuleLoad(&module, path));
	SHOW(cuModuleLoadData(&module, "this is no module"));
	SHOW(cuModuleLoadData(&module, PTX_HEADER ".visible .entry broken()\n{\nnonsense;\n}\n"));
	SHOW(cuModuleLoadData(&module, ".version 99.0\n.target sm_70\n.address_size 64\n"));
	SHOW(cuModuleLoadData(&module, NULL));
	return 0;
}
