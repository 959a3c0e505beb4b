/* Variables of a module: found by name, changed by a kernel, read and set by the host. */
#include "program.h"

int main(void)
{
	CUdeviceptr counter, words, step, zeros, none;
	size_t size;
	unsigned five = 5;

	start();
	CUmodule module = load_kernels();
	CUfunction bump = get_kernel(module, "bump");
	SHOW(cuModuleGetGlobal(&counter, &size, module, "counter"));
	printf("size %zu\n", size);
	SHOW(cuModuleGetGlobal(&words, &size, module, "words"));
	printf("size %zu\n", size);
	SHOW(cuModuleGetGlobal(&zeros, &size, module, "zeros"));
	printf("size %zu\n", size);
	SHOW(cuModuleGetGlobal(&step, &size, module, "step"));
	printf("size %zu\n", size);
	SHOW(cuModuleGetGlobal(&none, &size, module, "no_such_variable"));
	SHOW(cuModuleGetGlobal(NULL, &size, module, "words"));
	SHOW(cuModuleGetGlobal(&none, NULL, module, "words"));
	print_words("counter", counter, 1);
	print_words("words", words, 4);
	print_device("zeros", zeros, 100);
	for (unsigned i = 0; i < 3; i++) {
		OK(launch(bump, 64, NULL, NULL));
		OK(cuCtxSynchronize());
		print_words("counter", counter, 1);
		print_words("words", words, 4);
		OK(cuMemcpyHtoD(step, &five, 4));
	}
	SHOW(cuModuleUnload(module));

	/* Loaded again, it starts from its initial values. */
	module = load_kernels();
	OK(cuModuleGetGlobal(&counter, &size, module, "counter"));
	print_words("counter", counter, 1);
	OK(cuModuleUnload(module));
	return 0;
}
