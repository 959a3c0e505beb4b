/* Blocks of a cluster meet, and use each other's shared memory. Needs compute capability 9.0. */
#include "program.h"

#define BLOCKS 8
#define THREADS 64
#define WORDS (BLOCKS * THREADS)

#define BEGIN(name, parameters) \
	".visible .entry " name "(.param .u64 out, .param .u64 in" parameters ")\n{\n" \
	".reg .b16 %rs<2>;\n.reg .b32 %r<16>;\n.reg .b64 %rd<12>;\n.reg .pred %p<4>;\n" \
	".shared .align 128 .b8 tile[256];\n.shared .align 128 .b8 other[256];\n.shared .align 8 .b64 bar;\n" \
	"ld.param.u64 %rd1, [out];\nld.param.u64 %rd2, [in];\n" \
	"cvta.to.global.u64 %rd1, %rd1;\ncvta.to.global.u64 %rd2, %rd2;\n" \
	"mov.u32 %r1, %tid.x;\nmov.u32 %r2, %ctaid.x;\nmov.u32 %r3, %cluster_ctarank;\nmov.u32 %r4, %cluster_nctarank;\n" \
	"mov.u32 %r14, %ctaid.y;\nmov.u32 %r15, %nctaid.x;\nmad.lo.u32 %r2, %r14, %r15, %r2;\n" \
	"mad.lo.u32 %r5, %r2, 64, %r1;\n" \
	"mul.wide.u32 %rd3, %r5, 4;\nadd.u64 %rd1, %rd1, %rd3;\nadd.u64 %rd2, %rd2, %rd3;\n" \
	"mul.lo.u32 %r6, %r1, 4;\nmov.u32 %r7, tile;\nadd.u32 %r6, %r6, %r7;\n" \
	"add.u32 %r8, %r3, 1;\nrem.u32 %r8, %r8, %r4;\n" /* the next rank */
#define END "ret;\n}\n"
#define MEET "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n"
/* An mbarrier that expects 256 bytes. */
#define EXPECT \
	"setp.ne.u32 %p1, %r1, 0;\n" \
	"@%p1 bra READY;\n" \
	"mbarrier.init.shared::cta.b64 [bar], 1;\n" \
	"fence.mbarrier_init.release.cluster;\n" \
	"fence.proxy.async.shared::cta;\n" \
	"mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 256;\n" \
	"READY:\n"
#define WAIT "AGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], 0;\n@!%p2 bra AGAIN;\n"

static const char ptx[] =
	".version 8.1\n.target sm_90\n.address_size 64\n"
	/* Thread n writes the n-th of ten numbers. */
	BEGIN("names", "")
	"mov.u32 %r9, 0;\n"
	"mapa.shared::cluster.u32 %r10, %r7, %r8;\n"
	"getctarank.shared::cluster.u32 %r11, %r10;\n"
	"getctarank.shared::cluster.u32 %r12, %r7;\n"
#define NAME(n, value) "setp.eq.u32 %p1, %r1, " n ";\n@%p1 mov.u32 %r9, " value ";\n"
	NAME("0", "%clusterid.x") NAME("1", "%clusterid.y") NAME("2", "%nclusterid.x") NAME("3", "%nclusterid.y")
	NAME("4", "%cluster_ctaid.x") NAME("5", "%cluster_ctaid.y") NAME("6", "%cluster_nctaid.x")
	NAME("7", "%cluster_nctaid.y") NAME("8", "%r11") NAME("9", "%r12")
	"st.global.u32 [%rd1], %r9;\n" END
	/* Reads of the next block by both sorts of addresses, and sums in the first block. */
	BEGIN("neighbours", "")
	"mul.lo.u32 %r9, %r5, 7;\nst.shared.u32 [%r6], %r9;\n"
	"setp.eq.u32 %p1, %r1, 0;\n@%p1 st.shared.u32 [other], %r3;\n" MEET
	"mapa.shared::cluster.u32 %r10, %r6, %r8;\nld.shared::cluster.u32 %r11, [%r10];\n"
	"cvt.u64.u32 %rd4, %r6;\ncvta.shared.u64 %rd4, %rd4;\nmapa.u64 %rd5, %rd4, %r8;\nld.u32 %r12, [%rd5];\n"
	"mapa.shared::cluster.u32 %r13, other, 0;\n"
	"atom.shared::cluster.add.u32 %r14, [%r13], 3;\n" MEET
	"mad.lo.u32 %r11, %r12, 1000, %r11;\nld.shared::cluster.u32 %r12, [%r13];\nadd.u32 %r11, %r11, %r12;\n"
	"st.global.u32 [%rd1], %r11;\n" MEET END
	/* The first block has 256 bytes copied to all. */
	BEGIN("to_all", "") EXPECT MEET
	"setp.ne.u32 %p3, %r3, 0;\nor.pred %p3, %p3, %p1;\n@%p3 bra SENT;\nmov.b16 %rs1, 15;\n"
	"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [tile], [%rd2], 256, [bar], %rs1;\n"
	"SENT:\n" WAIT
	"ld.shared.u32 %r9, [%r6];\nst.global.u32 [%rd1], %r9;\n" MEET END
	/* Each block copies its own to the next one, and tells that block's mbarrier. */
	BEGIN("hand_over", "") EXPECT
	"mul.lo.u32 %r9, %r5, 13;\nst.shared.u32 [%r6], %r9;\nfence.proxy.async.shared::cta;\n" MEET
	"@%p1 bra SENT;\n"
	"mapa.shared::cluster.u32 %r10, other, %r8;\nmapa.shared::cluster.u32 %r11, bar, %r8;\n"
	"cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r10], [tile], 256, [%r11];\n"
	"SENT:\n" WAIT
	"add.u32 %r6, %r6, 256;\nld.shared.u32 %r9, [%r6];\nst.global.u32 [%rd1], %r9;\n" MEET END
	/* Each thread stores to the next block, whose mbarrier expects the bytes; then a quarter of them, each four numbers. */
	BEGIN("send", "") EXPECT MEET
	"mul.lo.u32 %r9, %r5, 17;\nadd.u32 %r6, %r6, 256;\n"
	"mapa.shared::cluster.u32 %r10, %r6, %r8;\nmapa.shared::cluster.u32 %r11, bar, %r8;\n"
	"st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r10], %r9, [%r11];\n" WAIT
	"ld.shared.u32 %r9, [%r6];\nst.global.u32 [%rd1], %r9;\n" MEET END
	BEGIN("send_four", "") EXPECT MEET
	"setp.ge.u32 %p3, %r1, 16;\n@%p3 bra SENT;\n"
	"mul.lo.u32 %r9, %r5, 19;\nadd.u32 %r12, %r9, 1;\nadd.u32 %r13, %r9, 2;\nadd.u32 %r14, %r9, 3;\n"
	"mov.u32 %r11, other;\nmad.lo.u32 %r10, %r1, 16, %r11;\n"
	"mapa.shared::cluster.u32 %r10, %r10, %r8;\nmapa.shared::cluster.u32 %r11, bar, %r8;\n"
	"st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r10], {%r9, %r12, %r13, %r14}, [%r11];\n"
	"SENT:\n" WAIT
	"add.u32 %r6, %r6, 256;\nld.shared.u32 %r9, [%r6];\nst.global.u32 [%rd1], %r9;\n" MEET END
	/* Two blocks get a box of a tensor; the others wait for nothing. */
	BEGIN("boxes", ", .param .align 64 .b8 map[128]") "mov.u32 %r9, 99;\nst.shared.u32 [%r6], %r9;\n" EXPECT MEET
	"mov.b64 %rd6, map;\ncvta.param.u64 %rd7, %rd6;\n"
	"setp.ne.u32 %p3, %r3, 0;\nor.pred %p3, %p3, %p1;\n@%p3 bra SENT;\nmov.b16 %rs1, 10;\n"
	"cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [tile], [%rd7, {%r1}],"
	" [bar], %rs1;\n"
	"SENT:\nand.b32 %r10, %r3, 1;\nsetp.eq.u32 %p3, %r10, 0;\n@%p3 bra DONE;\n" WAIT
	"DONE:\nld.shared.u32 %r9, [%r6];\nst.global.u32 [%rd1], %r9;\n" MEET END;

static CUdeviceptr out, in;
static CUtensorMap map;

static void run(CUmodule module, const char *name, unsigned x, unsigned y, unsigned cluster_x, unsigned cluster_y)
{
	CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
				       .value.clusterDim = {cluster_x, cluster_y, 1}};
	CUlaunchConfig config = {
		.gridDimX = x, .gridDimY = y, .gridDimZ = 1, .blockDimX = THREADS, .blockDimY = 1, .blockDimZ = 1,
		.attrs = &attribute, .numAttrs = 1,
	};
	uint32_t seen[WORDS], sum = 0;

	OK(cuMemsetD8(out, 0, sizeof(seen)));
	OK(cuLaunchKernelEx(&config, get_kernel(module, name), PARAMS(&out, &in, &map), NULL));
	OK(cuMemcpyDtoH(seen, out, sizeof(seen)));
	for (unsigned i = 0; i < WORDS; i++)
		sum = sum * 31 + seen[i];
	printf("%s in clusters of %u by %u: sum %08x\n", name, cluster_x, cluster_y, sum);
	for (unsigned block = 0; block < BLOCKS; block++) {
		printf(" ");
		for (unsigned i = 0; i < 10; i++)
			printf(" %u", seen[block * THREADS + i]);
		printf("\n");
	}
}

int main(void)
{
	static const cuuint64_t size[] = {WORDS}, stride[] = {0}; /* which must be there, but is not used */
	static const cuuint32_t box[] = {THREADS}, step[] = {1};
	uint32_t values[WORDS];
	CUmodule module;

	start();
	OK(cuModuleLoadData(&module, ptx));
	out = allocate(sizeof(values));
	in = allocate(sizeof(values));
	for (unsigned i = 0; i < WORDS; i++)
		values[i] = 5 * i + 1;
	OK(cuMemcpyHtoD(in, values, sizeof(values)));
	OK(cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_UINT32, 1, (void *)(uintptr_t)in, size, stride, box, step,
				  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
				  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
	run(module, "names", BLOCKS, 1, 4, 1);
	run(module, "names", BLOCKS / 2, 2, 2, 2);
	run(module, "neighbours", BLOCKS, 1, 4, 1);
	run(module, "neighbours", BLOCKS, 1, 8, 1);
	run(module, "neighbours", BLOCKS, 1, 1, 1);
	run(module, "to_all", BLOCKS, 1, 4, 1);
	run(module, "hand_over", BLOCKS, 1, 4, 1);
	run(module, "hand_over", BLOCKS, 1, 2, 1);
	run(module, "send", BLOCKS, 1, 4, 1);
	run(module, "send_four", BLOCKS, 1, 2, 1);
	run(module, "boxes", BLOCKS, 1, 4, 1);
	OK(cuModuleUnload(module));
	OK(cuMemFree(in));
	OK(cuMemFree(out));
	return 0;
}
