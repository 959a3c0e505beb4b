/* Block 0 stores a value, block 1 reads it at once: in order it finds the value, but nothing orders the two. */
#include "program.h"

static const char PASS[] =
	PTX_HEADER
	".visible .entry pass(.param .u64 p)\n{\n"
	".reg .pred %q; .reg .b32 %r<4>; .reg .b64 %a;\n"
	"ld.param.u64 %a, [p]; mov.u32 %r0, %ctaid.x; setp.ne.u32 %q, %r0, 0;\n"
	"@%q bra READ;\n"
	"mov.u32 %r1, 7;\n"
	"st.global.u32 [%a], %r1;\n"
	"ret;\n"
	"READ: ld.global.u32 %r2, [%a];\n"
	"st.global.u32 [%a+4], %r2;\n"
	"ret;\n}\n";

int main(void)
{
	unsigned out[2] = {0, 0};
	CUmodule module;
	CUdeviceptr p;

	start();
	OK(cuModuleLoadData(&module, PASS));
	p = allocate(8);
	OK(cuMemsetD8(p, 0, 8));
	OK(cuLaunchKernel(get_kernel(module, "pass"), 2, 1, 1, 32, 1, 1, 0, NULL, PARAMS(&p), NULL));
	OK(cuMemcpyDtoH(out, p, 8));
	printf("%u %u\n", out[0], out[1]);
	return 0;
}
