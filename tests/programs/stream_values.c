/* A stream writes a value to memory and another waits for it. */
#include "program.h"

#include <dlfcn.h>

/* The first version of the calls is for drivers that were told to allow it. */
static void show_first_version(CUstream stream, CUdeviceptr flag)
{
	CUresult (*write)(CUstream, CUdeviceptr, cuuint32_t, unsigned) = dlsym(RTLD_DEFAULT, "cuStreamWriteValue32");
	CUresult (*wait)(CUstream, CUdeviceptr, cuuint32_t, unsigned) = dlsym(RTLD_DEFAULT, "cuStreamWaitValue32");

	SHOW(write(stream, flag, 99, 0));
	SHOW(wait(stream, flag, 8, CU_STREAM_WAIT_VALUE_EQ));
	SHOW(cuStreamSynchronize(stream));
	print_words("flags", flag, 4);
}

int main(void)
{
	unsigned n = 10000, value = 61;
	CUstream one, two;

	start();
	CUmodule module = load_kernels();
	CUfunction fill = get_kernel(module, "fill"), add = get_kernel(module, "add");
	CUdeviceptr p = allocate(n * 4), flag = allocate(16);
	OK(cuMemsetD8(flag, 0, 16));
	OK(cuCtxSynchronize());
	OK(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
	OK(launch(fill, n, one, PARAMS(&p, &n, &value)));
	SHOW(cuStreamWriteValue32(one, flag, 5, 0));
	SHOW(cuStreamWaitValue32(two, flag, 5, CU_STREAM_WAIT_VALUE_EQ));
	OK(launch(add, n, two, PARAMS(&p, &n, &value)));
	SHOW(cuStreamWriteValue64(two, flag + 8, 1ull << 33, 0));
	SHOW(cuStreamWaitValue64(one, flag + 8, 1, CU_STREAM_WAIT_VALUE_GEQ));
	OK(launch(add, n, one, PARAMS(&p, &n, &value)));
	SHOW(cuStreamSynchronize(one));
	print_device("result", p, n * 4);
	print_words("flags", flag, 4);
	CUstreamBatchMemOpParams ops[2] = {
		{.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = flag, .value = 8}},
		{.waitValue = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32, .address = flag, .value = 8,
			       .flags = CU_STREAM_WAIT_VALUE_EQ}},
	};
	SHOW(cuStreamBatchMemOp(two, 2, ops, 0));
	SHOW(cuStreamSynchronize(two));
	print_words("flags", flag, 4);
	show_first_version(one, flag);
	OK(cuStreamDestroy(one));
	OK(cuStreamDestroy(two));
	OK(cuMemFree(p));
	OK(cuMemFree(flag));
	return 0;
}
