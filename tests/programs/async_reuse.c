/* Two streams allocate and free stream-ordered memory: neither sees the contents of the other. */
#include "program.h"

enum { STREAMS = 2, ROUNDS = 24, MOST = 30000 };

int main(void)
{
	CUdeviceptr kept[STREAMS];
	CUstream streams[STREAMS], third;
	CUevent event;

	start();
	CUmodule module = load_kernels();
	CUfunction mix = get_kernel(module, "mix"), add = get_kernel(module, "add");
	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	OK(cuStreamCreate(&third, CU_STREAM_NON_BLOCKING));
	for (unsigned s = 0; s < STREAMS; s++) {
		OK(cuStreamCreate(&streams[s], CU_STREAM_NON_BLOCKING));
		kept[s] = allocate(MOST * 4);
		OK(cuMemsetD8(kept[s], 0, MOST * 4));
	}
	OK(cuCtxSynchronize());
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (unsigned s = 0; s < STREAMS; s++) {
			unsigned n = MOST / (1 + (round * 7 + s) % 5), rounds = 20 + s, value = round;
			CUdeviceptr p, q;

			OK(cuMemAllocAsync(&p, n * 4, streams[s]));
			OK(cuMemsetD32Async(p, round * STREAMS + s, n, streams[s]));
			OK(launch(mix, n, streams[s], PARAMS(&p, &n, &rounds)));
			OK(cuMemAllocAsync(&q, n, streams[s]));
			OK(cuMemsetD8Async(q, (unsigned char)(round + s), n, streams[s]));
			OK(cuMemcpyDtoDAsync(kept[s], p, n * 4, streams[s]));
			OK(cuMemcpyDtoDAsync(kept[s] + n, q, n, streams[s]));
			OK(launch(add, n, streams[s], PARAMS(&kept[s], &n, &value)));
			OK(cuMemFreeAsync(p, streams[s]));
			OK(cuEventRecord(event, streams[s]));
			OK(cuStreamWaitEvent(third, event, 0));
			OK(cuMemFreeAsync(q, third));
		}
		if (round % 6 == 2)
			OK(cuStreamSynchronize(streams[round / 6 % STREAMS]));
		if (round % 6 == 3)
			OK(cuStreamSynchronize(third));
		if (round % 6 == 5) {
			OK(cuCtxSynchronize());
			for (unsigned s = 0; s < STREAMS; s++)
				print_device("kept", kept[s], MOST * 4);
		}
	}
	for (unsigned s = 0; s < STREAMS; s++) {
		OK(cuMemFree(kept[s]));
		SHOW(cuStreamDestroy(streams[s]));
	}
	SHOW(cuStreamDestroy(third));
	return 0;
}
