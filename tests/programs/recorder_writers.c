/*
 * Threads write to the same memory: blocks and lanes that nothing orders, one thread several times, single bytes. Other
 * launches only read it, each behind a fill.
 */
#include "program.h"

static const char WRITERS[] =
	".version 6.3\n.target sm_70\n.address_size 64\n"
	".file 1 \"writers.cu\"\n"
	".visible .entry writers(.param .u64 p)\n{\n"
	".reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %rd<4>;\n"
	"mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %tid.x;\n"
	"ld.param.u64 %rd1, [p];\ncvta.to.global.u64 %rd1, %rd1;\n"
	"st.global.u32 [%rd1+8], %r2;\n" /* by all lanes */
	"add.u32 %r3, %r1, 1;\n"
	"st.global.u32 [%rd1], %r3;\n"
	"or.b32 %r4, %r1, %r2;\nsetp.ne.u32 %p1, %r4, 0;\n"
	"@%p1 bra DONE;\n"
	".loc 1 7 3\n"
	"st.global.u32 [%rd1+4], 5;\n"
	".loc 1 8 3\n"
	"st.global.u32 [%rd1+4], 9;\n"
	"atom.global.add.u32 %r5, [%rd1+12], 3;\n"
	"atom.global.add.u32 %r5, [%rd1+12], 4;\n"
	"st.global.u8 [%rd1+17], 255;\n"
	"DONE:\nret;\n}\n"
	".visible .entry reader(.param .u64 p)\n{\n"
	".reg .b32 %r<2>; .reg .b64 %rd<2>;\n"
	"ld.param.u64 %rd1, [p];\nld.global.u32 %r1, [%rd1+20];\nret;\n}\n";

int main(void)
{
	CUdeviceptr p;
	CUmodule module;

	start();
	OK(cuModuleLoadData(&module, WRITERS));
	CUfunction reader = get_kernel(module, "reader");
	p = allocate(64);
	OK(cuMemsetD32(p, 16, 16));
	OK(cuLaunchKernel(reader, 1, 1, 1, 1, 1, 1, 0, NULL, PARAMS(&p), NULL));
	OK(cuLaunchKernel(get_kernel(module, "writers"), 2, 1, 1, 32, 1, 1, 0, NULL, PARAMS(&p), NULL));
	OK(cuCtxSynchronize());
	OK(cuMemsetD32(p + 20, 6, 1));
	OK(cuLaunchKernel(reader, 1, 1, 1, 1, 1, 1, 0, NULL, PARAMS(&p), NULL));
	OK(cuCtxSynchronize());
	print_words("ordered", p + 4, 1);
	print_words("counted", p + 12, 3);
	return 0;
}
