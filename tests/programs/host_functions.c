/* Host functions and callbacks run in the order of their stream. */
#include "program.h"

static char order[100];

static void note(void *letter)
{
	order[strlen(order)] = *(char *)letter;
}

static void note_callback(CUstream stream, CUresult status, void *letter)
{
	(void)stream;
	note(status == CUDA_SUCCESS ? letter : "!");
}

int main(void)
{
	unsigned n = 10000, rounds = 300;
	CUstream stream;

	start();
	CUfunction mix = get_kernel(load_kernels(), "mix");
	CUdeviceptr p = allocate(n * 4);
	OK(cuMemsetD8(p, 0, n * 4));
	OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
	SHOW(cuLaunchHostFunc(stream, note, "a"));
	OK(launch(mix, n, stream, PARAMS(&p, &n, &rounds)));
	SHOW(cuLaunchHostFunc(stream, note, "b"));
	SHOW(cuStreamAddCallback(stream, note_callback, "c", 0));
	OK(cuMemsetD8Async(p, 1, 10, stream));
	SHOW(cuLaunchHostFunc(stream, note, "d"));
	SHOW(cuStreamSynchronize(stream));
	printf("%s\n", order);
	SHOW(cuLaunchHostFunc(NULL, note, "e"));
	SHOW(cuCtxSynchronize());
	printf("%s\n", order);
	print_device("result", p, n * 4);
	SHOW(cuLaunchHostFunc(stream, NULL, NULL));
	SHOW(cuStreamAddCallback(stream, note_callback, "f", 1));
	OK(cuStreamDestroy(stream));
	OK(cuMemFree(p));
	return 0;
}
