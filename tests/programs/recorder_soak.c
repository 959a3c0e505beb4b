/*
 * Creates and destroys everything that a program has, repeatedly: recorder_soak SECONDS [ROUNDS], for at
 * least that time and that many rounds. Prints the rounds, how often contents differed from those of the
 * round before, and the size of its own memory.
 */
#include <time.h>

#include "program.h"

#define BUFFERS 4
#define N 20000u

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void graph(CUfunction add, CUdeviceptr p, CUstream stream, unsigned value)
{
	unsigned n = N;
	CUgraph captured;
	CUgraphExec executable;

	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	OK(launch(add, n, stream, PARAMS(&p, &n, &value)));
	OK(launch(add, n, stream, PARAMS(&p, &n, &value)));
	OK(cuStreamEndCapture(stream, &captured));
	OK(cuGraphInstantiate(&executable, captured, 0));
	OK(cuGraphLaunch(executable, stream));
	OK(cuStreamSynchronize(stream));
	OK(cuGraphExecDestroy(executable));
	OK(cuGraphDestroy(captured));
}

static uint64_t round_of(unsigned value, uint32_t *host)
{
	CUdeviceptr buffers[BUFFERS], pooled;
	CUstream streams[2];
	CUevent event;
	uint64_t hash = 0;
	unsigned n = N;

	CUmodule module = load_kernels();
	CUfunction fill = get_kernel(module, "fill"), add = get_kernel(module, "add");
	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	for (int i = 0; i < 2; i++)
		OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < BUFFERS; i++) {
		buffers[i] = allocate((N + value % 7 * 1000) * 4);
		OK(launch(fill, n, streams[i % 2], PARAMS(&buffers[i], &n, &value)));
	}
	OK(cuMemAllocAsync(&pooled, N * 4, streams[0]));
	OK(cuMemcpyDtoDAsync(pooled, buffers[0], N * 4, streams[0]));
	OK(cuEventRecord(event, streams[0]));
	OK(cuStreamWaitEvent(streams[1], event, 0));
	OK(launch(add, n, streams[1], PARAMS(&pooled, &n, &value)));
	OK(cuStreamSynchronize(streams[1]));
	graph(add, buffers[1], streams[1], value);
	OK(cuMemcpyDtoH(host, pooled, N * 4));
	hash ^= hash_bytes(host, N * 4);
	OK(cuMemcpyDtoH(host, buffers[1], N * 4));
	hash ^= hash_bytes(host, N * 4);
	OK(cuMemFreeAsync(pooled, streams[0]));
	OK(cuCtxSynchronize());
	for (int i = 0; i < BUFFERS; i++)
		OK(cuMemFree(buffers[i]));
	for (int i = 0; i < 2; i++)
		OK(cuStreamDestroy(streams[i]));
	OK(cuEventDestroy(event));
	OK(cuModuleUnload(module));
	return hash;
}

/* Of this process, which no file has. */
static long private_kib(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[128];
	long kib = -1;

	while (f && kib < 0 && fgets(line, sizeof(line), f))
		if (sscanf(line, "RssAnon: %ld", &kib) != 1)
			kib = -1;
	if (f)
		fclose(f);
	return kib;
}

int main(int argc, char **argv)
{
	double end = now() + (argc > 1 ? atof(argv[1]) : 1);
	uint64_t least = argc > 2 ? strtoull(argv[2], NULL, 10) : 14;
	uint32_t *host = malloc(N * 4);
	uint64_t wrong = 0, rounds = 0, expected[7];

	start();
	for (; now() < end || rounds < least; rounds++) {
		uint64_t hash = round_of((unsigned)(rounds % 7), host);
		if (rounds < 7)
			expected[rounds] = hash;
		wrong += hash != expected[rounds % 7];
	}
	printf("%llu rounds, %llu wrong, %ld KiB\n", (unsigned long long)rounds, (unsigned long long)wrong, private_kib());
	free(host);
	return wrong != 0;
}
