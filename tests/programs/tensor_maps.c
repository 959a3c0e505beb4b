/* Boxes of a tensor are copied to shared memory and on, by tensor maps. Needs compute capability 9.0. */
#include "program.h"

#define WIDTH 40
#define HEIGHT 20
#define BOX_WIDTH 32
#define BOX_HEIGHT 8
#define SIZE (WIDTH * HEIGHT * sizeof(uint32_t))

#define KERNEL(name, store) \
	".visible .entry " name "(.param .align 64 .b8 from[128], .param .align 64 .b8 to[128], .param .u32 x, .param .u32 y," \
	" .param .u32 u, .param .u32 v)\n" \
	"{\n" \
	".reg .b32 %r<8>;\n.reg .b64 %rd<5>;\n.reg .pred %p<3>;\n" \
	".shared .align 1024 .b8 tile[1024];\n.shared .align 8 .b64 bar;\n" \
	"mov.u32 %r1, %tid.x;\n" \
	"setp.ne.u32 %p1, %r1, 0;\n" \
	"mov.b64 %rd1, from;\n" \
	"cvta.param.u64 %rd2, %rd1;\n" \
	"mov.b64 %rd3, to;\n" \
	"cvta.param.u64 %rd4, %rd3;\n" \
	"ld.param.u32 %r2, [x];\n" \
	"ld.param.u32 %r3, [y];\n" \
	"ld.param.u32 %r6, [u];\n" \
	"ld.param.u32 %r7, [v];\n" \
	"mov.u32 %r4, tile;\n" \
	"mov.u32 %r5, bar;\n" \
	"@%p1 bra WAIT;\n" \
	"mbarrier.init.shared::cta.b64 [%r5], 1;\n" \
	"fence.proxy.async.shared::cta;\n" \
	"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], 1024;\n" \
	"cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r4], [%rd2, {%r2, %r3}], [%r5];\n" \
	"WAIT:\n" \
	"bar.sync 0;\n" \
	"LOOP:\n" \
	"mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r5], 0;\n" \
	"@!%p2 bra LOOP;\n" \
	"bar.sync 0;\n" \
	"@%p1 bra DONE;\n" \
	"cp." store ".tile.bulk_group [%rd4, {%r6, %r7}], [%r4];\n" \
	"cp.async.bulk.commit_group;\n" \
	"cp.async.bulk.wait_group 0;\n" \
	"DONE:\n" \
	"ret;\n" \
	"}\n"

/* Moves a box from one tensor to another, or adds it up there. */
static const char ptx[] = ".version 8.0\n.target sm_90\n.address_size 64\n" KERNEL("move",
										   "async.bulk.tensor.2d.global.shared::cta")
	KERNEL("sum", "reduce.async.bulk.tensor.2d.global.shared::cta.add");

static const cuuint64_t sizes[] = {WIDTH, HEIGHT}, strides[] = {WIDTH * sizeof(uint32_t)};
static const cuuint32_t box[] = {BOX_WIDTH, BOX_HEIGHT}, steps[] = {1, 1};

static CUresult encode(CUtensorMap *map, CUdeviceptr at, const cuuint32_t *of, CUtensorMapSwizzle swizzle)
{
	return cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_INT32, 2, (void *)(uintptr_t)at, sizes, strides, of, steps,
				      CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
				      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

/* Of 2 pictures of 8 times 8 pixels of 16 channels. */
static CUresult encode_im2col(CUtensorMap *map, CUdeviceptr at, int lower, cuuint32_t channels)
{
	static const cuuint64_t size[] = {16, 8, 8, 2}, stride[] = {64, 512, 4096};
	static const cuuint32_t step[] = {1, 1, 1, 1};
	const int lowers[] = {lower, -1}, uppers[] = {-1, -1};

	return cuTensorMapEncodeIm2col(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, (void *)(uintptr_t)at, size, stride, lowers,
				       uppers, channels, 32, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
				       CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

static void show(const char *what, CUdeviceptr at)
{
	static uint32_t seen[WIDTH * HEIGHT];
	uint32_t written = 0, sum = 0;

	OK(cuCtxSynchronize());
	OK(cuMemcpyDtoH(seen, at, SIZE));
	for (uint32_t i = 0; i < WIDTH * HEIGHT; i++) {
		written += seen[i] != 0xffffffff;
		sum = sum * 31 + seen[i];
	}
	printf("%s: %u elements written, %08x\n", what, written, sum);
	OK(cuMemsetD8(at, 0xff, SIZE));
}

int main(void)
{
	static uint32_t numbers[WIDTH * HEIGHT];
	/* of the loads, and of the stores, which may not begin at negative coordinates */
	static const int32_t places[][4] = {{4, 3, 4, 3},   {16, 16, 16, 16}, {-4, -2, 0, 0},
					    {100, 0, 8, 4}, {4, 3, 36, 18},   {4, 3, 40, 0}};
	CUtensorMap from, swizzled, to;
	CUmodule module;
	CUfunction move, sum;
	CUdeviceptr data, out;

	start();
	OK(cuModuleLoadData(&module, ptx));
	OK(cuModuleGetFunction(&move, module, "move"));
	OK(cuModuleGetFunction(&sum, module, "sum"));
	OK(cuMemAlloc(&data, SIZE));
	OK(cuMemAlloc(&out, SIZE));
	for (uint32_t i = 0; i < WIDTH * HEIGHT; i++)
		numbers[i] = 1000 + i;
	OK(cuMemcpyHtoD(data, numbers, SIZE));
	OK(cuMemsetD8(out, 0xff, SIZE));
	SHOW(encode(&from, data, box, CU_TENSOR_MAP_SWIZZLE_NONE));
	SHOW(encode(&swizzled, data, box, CU_TENSOR_MAP_SWIZZLE_128B));
	SHOW(encode(&to, data, box, CU_TENSOR_MAP_SWIZZLE_NONE));
	SHOW(cuTensorMapReplaceAddress(&to, (void *)(uintptr_t)out));
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		int32_t x = places[i][0], y = places[i][1], u = places[i][2], v = places[i][3];
		OK(cuLaunchKernel(move, 1, 1, 1, 32, 1, 1, 0, NULL, PARAMS(&from, &to, &x, &y, &u, &v), NULL));
		show("plain", out);
		OK(cuLaunchKernel(move, 1, 1, 1, 32, 1, 1, 0, NULL, PARAMS(&swizzled, &to, &x, &y, &u, &v), NULL));
		show("swizzled", out);
		OK(cuLaunchKernel(sum, 1, 1, 1, 32, 1, 1, 0, NULL, PARAMS(&from, &to, &x, &y, &u, &v), NULL));
		show("sum", out);
	}
	SHOW(encode(&from, data + 8, box, CU_TENSOR_MAP_SWIZZLE_NONE));
	SHOW(encode(&from, data, (cuuint32_t[]){3, 8}, CU_TENSOR_MAP_SWIZZLE_NONE));
	SHOW(encode(&from, data, (cuuint32_t[]){64, 1}, CU_TENSOR_MAP_SWIZZLE_128B));
	SHOW(encode(&from, data, (cuuint32_t[]){32, 257}, CU_TENSOR_MAP_SWIZZLE_NONE));
	SHOW(encode(NULL, data, box, CU_TENSOR_MAP_SWIZZLE_NONE));
	SHOW(encode_im2col(&from, data, -1, 16));
	SHOW(encode_im2col(&from, data, -129, 16));
	SHOW(encode_im2col(&from, data, -1, 3));
	OK(cuMemFree(data));
	OK(cuMemFree(out));
	return 0;
}
