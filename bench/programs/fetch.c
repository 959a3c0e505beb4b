/*
 * How fast device memory comes to pinned host memory, in copies as large as --bytes; how much of
 * pinned memory counts as the process's own, and how much of it the recorder's drain has.
 */
#include "program.h"

#include "capture/drain.h"

int main(int argc, char **argv)
{
	uint64_t bytes = number(argc, argv, "--bytes", 256 << 20), copies = number(argc, argv, "--copies", 16), began = 0;
	CUdeviceptr from;
	CUstream stream;
	void *to;

	start_device();
	CHECK(cuMemAlloc(&from, bytes));
	CHECK(cuMemsetD8(from, 0x5a, bytes));
	uint64_t resident = status_bytes("VmRSS:");
	CHECK(cuMemHostAlloc(&to, bytes, 0));
	memset(to, 1, bytes);
	resident = status_bytes("VmRSS:") - resident;
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (uint64_t i = 0; i <= copies; i++) {
		CHECK(cuMemcpyDtoHAsync(to, from, bytes, stream));
		if (i)
			continue;
		CHECK(cuStreamSynchronize(stream));
		began = now();
	}
	CHECK(cuStreamSynchronize(stream));
	printf("{\"bytes\": %llu, \"elapsed_ns\": %llu, \"pinned\": %llu, \"resident\": %llu, \"drain_buffers\": %llu}\n",
	       (unsigned long long)(bytes * copies), (unsigned long long)(now() - began), (unsigned long long)bytes,
	       (unsigned long long)resident, (unsigned long long)(DRAIN_BUFFERS * DRAIN_BUFFER + DRAIN_LIST_SIZE));
	return 0;
}
