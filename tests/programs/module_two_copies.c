/* The same module loaded twice: each has variables of its own. */
#include "program.h"

int main(void)
{
	CUmodule modules[2];
	CUdeviceptr counters[2];

	start();
	for (unsigned i = 0; i < 2; i++) {
		modules[i] = load_kernels();
		OK(cuModuleGetGlobal(&counters[i], NULL, modules[i], "counter"));
	}
	printf("apart %d\n", counters[0] != counters[1]);
	for (unsigned i = 0; i < 3; i++)
		OK(launch(get_kernel(modules[i % 2], "bump"), 1, NULL, NULL));
	OK(cuCtxSynchronize());
	print_words("first", counters[0], 1);
	print_words("second", counters[1], 1);
	SHOW(cuModuleUnload(modules[0]));
	OK(launch(get_kernel(modules[1], "bump"), 1, NULL, NULL));
	print_words("second", counters[1], 1);
	SHOW(cuModuleUnload(modules[1]));
	return 0;
}
