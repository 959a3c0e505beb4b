/*
 * Batches flow through two buffers and two streams: one uploads, the other computes and
 * downloads, and events keep them apart. The result does not depend on how they overlap.
 */
#include "common.h"

#define SLOTS 2

EMBED(ptx, "pipeline.ptx");

/* One batch on its way: pinned host memory, device memory, and how far it has come. */
struct slot {
	float *host_in, *host_out;
	CUdeviceptr in, out;
	CUevent uploaded, downloaded;
};

static uint64_t collect(struct slot *s, size_t bytes, uint64_t total)
{
	CHECK(cuEventSynchronize(s->downloaded));
	return total * 31 + checksum(s->host_out, bytes);
}

int main(int argc, char **argv)
{
	struct options o = read_options(argc, argv,
		(struct options){.size = 20000, .steps = 6, .seed = 1, .can_perturb = true});
	size_t bytes = (size_t)o.size * sizeof(float);
	int n = (int)o.size, rounds = 8;
	uint32_t random = (uint32_t)o.seed;
	uint64_t total = 0;
	struct slot slots[SLOTS];
	CUmodule module;
	CUstream upload, compute;

	start_device();
	CHECK(cuModuleLoadData(&module, ptx));
	CUfunction transform = kernel(module, "transform");
	CHECK(cuStreamCreate(&upload, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamCreate(&compute, CU_STREAM_NON_BLOCKING));
	for (struct slot *s = slots; s < slots + SLOTS; s++) {
		CHECK(cuMemAllocHost((void **)&s->host_in, bytes));
		CHECK(cuMemAllocHost((void **)&s->host_out, bytes));
		CHECK(cuMemAlloc(&s->in, bytes));
		CHECK(cuMemAlloc(&s->out, bytes));
		CHECK(cuEventCreate(&s->uploaded, CU_EVENT_DISABLE_TIMING));
		CHECK(cuEventCreate(&s->downloaded, CU_EVENT_DISABLE_TIMING));
	}

	for (long batch = 0; batch < o.steps; batch++) {
		struct slot *s = &slots[batch % SLOTS];

		if (batch >= SLOTS)
			total = collect(s, bytes, total);
		for (long i = 0; i < o.size; i++)
			s->host_in[i] = next_random(&random);
		if (batch == o.perturb)
			s->host_in[o.size / 2] = 0.5f;
		CHECK(cuMemcpyHtoDAsync(s->in, s->host_in, bytes, upload));
		CHECK(cuEventRecord(s->uploaded, upload));
		CHECK(cuStreamWaitEvent(compute, s->uploaded, 0));
		launch(transform, o.size, compute, PARAMS(&s->in, &s->out, &n, &rounds));
		CHECK(cuMemcpyDtoHAsync(s->host_out, s->out, bytes, compute));
		CHECK(cuEventRecord(s->downloaded, compute));
	}
	for (long batch = o.steps < SLOTS ? 0 : o.steps - SLOTS; batch < o.steps; batch++)
		total = collect(&slots[batch % SLOTS], bytes, total);

	printf("pipeline: %ld batches of %ld, checksum %016llx\n", o.steps, o.size, (unsigned long long)total);
	for (struct slot *s = slots; s < slots + SLOTS; s++) {
		CHECK(cuMemFreeHost(s->host_in));
		CHECK(cuMemFreeHost(s->host_out));
		CHECK(cuMemFree(s->in));
		CHECK(cuMemFree(s->out));
		CHECK(cuEventDestroy(s->uploaded));
		CHECK(cuEventDestroy(s->downloaded));
	}
	CHECK(cuStreamDestroy(upload));
	CHECK(cuStreamDestroy(compute));
	CHECK(cuDevicePrimaryCtxRelease(0));
	return 0;
}
