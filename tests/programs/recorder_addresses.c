/*
 * Prints where memory is and what new memory holds. A deterministic recording gives the same each time. The
 * argument names the kind of memory.
 */
#include "program.h"

#include <sys/mman.h>

static const size_t sizes[] = {
	1, 512, 513, 1000, 65536, 70001, 1048063, 1048064, 1048065, 1048576, 3145733, 2097152, 5242880, 4, 200000,
};
enum { COUNT = sizeof(sizes) / sizeof(*sizes) };

static void show_memory(const char *what, CUdeviceptr p, size_t size)
{
	unsigned char *back = malloc(size);
	size_t set = 0;

	OK(cuMemcpyDtoH(back, p, size));
	for (size_t i = 0; i < size; i++)
		set += back[i] != 0;
	free(back);
	printf("%s %zu at %llx, %zu not zero\n", what, size, (unsigned long long)p, set);
	OK(cuMemsetD8(p, 0xa5, size));
}

static void plain(void)
{
	CUdeviceptr p[COUNT];
	size_t pitch;

	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < COUNT; i++) {
			if (round && i % (round + 1))
				continue;
			p[i] = allocate(sizes[i]);
			show_memory("memory", p[i], sizes[i]);
		}
		for (unsigned i = 0; i < COUNT; i++)
			if (i % (round + 2) == 0)
				OK(cuMemFree(p[i]));
	}
	OK(cuMemAllocPitch(&p[0], &pitch, 1001, 33, 4));
	printf("pitch %zu\n", pitch);
	show_memory("rows", p[0], pitch * 33);
}

static void pitches(void)
{
	static const size_t widths[] = {1, 31, 32, 33, 511, 512, 513, 4095, 10000, 100000, 123457, 1000000};

	for (unsigned i = 0; i < sizeof(widths) / sizeof(*widths); i++)
		for (unsigned element = 4; element <= 16; element *= 2)
			for (unsigned rows = 1; rows <= 9; rows += 4) {
				size_t pitch, size;
				CUdeviceptr p, base;

				OK(cuMemAllocPitch(&p, &pitch, widths[i], rows, element));
				OK(cuMemGetAddressRange(&base, &size, p));
				printf("%zu by %u of %u: %zu, %zu\n", widths[i], rows, element, pitch, size);
				OK(cuMemFree(p));
			}
}

static void async(void)
{
	CUdeviceptr p[COUNT];
	CUstream streams[2];

	for (unsigned s = 0; s < 2; s++)
		OK(cuStreamCreate(&streams[s], CU_STREAM_NON_BLOCKING));
	for (unsigned round = 0; round < 6; round++) {
		CUstream stream = streams[round % 2];

		for (unsigned i = 0; i < COUNT; i += 2) {
			OK(cuMemAllocAsync(&p[i], sizes[i], stream));
			printf("%zu at %llx\n", sizes[i], (unsigned long long)p[i]);
		}
		if (round != 1)
			OK(cuStreamSynchronize(stream));
		for (unsigned i = 0; i < COUNT; i += 2) {
			if (round != 1)
				show_memory("async", p[i], sizes[i]);
			OK(cuMemFreeAsync(p[i], streams[(round + (round == 4)) % 2]));
		}
		if (round == 3)
			OK(cuCtxSynchronize());
	}
}

static void until_full(void)
{
	enum { MOST = 64 };
	static CUdeviceptr p[MOST];
	size_t block;

	OK(cuDeviceTotalMem(&block, 0));
	block = block / 16 / (2 << 20) * (2 << 20);
	for (unsigned round = 0; round < 2; round++) {
		unsigned n = 0;
		CUresult r;

		while ((r = n < MOST ? cuMemAlloc(&p[n], block) : CUDA_SUCCESS) == CUDA_SUCCESS && n < MOST)
			n++;
		printf("%u blocks, then %s\n", n, result_name(r));
		for (unsigned i = 0; i < n; i++)
			OK(cuMemFree(p[i]));
		SHOW(cuMemAllocAsync(&p[0], block * (n - 1), NULL));
		SHOW(cuMemFreeAsync(p[0], NULL));
		SHOW(cuMemAlloc(&p[0], block * (n - 1)));
		SHOW(cuMemFree(p[0]));
	}
}

static void contexts(CUdevice device)
{
	CUdeviceptr outer = allocate(5000), large = allocate(3 << 20), late;
	CUcontext context;
	size_t before, after, total;

	OK(cuMemGetInfo(&before, &total));
	for (unsigned i = 0; i < 2; i++) {
		OK(cuCtxCreate(&context, NULL, 0, device));
		CUdeviceptr small = allocate(100), other = allocate(5 << 20);
		printf("context %u: %llx %llx\n", i, (unsigned long long)small, (unsigned long long)other);
		OK(cuMemAllocAsync(&late, 1000, NULL));
		OK(cuCtxSynchronize());
		SHOW(cuCtxDestroy(context));
		SHOW(cuMemFree(small));
		SHOW(cuMemFree(other));
	}
	OK(cuMemGetInfo(&after, &total));
	printf("~ it came back %d\n", after >= before);
	show_memory("outer", outer, 5000);
	show_memory("large", large, 3 << 20);
	SHOW(cuDevicePrimaryCtxReset(device));
	OK(cuDevicePrimaryCtxRetain(&context, device));
	OK(cuCtxSetCurrent(context));
	show_memory("after the reset", allocate(5000), 5000);
}

/* Memory goes away while a stream is captured: it may not be waited for. */
static void capture(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUdeviceptr p = allocate(1000), q;
	CUgraph graph = NULL;
	CUstream stream;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	SHOW(cuMemFree(p));
	OK(cuMemAlloc(&q, 1000));
	printf("another place %d\n", p != q);
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	SHOW(cuStreamEndCapture(stream, &graph));
	OK(cuCtxSynchronize());
	OK(cuMemAlloc(&q, 1000));
	printf("the same place %d\n", p == q);
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	SHOW(cuMemFree(q));
	SHOW(cuStreamEndCapture(stream, &graph));
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	SHOW(cuMemAlloc(&p, 1000));
	SHOW(cuStreamEndCapture(stream, &graph));
	SHOW(cuMemFree(q));
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "plain";
	void *taken = (void *)0x200000000000;

	if (!strcmp(what, "taken") &&
	    mmap(taken, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != taken)
		return 3;
	CUdevice device = start();
	if (!strcmp(what, "plain") || !strcmp(what, "taken"))
		plain();
	else if (!strcmp(what, "pitches"))
		pitches();
	else if (!strcmp(what, "async"))
		async();
	else if (!strcmp(what, "full"))
		until_full();
	else if (!strcmp(what, "contexts"))
		contexts(device);
	else if (!strcmp(what, "capture"))
		capture();
	else
		return 2;
	return 0;
}
