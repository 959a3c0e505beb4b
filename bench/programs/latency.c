/*
 * What a launch costs the host: an empty kernel, launched and timed call by call, then in batches
 * without a clock between. Waits for the device between batches, outside of what is timed, so
 * that no launch waits for room in the queue. Batches come in pairs, in an order that is random because
 * the driver has work of its own after a number of launches: as the program calls the driver, which may be
 * through a recorder, and through the driver's own entry point. What has a switch is on for the one and
 * off for the other.
 */
#include "own.h"
#include "program.h"

EMBED(ptx, "work.ptx");

extern void bench_switch(int on) __attribute__((weak)); /* of cupti.c */

typedef __typeof__(&cuLaunchKernel) launch_fn;

struct side {
	const char *name;
	launch_fn launch;
	uint64_t *calls, *whole;
};

static void turn(const struct side *s)
{
	if (bench_switch)
		bench_switch(!strcmp(s->name, "program"));
}

static uint64_t coin(void)
{
	static uint64_t state = 1;

	state = state * 6364136223846793005u + 1442695040888963407u;
	return state >> 63;
}

int main(int argc, char **argv)
{
	uint64_t launches = number(argc, argv, "--launches", 200000), batch = number(argc, argv, "--batch", 256);
	uint64_t batches = launches / batch + 1, n = batches * batch, began;
	struct side sides[] = {{.name = "program", .launch = cuLaunchKernel}, {.name = "driver"}};
	CUmodule module;
	CUstream stream;
	CUdeviceptr p;

	start_device();
	CHECK(cuModuleLoadData(&module, ptx));
	CHECK(cuMemAlloc(&p, 1 << 20));
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CUfunction f = kernel(module, "nothing");
	void **params = PARAMS(&p);
	sides[1].launch = (launch_fn)own_symbol("libcuda.so", "cuLaunchKernel");
	for (struct side *s = sides; s < sides + 2; s++) {
		s->calls = room(n);
		s->whole = room(batches);
		for (uint64_t i = 0; i < 4 * batch; i++)
			CHECK(s->launch(f, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL));
		CHECK(cuStreamSynchronize(stream));
	}
	for (uint64_t b = 0; b < batches; b++) {
		uint64_t first = coin();
		for (uint64_t side = 0; side < 2; side++) {
			struct side *s = sides + (side ^ first);
			turn(s);
			for (uint64_t i = 0; i < batch; i++) {
				began = now();
				CHECK(s->launch(f, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL));
				s->calls[b * batch + i] = now() - began;
			}
			CHECK(cuStreamSynchronize(stream));
		}
	}
	for (uint64_t b = 0; b < batches; b++) {
		uint64_t first = coin();
		for (uint64_t side = 0; side < 2; side++) {
			struct side *s = sides + (side ^ first);
			turn(s);
			began = now();
			for (uint64_t i = 0; i < batch; i++)
				CHECK(s->launch(f, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL));
			s->whole[b] = now() - began;
			CHECK(cuStreamSynchronize(stream));
		}
	}
	printf("{\"launches\": %llu", (unsigned long long)n);
	for (struct side *s = sides; s < sides + 2; s++) {
		qsort(s->calls, n, sizeof(*s->calls), compare);
		qsort(s->whole, batches, sizeof(*s->whole), compare);
		printf(", \"%s\": {\"median_ns\": %llu, \"p99_ns\": %llu, \"p999_ns\": %llu, \"loop_ns\": %.2f}", s->name,
		       (unsigned long long)s->calls[n / 2], (unsigned long long)s->calls[n * 99 / 100],
		       (unsigned long long)s->calls[n * 999 / 1000], (double)s->whole[batches / 2] / (double)batch);
	}
	printf("}\n");
	return 0;
}
