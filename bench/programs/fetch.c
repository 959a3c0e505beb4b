/*
 * How fast device memory comes to pinned host memory, in copies as large as --bytes.
 */
#include "program.h"

int main(int argc, char **argv)
{
	uint64_t bytes = number(argc, argv, "--bytes", 256 << 20), copies = number(argc, argv, "--copies", 16), began = 0;
	CUdeviceptr from;
	CUstream stream;
	void *to;

	start_device();
	CHECK(cuMemAlloc(&from, bytes));
	CHECK(cuMemsetD8(from, 0x5a, bytes));
	CHECK(cuMemHostAlloc(&to, bytes, 0));
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (uint64_t i = 0; i <= copies; i++) {
		CHECK(cuMemcpyDtoHAsync(to, from, bytes, stream));
		if (i)
			continue;
		CHECK(cuStreamSynchronize(stream));
		began = now();
	}
	CHECK(cuStreamSynchronize(stream));
	printf("{\"bytes\": %llu, \"elapsed_ns\": %llu}\n", (unsigned long long)(bytes * copies),
	       (unsigned long long)(now() - began));
	return 0;
}
