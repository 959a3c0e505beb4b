/* The runtime-API version of ../pipeline.c: the same work, the same output. */
#include "common.h"
#include "../pipeline.cu"

#define SLOTS 2

struct slot {
	float *host_in, *host_out, *in, *out;
	cudaEvent_t uploaded, downloaded;
};

static uint64_t collect(struct slot *s, size_t bytes, uint64_t total)
{
	CHECK(cudaEventSynchronize(s->downloaded));
	return total * 31 + checksum(s->host_out, bytes);
}

int main(int argc, char **argv)
{
	struct options o = read_options(argc, argv, options{20000, 6, 1, NO_STEP, false, true, false});
	size_t bytes = (size_t)o.size * sizeof(float);
	uint32_t random = (uint32_t)o.seed;
	uint64_t total = 0;
	struct slot slots[SLOTS];
	cudaStream_t upload, compute;

	CHECK(cudaStreamCreateWithFlags(&upload, cudaStreamNonBlocking));
	CHECK(cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking));
	for (struct slot *s = slots; s < slots + SLOTS; s++) {
		CHECK(cudaMallocHost(&s->host_in, bytes));
		CHECK(cudaMallocHost(&s->host_out, bytes));
		CHECK(cudaMalloc(&s->in, bytes));
		CHECK(cudaMalloc(&s->out, bytes));
		CHECK(cudaEventCreateWithFlags(&s->uploaded, cudaEventDisableTiming));
		CHECK(cudaEventCreateWithFlags(&s->downloaded, cudaEventDisableTiming));
	}

	for (long batch = 0; batch < o.steps; batch++) {
		struct slot *s = &slots[batch % SLOTS];

		if (batch >= SLOTS)
			total = collect(s, bytes, total);
		for (long i = 0; i < o.size; i++)
			s->host_in[i] = next_random(&random);
		if (batch == o.perturb)
			s->host_in[o.size / 2] = 0.5f;
		CHECK(cudaMemcpyAsync(s->in, s->host_in, bytes, cudaMemcpyHostToDevice, upload));
		CHECK(cudaEventRecord(s->uploaded, upload));
		CHECK(cudaStreamWaitEvent(compute, s->uploaded, 0));
		transform<<<BLOCKS(o.size), 256, 0, compute>>>(s->in, s->out, (int)o.size, 8);
		CHECK(cudaGetLastError());
		CHECK(cudaMemcpyAsync(s->host_out, s->out, bytes, cudaMemcpyDeviceToHost, compute));
		CHECK(cudaEventRecord(s->downloaded, compute));
	}
	for (long batch = o.steps < SLOTS ? 0 : o.steps - SLOTS; batch < o.steps; batch++)
		total = collect(&slots[batch % SLOTS], bytes, total);

	printf("pipeline: %ld batches of %ld, checksum %016llx\n", o.steps, o.size, (unsigned long long)total);
	for (struct slot *s = slots; s < slots + SLOTS; s++) {
		CHECK(cudaFreeHost(s->host_in));
		CHECK(cudaFreeHost(s->host_out));
		CHECK(cudaFree(s->in));
		CHECK(cudaFree(s->out));
		CHECK(cudaEventDestroy(s->uploaded));
		CHECK(cudaEventDestroy(s->downloaded));
	}
	CHECK(cudaStreamDestroy(upload));
	CHECK(cudaStreamDestroy(compute));
	return 0;
}
