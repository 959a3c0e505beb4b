/*
 * Device memory and queries about it while the recorder chooses the addresses. The argument names the part.
 * All parts except "reuse" and "turns" print the same as without the recorder.
 */
#include "program.h"

#include <pthread.h>
#include <unistd.h>

static CUdevice device;

static CUdeviceptr allocate_async(size_t bytes, CUstream stream)
{
	CUdeviceptr p;

	OK(cuMemAllocAsync(&p, bytes, stream));
	return p;
}

static CUstream new_stream(void)
{
	CUstream stream;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return stream;
}

static CUmemoryPool new_pool(void)
{
	CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .handleTypes = CU_MEM_HANDLE_TYPE_NONE,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
	};
	CUmemoryPool pool;

	OK(cuMemPoolCreate(&pool, &props));
	return pool;
}

/* ---- attributes ---- */

static void show_place(uint64_t address, CUdeviceptr base)
{
	if (address)
		printf("  base + %lld\n", (long long)(address - base));
	else
		printf("  nowhere\n");
}

/* Addresses count from the allocation's base; handles and ids are told by what they are equal to. */
static void show_attribute(int attribute, uint64_t value, CUdeviceptr base, CUmemoryPool own)
{
	CUcontext current;
	CUmemoryPool standard;

	OK(cuCtxGetCurrent(&current));
	OK(cuDeviceGetDefaultMemPool(&standard, device));
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		printf("  the current context %d, none %d\n", value == (uintptr_t)current, !value);
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		show_place(value, base);
		break;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		printf("  an id %d\n", value != 0);
		break;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		printf("  none %d, the default pool %d, own %d\n", !value, value == (uintptr_t)standard,
		       value == (uintptr_t)own);
		break;
	default:
		printf("  %llu\n", (unsigned long long)value);
	}
}

static void describe(const char *what, CUdeviceptr base, size_t offset, CUmemoryPool own)
{
	enum { FIRST = CU_POINTER_ATTRIBUTE_CONTEXT, END = CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE + 1 };
	CUpointer_attribute list[END];
	uint64_t values[END] = {0};
	void *out[END];
	unsigned n = 0;
	CUdeviceptr start_address = 0;
	size_t size = 0;

	printf("%s + %zu\n", what, offset);
	SHOW(cuMemGetAddressRange(&start_address, &size, base + offset));
	show_place(start_address, base);
	printf("  %zu bytes\n", size);
	for (int a = FIRST; a < END; a++) {
		uint64_t value = 0;

		if (a == CU_POINTER_ATTRIBUTE_P2P_TOKENS)
			continue;
		CUresult r = cuPointerGetAttribute(&value, (CUpointer_attribute)a, base + offset);
		printf("attribute %d -> %s\n", a, result_name(r));
		if (r == CUDA_SUCCESS)
			show_attribute(a, value, base, own);
		list[n] = (CUpointer_attribute)a;
		out[n] = &values[n];
		n++;
	}
	SHOW(cuPointerGetAttributes(n, list, out, base + offset));
	for (unsigned i = 0; i < n; i++)
		show_attribute((int)list[i], values[i], base, own);
}

static void attributes(void)
{
	CUmemoryPool own = new_pool();
	CUstream stream = new_stream();
	CUdeviceptr small = allocate(1000), large = allocate(5000001), rows, ordered, pooled;
	size_t pitch;
	unsigned flag = 1;

	OK(cuMemAllocPitch(&rows, &pitch, 100, 50, 8));
	ordered = allocate_async(70000, stream);
	OK(cuMemAllocFromPoolAsync(&pooled, 3000000, own, stream));
	OK(cuStreamSynchronize(stream));
	describe("small", small, 0, own);
	describe("small", small, 999, own);
	describe("large", large, 5000000, own);
	describe("rows", rows, pitch, own);
	describe("ordered", ordered, 69999, own);
	describe("pooled", pooled, 0, own);
	SHOW(cuPointerSetAttribute(&flag, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, small));
	SHOW(cuPointerSetAttribute(&flag, CU_POINTER_ATTRIBUTE_IS_MANAGED, small));
	SHOW(cuPointerSetAttribute(NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, small));
	describe("small, with synchronous copies", small, 0, own);
	OK(cuMemFree(small));
	describe("freed", small, 0, own);
	describe("nobody's", large + ((CUdeviceptr)1 << 38), 0, own);
}

/* ---- errors ---- */

static void errors(void)
{
	CUstream stream = new_stream();
	CUdeviceptr p = allocate(1000), q = allocate(3 << 20), ordered = allocate_async(5000, stream), managed;
	CUcontext context;
	void *pinned;
	int local;

	OK(cuMemAllocManaged(&managed, 100, CU_MEM_ATTACH_GLOBAL));
	OK(cuMemAllocHost(&pinned, 100));
	SHOW(cuMemFree(0));
	SHOW(cuMemFree(12345));
	SHOW(cuMemFree((CUdeviceptr)(uintptr_t)&local));
	SHOW(cuMemFree((CUdeviceptr)(uintptr_t)pinned));
	SHOW(cuMemFree(p + 1));
	SHOW(cuMemFree(q + (2 << 20)));
	SHOW(cuMemFree(q + ((CUdeviceptr)1 << 38)));
	SHOW(cuMemFreeAsync(0, stream));
	SHOW(cuMemFreeAsync(12345, stream));
	SHOW(cuMemFreeAsync(ordered + 512, stream));
	SHOW(cuMemFreeAsync(p, stream));
	SHOW(cuMemFreeAsync(p, stream));
	SHOW(cuMemFree(p));
	SHOW(cuStreamSynchronize(stream));
	SHOW(cuMemFree(p));
	SHOW(cuMemFree(ordered));
	SHOW(cuMemFree(ordered));
	SHOW(cuMemFreeAsync(ordered, stream));
	SHOW(cuMemUnmap(q, 4 << 20));
	SHOW(cuMemFreeHost((void *)(uintptr_t)q));
	SHOW(cuMemFree(managed));
	SHOW(cuMemFree(managed));
	OK(cuCtxGetCurrent(&context));
	OK(cuCtxSetCurrent(NULL));
	SHOW(cuMemAlloc(&p, 100));
	SHOW(cuMemAllocAsync(&p, 100, NULL));
	SHOW(cuMemGetAddressRange(NULL, NULL, q));
	OK(cuCtxSetCurrent(context));
	SHOW(cuMemFree(q));
	OK(cuMemFreeHost(pinned));
}

/* ---- pools ---- */

static void usage(CUmemoryPool pool)
{
	cuuint64_t used, high, reserved, reserved_high;

	OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &high));
	OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
	OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &reserved_high));
	printf("used %llu, at most %llu; as much reserved %d, %d\n", (unsigned long long)used, (unsigned long long)high,
	       reserved >= used, reserved_high >= high && reserved_high >= reserved);
}

static void pools(void)
{
	CUmemoryPool own = new_pool(), standard, current;
	CUstream stream = new_stream();
	CUdeviceptr p[4];
	cuuint64_t zero = 0;

	OK(cuDeviceGetDefaultMemPool(&standard, device));
	usage(standard);
	usage(own);
	OK(cuMemAllocFromPoolAsync(&p[0], 1, own, stream));
	OK(cuMemAllocFromPoolAsync(&p[1], 600000, own, stream));
	OK(cuMemAllocFromPoolAsync(&p[2], 3000000, own, stream));
	p[3] = allocate_async(512, stream);
	OK(cuStreamSynchronize(stream));
	usage(own);
	usage(standard);
	OK(cuMemFreeAsync(p[2], stream));
	OK(cuMemFree(p[3]));
	OK(cuStreamSynchronize(stream));
	usage(own);
	usage(standard);
	SHOW(cuMemPoolSetAttribute(own, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
	usage(own);
	SHOW(cuMemPoolSetAttribute(own, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero));
	usage(own);
	SHOW(cuMemPoolTrimTo(own, 0));
	OK(cuDeviceSetMemPool(device, own));
	OK(cuDeviceGetMemPool(&current, device));
	printf("own is current %d\n", current == own);
	p[3] = allocate_async(512 * 9, stream);
	OK(cuStreamSynchronize(stream));
	usage(own);
	usage(standard);
	SHOW(cuMemPoolDestroy(own));
	SHOW(cuMemAllocFromPoolAsync(&p[2], 100, NULL, stream));
	OK(cuMemsetD8Async(p[1], 7, 600000, stream));
	OK(cuStreamSynchronize(stream));
	print_device("of a pool that is gone", p[1], 600000);
	for (unsigned i = 0; i < 4; i++)
		if (i != 2)
			SHOW(cuMemFreeAsync(p[i], stream));
	SHOW(cuStreamSynchronize(stream));
	usage(standard);
}

/* ---- a full device ---- */

enum { MOST = 64 };
static CUdeviceptr blocks[MOST];
static size_t block; /* a 32nd part of the device */

static void measure_device(void)
{
	OK(cuDeviceTotalMem(&block, device));
	block = block / 32 / (2 << 20) * (2 << 20);
}

static unsigned fill_device(CUstream stream)
{
	CUresult r = CUDA_SUCCESS;
	unsigned n = 0;

	while (n < MOST && (r = cuMemAllocAsync(&blocks[n], block, stream)) == CUDA_SUCCESS)
		n++;
	printf("~ %u blocks, then %s\n", n, result_name(r));
	return n;
}

static void empty_device(unsigned n, CUstream stream)
{
	for (unsigned i = 0; i < n; i++)
		OK(cuMemFreeAsync(blocks[i], stream));
	OK(cuStreamSynchronize(stream));
}

/* What was freed in a stream can be had in any other way. */
static void full(void)
{
	CUmemAllocationProp props = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
	CUmemGenericAllocationHandle memory;
	CUstream stream = new_stream(), other = new_stream();
	CUdeviceptr p;
	size_t pitch;

	measure_device();
	unsigned n = fill_device(stream);
	size_t most = block * (n - 2);
	empty_device(n, stream);
	SHOW(cuMemAlloc(&p, most));
	SHOW(cuMemFree(p));
	empty_device(fill_device(stream), stream);
	SHOW(cuMemCreate(&memory, most, &props, 0));
	SHOW(cuMemRelease(memory));
	empty_device(fill_device(other), other);
	SHOW(cuMemAllocPitch(&p, &pitch, 1 << 20, most >> 20, 4));
	SHOW(cuMemFree(p));
	empty_device(fill_device(stream), stream);
	SHOW(cuMemAllocAsync(&p, most, other));
	SHOW(cuMemFreeAsync(p, other));
	SHOW(cuCtxSynchronize());
}

/* Memory of before, where recording stops in the middle, goes back as well. */
static void stopped(void)
{
	enum { COUNT = 24 };
	CUstream stream = new_stream(), other = new_stream();
	CUdeviceptr p;

	measure_device();
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < COUNT; i++)
			blocks[i] = allocate_async(block, round ? other : stream);
		unsigned char *bytes = pattern(400000, round);
		OK(cuMemcpyHtoD(blocks[0], bytes, 400000));
		free(bytes);
		SHOW(cuCtxSynchronize());
		sleep(round == 0); /* for what is written to be too much */
		for (unsigned i = 0; i < COUNT; i++)
			OK(cuMemFreeAsync(blocks[i], round ? other : stream));
		if (round)
			SHOW(cuStreamSynchronize(other));
		else
			SHOW(cuStreamSynchronize(stream));
		SHOW(cuMemAlloc(&p, COUNT * block));
		SHOW(cuMemFree(p));
	}
}

/* ---- in use again ---- */

static void reuse(void)
{
	CUstream one = new_stream(), two = new_stream();
	CUdeviceptr p = allocate_async(3 << 20, one), q, r, plain = allocate(3 << 20);

	OK(cuMemFreeAsync(p, one));
	q = allocate_async(3 << 20, one);
	printf("freed and allocated in one stream: the same %d\n", p == q);
	OK(cuMemFreeAsync(q, two));
	r = allocate_async(3 << 20, one);
	printf("freed in another: the same %d\n", q == r);
	p = allocate_async(3 << 20, two);
	printf("allocated in that: the same %d\n", p == q);
	OK(cuMemFreeAsync(p, two));
	OK(cuStreamSynchronize(one));
	printf("another stream waited for: the same %d\n", allocate_async(3 << 20, one) == p);
	OK(cuStreamSynchronize(two));
	printf("the stream waited for: the same %d\n", allocate_async(3 << 20, one) == p);
	OK(cuMemFreeAsync(r, one));
	OK(cuStreamDestroy(one));
	q = allocate_async(3 << 20, new_stream());
	printf("a new stream in place of a destroyed one: the same %d\n", q == r);
	OK(cuMemFree(plain));
	printf("freed with a wait: the same %d\n", allocate(3 << 20) == plain);
}

/* ---- threads in turn ---- */

enum { THREADS = 4, TURNS = 32 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static unsigned turn;
static CUcontext context;
static CUfunction mix;

static void *take_turns(void *argument)
{
	unsigned me = *(unsigned *)argument, n = 3000, rounds = 5;
	CUdeviceptr held = 0;
	CUstream stream = NULL;

	OK(cuCtxSetCurrent(context));
	for (unsigned i = me; i < TURNS; i += THREADS) {
		size_t bytes = (size_t)12000 << (i % 9);

		pthread_mutex_lock(&lock);
		while (turn != i)
			pthread_cond_wait(&moved, &lock);
		if (!stream)
			stream = new_stream();
		CUdeviceptr p = i % 2 ? allocate_async(bytes, stream) : allocate(bytes);
		printf("%u: %llx\n", i, (unsigned long long)p);
		OK(cuMemsetD32Async(p, i, n, stream));
		OK(launch(mix, n, stream, PARAMS(&p, &n, &rounds)));
		OK(cuMemsetD32Async(p + bytes - 8, (unsigned)p, 1, stream));
		OK(cuStreamSynchronize(stream));
		if (held)
			OK(i % 3 ? cuMemFree(held) : cuMemFreeAsync(held, stream));
		held = p;
		turn++;
		pthread_cond_broadcast(&moved);
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

static void turns(void)
{
	unsigned numbers[THREADS];
	pthread_t threads[THREADS];

	OK(cuCtxGetCurrent(&context));
	mix = get_kernel(load_kernels(), "mix");
	for (unsigned i = 0; i < THREADS; i++) {
		numbers[i] = i;
		pthread_create(&threads[i], NULL, take_turns, &numbers[i]);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	OK(cuCtxSynchronize());
}

/* ---- the rest ---- */

static void giant(size_t bytes)
{
	unsigned char ends[2] = {1, 1};
	CUdeviceptr p = allocate(bytes), base;
	size_t size;

	OK(cuMemsetD8(p, 3, 1));
	OK(cuMemsetD8(p + bytes - 1, 9, 1));
	OK(cuMemcpyDtoH(&ends[0], p, 1));
	OK(cuMemcpyDtoH(&ends[1], p + bytes - 1, 1));
	OK(cuMemGetAddressRange(&base, &size, p + bytes - 1));
	printf("%zu bytes: %d %d, its own %d\n", bytes, ends[0], ends[1], base == p && size == bytes);
	SHOW(cuMemcpyDtoH(ends, p + bytes - 1, (size_t)1 << 40));
	SHOW(cuMemFree(p));
	SHOW(cuMemFree(p));
}

static CUdeviceptr late[2];
static CUstream late_stream;

static void at_the_end(void)
{
	CUdeviceptr p;

	SHOW(cuMemFree(late[0]));
	SHOW(cuMemFreeAsync(late[1], late_stream));
	SHOW(cuStreamSynchronize(late_stream));
	SHOW(cuMemFree(late[1]));
	SHOW(cuMemAlloc(&p, 1000));
	SHOW(cuMemFree(p));
}

/* Memory outlives the recorder. */
static void ending(void)
{
	late_stream = new_stream();
	late[0] = allocate(2000);
	late[1] = allocate_async(1000, late_stream);
	OK(cuStreamSynchronize(late_stream));
}

#define SPIN \
	PTX_HEADER ".visible .entry spin(.param .u64 p)\n{\n" \
	".reg .u64 %a;\n.reg .u32 %v;\n.reg .pred %q;\n" \
	"ld.param.u64 %a, [p];\nwait:\nld.volatile.global.u32 %v, [%a];\n" \
	"setp.eq.u32 %q, %v, 0;\n@%q bra wait;\nret;\n}\n"

/* Kernels have the whole of a GPU until the host lets go of them: allocating does not wait for that. */
static void held_up(void)
{
	unsigned volatile *flag;
	CUdeviceptr p[6], device_flag;
	CUmodule module;

	OK(cuMemHostAlloc((void **)&flag, 4, CU_MEMHOSTALLOC_DEVICEMAP));
	OK(cuMemHostGetDevicePointer(&device_flag, (void *)flag, 0));
	*flag = 0;
	OK(cuModuleLoadData(&module, SPIN));
	OK(cuLaunchKernel(get_kernel(module, "spin"), 4096, 1, 1, 1024, 1, 1, 0, new_stream(), PARAMS(&device_flag), NULL));
	for (unsigned i = 0; i < 6; i++)
		SHOW(cuMemAlloc(&p[i], 100000));
	*flag = 1;
	SHOW(cuCtxSynchronize());
	for (unsigned i = 0; i < 6; i++)
		SHOW(cuMemFree(p[i]));
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	static const struct {
		const char *name;
		void (*show)(void);
	} parts[] = {
		{"attributes", attributes}, {"errors", errors}, {"pools", pools}, {"full", full}, {"stopped", stopped},
		{"reuse", reuse}, {"turns", turns}, {"ending", ending}, {"held-up", held_up},
	};

	if (!strcmp(what, "ending"))
		atexit(at_the_end);
	device = start();
	if (!strcmp(what, "giant")) {
		giant((size_t)strtoull(argc > 2 ? argv[2] : "1000", NULL, 0));
		return 0;
	}
	for (unsigned i = 0; i < sizeof(parts) / sizeof(*parts); i++)
		if (!strcmp(what, parts[i].name)) {
			parts[i].show();
			return 0;
		}
	return 2;
}
