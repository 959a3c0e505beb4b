/*
 * Launches for replays of single launches. Each needs a different kind of input. The program prints them in
 * order. With an argument, the last one launches a kernel that fails, some time after all earlier work is
 * complete.
 */
#include "program.h"

#include <unistd.h>

#define ITEMS 20000

static const char OWN[] =
	PTX_HEADER
	".visible .const .align 4 .u32 factor = 3;\n"

	/* scale(u32 *p, u32 *q, u32 n): q[i] = p[i] * factor, with as many threads as there are */
	".visible .entry scale(.param .u64 p, .param .u64 q, .param .u32 n)\n{\n"
	".reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %rd<8>;\n"
	"mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x;\n"
	"mad.lo.u32 %r1, %r3, %r4, %r5;\n"
	"mov.u32 %r6, %nctaid.x; mul.lo.u32 %r6, %r6, %r4;\n"
	"ld.param.u32 %r2, [n]; ld.const.u32 %r7, [factor];\n"
	"ld.param.u64 %rd1, [p]; cvta.to.global.u64 %rd1, %rd1;\n"
	"ld.param.u64 %rd2, [q]; cvta.to.global.u64 %rd2, %rd2;\n"
	"LOOP: setp.ge.u32 %p1, %r1, %r2;\n@%p1 bra DONE;\n"
	"mul.wide.u32 %rd3, %r1, 4;\nadd.s64 %rd4, %rd1, %rd3;\nadd.s64 %rd5, %rd2, %rd3;\n"
	"ld.global.u32 %r8, [%rd4]; mul.lo.u32 %r8, %r8, %r7; st.global.u32 [%rd5], %r8;\n"
	"add.u32 %r1, %r1, %r6;\nbra LOOP;\n"
	PTX_END

	/* sums(u32 *p, u32 *q, u32 n): q[block] += the block's p[i]; there are as many threads as i */
	PTX_BEGIN("sums", ".param .u64 p, .param .u64 q, .param .u32 n", "n")
	PTX_ELEMENT("p")
	"ld.global.u32 %r7, [%rd1];\n"
	"ld.param.u64 %rd3, [q]; cvta.to.global.u64 %rd3, %rd3;\n"
	"mul.wide.u32 %rd4, %r3, 4; add.s64 %rd3, %rd3, %rd4;\n"
	"red.global.add.u32 [%rd3], %r7;\n"
	PTX_END

	/* follow(u32 **table, u32 n): table[1][i] = table[0][i] + 1 */
	PTX_BEGIN("follow", ".param .u64 table, .param .u32 n", "n")
	"ld.param.u64 %rd1, [table]; cvta.to.global.u64 %rd1, %rd1;\n"
	"ld.global.u64 %rd2, [%rd1]; ld.global.u64 %rd3, [%rd1+8];\n"
	"mul.wide.u32 %rd4, %r1, 4; add.s64 %rd2, %rd2, %rd4; add.s64 %rd3, %rd3, %rd4;\n"
	"ld.u32 %r6, [%rd2]; add.u32 %r6, %r6, 1; st.u32 [%rd3], %r6;\n"
	PTX_END;

static void done(const char *name)
{
	OK(cuCtxSynchronize());
	printf("%s\n", name);
}

int main(int argc, char **argv)
{
	static unsigned items[ITEMS];
	unsigned n = ITEMS, few = 2048, value = 41, i;
	CUdeviceptr p, q, sums, table, other, counter, entries[2];
	CUmodule own, module;
	size_t size;

	(void)argv;
	start();
	module = load_kernels();
	OK(cuModuleLoadData(&own, OWN));
	p = allocate(n * 4);
	q = allocate(n * 4);
	sums = allocate(4096);
	other = allocate(1 << 20); /* which no launch has to do with */
	table = allocate(64);
	OK(cuMemsetD32(other, 7, 1 << 18));
	for (i = 0; i < n; i++)
		items[i] = i * 2654435761u;
	OK(cuMemcpyHtoD(p, items, sizeof items));
	OK(cuMemsetD8(q, 0xff, n * 4));
	OK(cuLaunchKernel(get_kernel(own, "scale"), 20, 1, 1, 128, 1, 1, 0, NULL, PARAMS(&p, &q, &n), NULL));
	done("scale");

	OK(cuMemsetD8(sums, 0, 4096));
	OK(cuLaunchKernel(get_kernel(own, "sums"), 160, 1, 1, 128, 1, 1, 0, NULL, PARAMS(&q, &sums, &n), NULL));
	done("sums");

	entries[0] = p;
	entries[1] = q;
	OK(cuMemcpyHtoD(table, entries, sizeof entries));
	OK(cuLaunchKernel(get_kernel(own, "follow"), 8, 1, 1, 256, 1, 1, 0, NULL, PARAMS(&table, &few), NULL));
	done("follow");

	few = 256;
	OK(cuLaunchKernel(get_kernel(module, "reverse"), 1, 1, 1, 256, 1, 1, 1024, NULL, PARAMS(&p, &few), NULL));
	done("reverse");

	OK(cuLaunchCooperativeKernel(get_kernel(module, "fill"), 8, 1, 1, 64, 1, 1, 0, NULL, PARAMS(&p, &few, &value)));
	done("fill");

	OK(cuModuleGetGlobal(&counter, &size, module, "counter"));
	OK(cuLaunchKernel(get_kernel(module, "poke"), 1, 1, 1, 1, 1, 1, 0, NULL, PARAMS(&counter, &value), NULL));
	done("poke");

	OK(cuLaunchKernel(get_kernel(module, "bump"), 1, 1, 1, 64, 1, 1, 0, NULL, NULL, NULL));
	done("bump");
	if (argc > 1) {
		usleep(500000);
		p = 0x10;
		OK(cuLaunchKernel(get_kernel(module, "poke"), 2, 1, 1, 1, 1, 1, 0, NULL, PARAMS(&p, &value), NULL));
		done("poke at nothing");
	}
	return 0;
}
