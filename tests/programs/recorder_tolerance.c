/* A launch whose items may differ as the arguments say: TYPE ABS REL. */
#define _GNU_SOURCE
#include "program.h"

#include <dlfcn.h>

typedef int tolerance_call(unsigned long long address, unsigned long long count, const char *type, double abs, double rel);

#define ITEMS 100

static const char FILL[] =
	PTX_HEADER
	/* fill(f32 *p): p[i] = 2 */
	".visible .entry fill(.param .u64 p)\n{\n"
	".reg .b32 %r<4>; .reg .f32 %f<2>; .reg .b64 %rd<4>;\n"
	"ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd1, %rd1, %rd2;\n"
	"mov.f32 %f1, 0f40000000;\n"
	"st.global.f32 [%rd1], %f1;\n"
	"ret;\n}\n";

int main(int argc, char **argv)
{
	tolerance_call *declare = (tolerance_call *)dlsym(RTLD_DEFAULT, "tt_tolerance");
	CUmodule module;
	CUdeviceptr p;

	start();
	OK(cuModuleLoadData(&module, FILL));
	p = allocate(ITEMS * 4);
	OK(cuMemsetD8(p, 0, ITEMS * 4));
	if (declare && argc > 3)
		printf("%d\n", declare(p, ITEMS, argv[1], atof(argv[2]), atof(argv[3])));
	OK(cuLaunchKernel(get_kernel(module, "fill"), 1, 1, 1, ITEMS, 1, 1, 0, NULL, PARAMS(&p), NULL));
	OK(cuCtxSynchronize());
	return 0;
}
