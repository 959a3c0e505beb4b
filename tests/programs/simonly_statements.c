/* A kernel as inline assembly makes it: several statements on a line, behind declarations, with an mbarrier. */
#include "program.h"

static const char turn_ptx[] =
	PTX_HEADER
	".visible .entry turn()\n{\n"
	".reg .b32 %r<3>; .reg .b64 %rd<3>;\n"
	".shared .align 8 .b64 bar[2];\n"
	"mov.u32 %r1, bar;\n"
	"mbarrier.init.shared::cta.b64 [%r1+8], 1;\n"
	"LOOP: { .reg .b64 s; mbarrier.arrive.shared::cta.b64 s, [bar+8]; }\n"
	"{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%r1+8], 0; @p st.shared::cta.u32 [bar], %r1; }\n"
	"ret;\n}\n";

int main(void)
{
	CUmodule module;

	start();
	OK(cuModuleLoadData(&module, turn_ptx));
	OK(cuLaunchKernel(get_kernel(module, "turn"), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	OK(cuCtxSynchronize());
	return 0;
}
