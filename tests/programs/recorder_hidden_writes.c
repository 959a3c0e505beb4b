/*
 * Kernels write to memory whose address is in no parameter and in no word of memory: it is masked, in two halves, a
 * distance from another allocation, or an index. Prints the memory after each.
 */
#include "program.h"

#define KEY 0x5a5a5a5a5a5a5a5aull
#define WRITE "ld.global.u32 %r1, [%rd1];\nadd.u32 %r1, %r1, 1;\nst.global.u32 [%rd1], %r1;\nret;\n}\n"
#define REGISTERS ".reg .b32 %r<4>; .reg .b64 %rd<5>;\n"

static const char HIDDEN[] = PTX_HEADER
	".visible .global .u64 hidden;\n"
	".visible .entry masked(.param .u64 table)\n{\n" REGISTERS
	"ld.param.u64 %rd2, [table];\nld.global.u64 %rd1, [%rd2];\nxor.b64 %rd1, %rd1, 0x5a5a5a5a5a5a5a5a;\n" WRITE
	".visible .entry halves(.param .u32 low, .param .u32 pad, .param .u32 high)\n{\n" REGISTERS
	"ld.param.u32 %r2, [low];\nld.param.u32 %r3, [high];\nmov.b64 %rd1, {%r2, %r3};\n" WRITE
	".visible .entry distance(.param .u64 near, .param .u64 bytes)\n{\n" REGISTERS
	"ld.param.u64 %rd2, [near];\nld.param.u64 %rd3, [bytes];\nadd.s64 %rd1, %rd2, %rd3;\n" WRITE
	".visible .entry indexed(.param .u64 near)\n{\n" REGISTERS
	"ld.param.u64 %rd2, [near];\nld.global.s64 %rd3, [%rd2];\nshl.b64 %rd3, %rd3, 2;\nadd.s64 %rd1, %rd2, %rd3;\n" WRITE
	".visible .entry variable(.param .u64 near)\n{\n" REGISTERS
	"ld.global.u64 %rd1, [hidden];\nxor.b64 %rd1, %rd1, 0x5a5a5a5a5a5a5a5a;\n" WRITE;

int main(void)
{
	CUdeviceptr near, target, hidden;
	CUmodule module;
	unsigned low, high, pad = 0;
	size_t size;

	start();
	OK(cuModuleLoadData(&module, HIDDEN));
	near = allocate(1 << 16);
	target = allocate(1 << 16);
	OK(cuMemsetD32(near, 0, 64));
	OK(cuMemsetD32(target, 0, 64));
	OK(cuModuleGetGlobal(&hidden, &size, module, "hidden"));
	CUdeviceptr masked = target ^ KEY, bytes = target - near;
	int64_t index = (int64_t)bytes / 4;
	low = (unsigned)target;
	high = (unsigned)(target >> 32);
	struct {
		const char *name;
		void **params;
		CUdeviceptr to;
		const void *word;
	} ways[] = {
		{"masked", PARAMS(&near), near, &masked},
		{"halves", PARAMS(&low, &pad, &high), near, &index},
		{"distance", PARAMS(&near, &bytes), near, &index},
		{"indexed", PARAMS(&near), near, &index},
		{"variable", PARAMS(&near), hidden, &masked},
	};
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		OK(cuMemcpyHtoD(ways[i].to, ways[i].word, 8));
		OK(cuCtxSynchronize());
		OK(cuLaunchKernel(get_kernel(module, ways[i].name), 1, 1, 1, 1, 1, 1, 0, NULL, ways[i].params, NULL));
		OK(cuCtxSynchronize());
		print_words(ways[i].name, target, 1);
	}
	return 0;
}
