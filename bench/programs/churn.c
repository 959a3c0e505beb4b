/*
 * Memory that changes from step to step, as much of it as is asked for, with contents that were
 * never there before. Every step ends with a wait, which is where epochs are cut by default; with
 * --request each step asks for one instead, and how long that holds the program up is timed
 * beside the same step without an epoch.
 *
 * --bytes, --regions: size and number of allocations. --permille: of the blocks, to change.
 * --add 1: another allocation comes and goes between epochs. --pause: microseconds between steps.
 * --hold 1: waits for a line on its input before it begins and before it ends.
 */
#include "program.h"

#include <dlfcn.h>
#include <unistd.h>

EMBED(ptx, "work.ptx");

static CUfunction nothing;
static CUstream stream;

static void hold(const char *word)
{
	puts(word);
	fflush(stdout);
	while (getchar() != '\n')
		if (feof(stdin))
			exit(1);
}

/* Until the device has run a launch made now: it waits for a capture that is under way. */
static void pass_through(CUdeviceptr p)
{
	CHECK(cuLaunchKernel(nothing, 1, 1, 1, 32, 1, 1, 0, stream, PARAMS(&p), NULL));
	CHECK(cuStreamSynchronize(stream));
}

int main(int argc, char **argv)
{
	uint64_t bytes = number(argc, argv, "--bytes", 1 << 20), regions = number(argc, argv, "--regions", 1);
	uint64_t steps = number(argc, argv, "--steps", 10), permille = number(argc, argv, "--permille", 1000);
	uint64_t pause = number(argc, argv, "--pause", 0), blocks = (bytes + 65535) / 65536 * regions;
	uint64_t dirty = (blocks * permille + 999) / 1000, began;
	bool request = number(argc, argv, "--request", 0), add = number(argc, argv, "--add", 0);
	bool holds = number(argc, argv, "--hold", 0);
	uint64_t *without = room(steps), *call = room(steps), *with = room(steps);
	CUdeviceptr *bases = (CUdeviceptr *)room(regions);
	int (*epoch)(void *, const char *) = NULL;
	CUdeviceptr table, extra = 0;
	CUmodule module;

	*(void **)&epoch = request ? dlsym(RTLD_DEFAULT, "tt_epoch") : NULL;
	if (request && !epoch) {
		fputs("churn: --request needs the recorder\n", stderr);
		return 2;
	}
	start_device();
	CHECK(cuModuleLoadData(&module, ptx));
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CUfunction scramble = kernel(module, "scramble");
	nothing = kernel(module, "nothing");
	if (holds)
		hold("ready");
	for (uint64_t i = 0; i < regions; i++) {
		CHECK(cuMemAlloc(&bases[i], bytes));
		CHECK(cuMemsetD8(bases[i], (unsigned char)i, bytes));
	}
	CHECK(cuMemAlloc(&table, regions * sizeof(*bases)));
	CHECK(cuMemcpyHtoD(table, bases, regions * sizeof(*bases)));
	if (request) /* the first reads everything, and the second has a new table */
		for (int i = 0; i < 2; i++) {
			epoch(stream, "warm");
			pass_through(table);
		}
	uint64_t first = now();
	for (uint64_t i = 0; i < steps; i++) {
		uint64_t seed = i + 1;
		if (add) {
			if (extra)
				CHECK(cuMemFree(extra));
			CHECK(cuMemAlloc(&extra, bytes));
		}
		if (dirty)
			CHECK(cuLaunchKernel(scramble, blocks < 2048 ? (unsigned)blocks : 2048, 1, 1, 256, 1, 1, 0, stream,
					     PARAMS(&table, &bytes, &blocks, &dirty, &seed), NULL));
		CHECK(cuStreamSynchronize(stream));
		if (request) {
			began = now();
			pass_through(table);
			without[i] = now() - began;
			began = now();
			epoch(stream, "step");
			call[i] = now() - began;
			pass_through(table);
			with[i] = now() - began;
		}
		if (pause)
			usleep((useconds_t)pause);
	}
	uint64_t last = now();
	if (holds)
		hold("done");
	printf("{\"dirty_bytes\": %llu, \"elapsed_ns\": %llu", (unsigned long long)(dirty * (bytes < 65536 ? bytes : 65536)),
	       (unsigned long long)(last - first));
	if (request) {
		printf(", ");
		print_list("without_ns", without, steps);
		printf(", ");
		print_list("call_ns", call, steps);
		printf(", ");
		print_list("with_ns", with, steps);
	}
	puts("}");
	return 0;
}
