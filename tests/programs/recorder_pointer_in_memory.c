/* Kernels write through a pointer that lies in memory: no parameter names the memory they write to. */
#include "program.h"

#define STEPS 12

static const char FOLLOW[] =
	PTX_HEADER
	".visible .entry follow(.param .u64 table)\n{\n"
	".reg .b32 %r<3>; .reg .b64 %rd<3>;\n"
	"ld.param.u64 %rd1, [table];\nld.global.u64 %rd2, [%rd1];\n"
	"ld.global.u32 %r1, [%rd2];\nadd.u32 %r1, %r1, 1;\nst.global.u32 [%rd2], %r1;\nret;\n}\n";

int main(void)
{
	CUdeviceptr table, target, other;
	CUmodule module;
	unsigned n = 64, one = 1;

	start();
	OK(cuModuleLoadData(&module, FOLLOW));
	CUfunction follow = get_kernel(module, "follow"), add = get_kernel(load_kernels(), "add");
	table = allocate(256);
	target = allocate(256);
	other = allocate(256);
	OK(cuMemsetD32(target, 0, 64));
	OK(cuMemsetD32(other, 0, 64));
	OK(cuMemcpyHtoD(table, &target, sizeof(target)));
	OK(cuCtxSynchronize());
	for (unsigned i = 0; i < STEPS; i++) {
		OK(cuLaunchKernel(follow, 1, 1, 1, 1, 1, 1, 0, NULL, PARAMS(&table), NULL));
		OK(launch(add, n, NULL, PARAMS(&other, &n, &one)));
		OK(cuCtxSynchronize());
	}
	print_words("target", target, 2);
	return 0;
}
