/*
 * Launches one recorded kernel again, alone, on the memory that it found, and compares what it
 * leaves with the recorded result. launch.h says what is launched, README.md where
 * it comes from; the command line can change it (change.h).
 *
 * Exit status: 0 as recorded, 1 different, 2 it could not be run.
 */
#include <cuda.h>
#include <libgen.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "change.h"

#define ALIGN_DOWN(n, unit) ((n) / (unit) * (unit))
#define ALIGN_UP(n, unit) ALIGN_DOWN((n) + (unit) - 1, unit)
#define CHECK(call) check(call, #call)

/* Memory that the kernel may reach: an allocation, or a variable of the module. */
struct region {
	CUdeviceptr address; /* of a variable: where it was, and from the load on where it is */
	size_t size;
	const char *variable; /* its name in the module, NULL of allocations */
	const char *name;
};

/* A parameter that points into a variable, which may be elsewhere now. */
struct pointer {
	size_t at; /* in the parameters */
	int region;
};

/* An attribute of the function, a limit of the context, or an option of the JIT compiler. */
struct setting {
	int number;
	long long value;
};

/* An attribute of the launch, whose value begins with these bytes. */
struct attribute {
	int number;
	unsigned char value[64];
};

#include "launch.h"

#define COUNT(list) ((int)(sizeof list / sizeof list[0]) - 1) /* lists end with an item of none */
#define REGIONS COUNT(regions)
#define SHOWN 8 /* differences of a region */

void fail(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s\n", what, why);
	exit(2);
}

static void check(CUresult result, const char *call)
{
	const char *name = "unknown error";

	if (result == CUDA_SUCCESS)
		return;
	cuGetErrorName(result, &name);
	fail(call, name);
}

/* ---- files ---- */

void *allocate(size_t size)
{
	void *memory = calloc(1, size ? size : 1);

	if (!memory)
		fail("memory of the host", "there is not enough");
	return memory;
}

void *read_file(const char *name, size_t *size)
{
	FILE *file = fopen(name, "rb");
	char *data;

	if (!file || fseek(file, 0, SEEK_END) || (long)(*size = ftell(file)) < 0)
		fail(name, "can't be read");
	rewind(file);
	data = allocate(*size + 1); /* PTX ends with a zero */
	if (fread(data, 1, *size, file) != *size)
		fail(name, "can't be read");
	fclose(file);
	return data;
}

/*
 * A file of contents is pieces: four 64-bit numbers, and `length` bytes, which repeat themselves
 * until `size` bytes are full.
 */
static void read_contents(const char *name, char **images)
{
	struct {
		uint64_t region, offset, size, length;
	} piece;
	FILE *file = fopen(name, "rb");
	uint64_t count = REGIONS;

	if (!file)
		fail(name, "can't be read");
	while (fread(&piece, sizeof piece, 1, file) == 1) {
		char *to;
		size_t done, more;

		if (piece.region >= count || piece.size > regions[piece.region].size ||
		    piece.offset > regions[piece.region].size - piece.size ||
		    !piece.length || piece.length > piece.size)
			fail(name, "is damaged");
		to = images[piece.region] + piece.offset;
		if (fread(to, 1, piece.length, file) != piece.length)
			fail(name, "ends too early");
		for (done = piece.length; done < piece.size; done += more) {
			more = done < piece.size - done ? done : piece.size - done;
			memcpy(to + done, to, more);
		}
	}
	fclose(file);
}

/* ---- memory ---- */

/*
 * Reserves addresses, which come in order. Drivers place small ranges where they like, so larger
 * ones around them are tried too.
 */
static void reserve(CUdeviceptr begin, CUdeviceptr end)
{
	static const CUdeviceptr units[] = {1, 1ull << 30, 1ull << 40};
	static CUdeviceptr first, last; /* what is reserved already */
	CUdeviceptr from, got;
	char text[96];
	size_t size;
	int i;

	if (first <= begin && end <= last)
		return;
	for (i = 0; i < (int)(sizeof units / sizeof units[0]); i++) {
		from = ALIGN_DOWN(begin, units[i]);
		size = ALIGN_UP(end, units[i]) - from;
		if (!from || cuMemAddressReserve(&got, size, 0, from, 0))
			continue;
		if (got == from) {
			first = from;
			last = from + size;
			return;
		}
		cuMemAddressFree(got, size);
	}
	snprintf(text, sizeof text, "%llu bytes at %#llx", end - begin, begin);
	fail(text, "the driver does not give these addresses; another run of this may get them");
}

/* Memory of the device at an address, which pointers in memory need. */
static void map_at(CUdeviceptr address, size_t size, int device)
{
	CUmemAllocationProp where = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
	CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle memory;

	where.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	where.location.id = device;
	access.location = where.location;
	reserve(address, address + size);
	CHECK(cuMemCreate(&memory, size, &where, 0));
	CHECK(cuMemMap(address, size, 0, memory, 0));
	CHECK(cuMemSetAccess(address, size, &access, 1));
	CHECK(cuMemsetD8(address, 0, size));
}

/* Maps all allocations, which are in order of their addresses. */
static void map_regions(int device)
{
	CUmemAllocationProp where = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
	size_t unit;
	CUdeviceptr begin = 0, end = 0;
	int i;

	where.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	where.location.id = device;
	CHECK(cuMemGetAllocationGranularity(&unit, &where, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	for (i = 0; i < REGIONS; i++) {
		const struct region *region = &regions[i];
		CUdeviceptr first = ALIGN_DOWN(region->address, unit);

		if (region->variable)
			continue;
		if (end && first > end) {
			map_at(begin, end - begin, device);
			end = 0;
		}
		if (!end)
			begin = first;
		if (ALIGN_UP(region->address + region->size, unit) > end)
			end = ALIGN_UP(region->address + region->size, unit);
	}
	if (end)
		map_at(begin, end - begin, device);
}

/* Finds the module's variables and what they hold, and lets parameters lead to where they are. */
static void find_variables(CUmodule module, char *params, char **images, const char *other)
{
	CUdeviceptr was[REGIONS + 1], address;
	const struct pointer *p;
	size_t size;
	int i;

	for (i = 0; i < REGIONS; i++) {
		was[i] = regions[i].address;
		if (!regions[i].variable)
			continue;
		if (other && cuModuleGetGlobal(&address, &size, module, regions[i].variable)) {
			regions[i].address = 0; /* other code may do without it */
			continue;
		}
		CHECK(cuModuleGetGlobal(&regions[i].address, &size, module, regions[i].variable));
		if (size != regions[i].size)
			fail(regions[i].variable, "has another size");
		CHECK(cuMemcpyDtoH(images[i], regions[i].address, size));
	}
	for (p = pointers; p->region >= 0; p++) {
		memcpy(&address, params + p->at, sizeof address);
		address += regions[p->region].address - was[p->region];
		memcpy(params + p->at, &address, sizeof address);
	}
}

static void restore(char **images)
{
	int i;

	for (i = 0; i < REGIONS; i++)
		if (regions[i].address)
			CHECK(cuMemcpyHtoD(regions[i].address, images[i], regions[i].size));
}

/* ---- the launch ---- */

static CUmodule load_module(void *image, int registers)
{
	CUjit_option options[COUNT(jit_options) + 2];
	void *values[COUNT(jit_options) + 2];
	const struct setting *s;
	CUmodule module;
	int count = 0;

	if (registers) {
		options[count] = CU_JIT_MAX_REGISTERS;
		values[count++] = (void *)(intptr_t)registers;
	}
	for (s = jit_options; s->number >= 0; s++) {
		if (registers && s->number == CU_JIT_MAX_REGISTERS)
			continue;
		options[count] = (CUjit_option)s->number;
		values[count++] = (void *)(intptr_t)s->value;
	}
	CHECK(cuModuleLoadDataEx(&module, image, count, options, values));
	return module;
}

static CUfunction find_kernel(CUmodule module)
{
	const struct setting *s;
	CUfunction kernel;
	size_t limit;
	int value;

	/* Only what is not so already: not everything can be set. */
	for (s = limits; s->number >= 0; s++) {
		CHECK(cuCtxGetLimit(&limit, (CUlimit)s->number));
		if ((long long)limit != s->value)
			CHECK(cuCtxSetLimit((CUlimit)s->number, s->value));
	}
	CHECK(cuModuleGetFunction(&kernel, module, KERNEL));
	for (s = function_attributes; s->number >= 0; s++) {
		CHECK(cuFuncGetAttribute(&value, (CUfunction_attribute)s->number, kernel));
		if (value != s->value)
			CHECK(cuFuncSetAttribute(kernel, (CUfunction_attribute)s->number, s->value));
	}
	CHECK(cuFuncSetCacheConfig(kernel, (CUfunc_cache)CACHE));
	return kernel;
}

/* Launches, waits, and gives the milliseconds that it took. */
static float launch(CUfunction kernel, char *params, size_t size, CUevent *events, const struct change *change)
{
	CUlaunchAttribute attributes[COUNT(launch_attributes) + 1];
	CUlaunchConfig config = {
		.gridDimX = change->grid[0], .gridDimY = change->grid[1], .gridDimZ = change->grid[2],
		.blockDimX = change->block[0], .blockDimY = change->block[1], .blockDimZ = change->block[2],
		.sharedMemBytes = (unsigned int)change->shared, .attrs = attributes
	};
	void *extra[] = {
		CU_LAUNCH_PARAM_BUFFER_POINTER, params,
		CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END
	};
	const struct attribute *a;
	float time;

	memset(attributes, 0, sizeof attributes);
	for (a = launch_attributes; a->number >= 0; a++) {
		CUlaunchAttribute *attribute = &attributes[config.numAttrs++];

		attribute->id = (CUlaunchAttributeID)a->number;
		memcpy(&attribute->value, a->value, sizeof a->value);
	}
	CHECK(cuEventRecord(events[0], NULL));
	CHECK(cuLaunchKernelEx(&config, kernel, NULL, size ? extra : NULL));
	CHECK(cuEventRecord(events[1], NULL));
	CHECK(cuCtxSynchronize());
	CHECK(cuEventElapsedTime(&time, events[0], events[1]));
	return time;
}

/* ---- the result ---- */

/* Gives how many bytes of a region are not as recorded, and prints the first. */
static size_t compare(const struct region *region, const char *expected)
{
	unsigned char *found = allocate(region->size);
	const unsigned char *wanted = (const unsigned char *)expected;
	size_t i, words = 0, bytes = 0;

	CHECK(cuMemcpyDtoH(found, region->address, region->size));
	for (i = 0; i < region->size; i++)
		bytes += found[i] != wanted[i];
	if (bytes)
		printf("%s: %zu of %zu bytes differ\n", region->name, bytes, region->size);
	for (i = 0; bytes && i < region->size && words < SHOWN; i += 4) {
		uint32_t is = 0, was = 0;
		size_t rest = region->size - i < 4 ? region->size - i : 4;

		memcpy(&is, found + i, rest);
		memcpy(&was, wanted + i, rest);
		if (is == was)
			continue;
		printf("  at %-10zu is %08x, was %08x\n", i, is, was);
		words++;
	}
	free(found);
	return bytes;
}

static int by_value(const void *a, const void *b)
{
	float one = *(const float *)a, other = *(const float *)b;

	return (one > other) - (one < other);
}

/* What is not asked for stays as recorded. */
static void complete(struct change *change)
{
	unsigned int threads;

	if (!change->grid[0])
		memcpy(change->grid, grid, sizeof grid);
	if (!change->block[0])
		memcpy(change->block, block, sizeof block);
	if (change->shared < 0)
		change->shared = SHARED;
	threads = change->block[0] * change->block[1] * change->block[2];
	if (change->threads && threads > (unsigned int)change->threads)
		fail("--launch-bounds", "the block has more threads; give --block");
}

static int architecture(CUdevice device)
{
	int major, minor;

	CHECK(cuDeviceGetAttribute(&major, 75, device)); /* of its compute capability */
	CHECK(cuDeviceGetAttribute(&minor, 76, device));
	return 10 * major + minor;
}

static void change_folder(void)
{
	char path[4096];
	ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);

	path[length < 0 ? 0 : length] = 0;
	if (length < 0 || chdir(dirname(path)))
		fail("the folder of this program", "can't be entered");
}

int main(int argc, char **argv)
{
	static char *images[REGIONS + 1], *params; /* until the process ends */
	static float *times;
	struct change change = read_change(argc, argv);
	char *image;
	size_t size, bytes = 0;
	CUdevice device;
	CUcontext context;
	CUmodule module;
	CUfunction kernel;
	CUevent events[2];
	int i, count = change.times;

	complete(&change);
	change_folder();
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuDevicePrimaryCtxRetain(&context, device));
	CHECK(cuCtxSetCurrent(context));
	map_regions(device); /* before anything else comes to lie there */
	for (i = 0; i < REGIONS; i++)
		images[i] = allocate(regions[i].size);
	params = read_file("params.bin", &size);
	image = read_code(&change, IMAGE, PTX, KERNEL, architecture(device));
	module = load_module(image, change.registers);
	free(image);
	find_variables(module, params, images, change.code);
	read_contents("before.bin", images);
	kernel = find_kernel(module);
	CHECK(cuEventCreate(&events[0], 0));
	CHECK(cuEventCreate(&events[1], 0));

	restore(images);
	launch(kernel, params, size, events, &change);
	times = allocate(count * sizeof *times);
	for (i = 0; i < count; i++) {
		restore(images);
		times[i] = launch(kernel, params, size, events, &change);
	}
	if (count) {
		qsort(times, count, sizeof *times, by_value);
		printf("%d times: median %.4f ms, %.4f to %.4f ms\n", count, times[count / 2],
			times[0], times[count - 1]);
	}

	if (!EXPECTED) {
		printf("%s: not compared, because the result is unknown\n", KERNEL);
		return 0;
	}
	read_contents("after.bin", images);
	for (i = 0; i < REGIONS; i++)
		bytes += regions[i].address ? compare(&regions[i], images[i]) : 0;
	printf("%s: %s\n", KERNEL, bytes ? "different" : "as recorded");
	return bytes ? 1 : 0;
}
