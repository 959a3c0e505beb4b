/*
 * Launches for long, with many allocations alive; says, at every power of ten and every tenth of
 * the whole, how much memory the process has and what a launch took since the last time.
 */
#include "program.h"

EMBED(ptx, "work.ptx");

static void mark(uint64_t done, uint64_t since, uint64_t elapsed)
{
	printf("%s{\"launches\": %llu, \"resident\": %llu, \"anonymous\": %llu, \"file\": %llu, \"shared\": %llu, "
	       "\"ns\": %.2f}", done ? ",\n" : "[", (unsigned long long)done, (unsigned long long)status_bytes("VmRSS:"),
	       (unsigned long long)status_bytes("RssAnon:"), (unsigned long long)status_bytes("RssFile:"),
	       (unsigned long long)status_bytes("RssShmem:"), since ? (double)elapsed / (double)since : 0.0);
	fflush(stdout);
}

static bool due(uint64_t done, uint64_t launches)
{
	uint64_t power = 1;

	while (power < done)
		power *= 10;
	return done == power || done % (launches / 10) == 0;
}

int main(int argc, char **argv)
{
	uint64_t launches = number(argc, argv, "--launches", 1000000), live = number(argc, argv, "--live", 0);
	uint64_t every = number(argc, argv, "--every", 256), marked = 0, elapsed = 0;
	CUdeviceptr *addresses = (CUdeviceptr *)room(live);
	CUmodule module;
	CUstream stream;

	if (launches < 10) {
		fputs("soak: at least 10 launches\n", stderr);
		return 2;
	}
	start_device();
	CHECK(cuModuleLoadData(&module, ptx));
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CUfunction f = kernel(module, "nothing");
	for (uint64_t i = 0; i < live; i++) {
		CHECK(cuMemAlloc(&addresses[i], 4096));
		CHECK(cuMemsetD8(addresses[i], (unsigned char)i, 4096));
	}
	mark(0, 0, 0);
	for (uint64_t i = 1, began = now(); i <= launches; i++) {
		CHECK(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream, PARAMS(&addresses[live ? i % live : 0]), NULL));
		bool here = due(i, launches);
		if (i % every && !here)
			continue;
		elapsed += now() - began;
		CHECK(cuStreamSynchronize(stream));
		if (here) {
			mark(i, i - marked, elapsed);
			marked = i;
			elapsed = 0;
		}
		began = now();
	}
	puts("]");
	for (uint64_t i = 0; i < live; i++)
		CHECK(cuMemFree(addresses[i]));
	return 0;
}
