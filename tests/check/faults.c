/*
 * Planted faults, one for each name: `faults NAME [--fixed]`. With --fixed the same work is done
 * without the fault. The line that is to be found ends with the comment "culprit of NAME".
 */
#include <time.h>
#include <unistd.h>

#include "common.h"

#define N 1000
#define STEPS 6
#define SIZE (N * sizeof(float))
#define GO(name, stream, count, ...) \
	CHECK(cuLaunchKernel(kernel(module, name), (unsigned)BLOCKS(count), 1, 1, 256, 1, 1, 0, stream, PARAMS(__VA_ARGS__), NULL))
#define WAIT() CHECK(cuCtxSynchronize())

EMBED(ptx, "faults.ptx");

static CUmodule module;
static bool fixed;
static int n = N, one = 1, none = 0;
static float half = 0.5f, two = 2.0f;
static CUstream first, second;

static CUdeviceptr raw(size_t bytes)
{
	CUdeviceptr p;

	CHECK(cuMemAlloc(&p, bytes));
	return p;
}

/* n values in (0, 1), the same in each run. */
static CUdeviceptr values(int count)
{
	float *data = random_floats(count, count);
	CUdeviceptr p = raw(count * sizeof(float));

	for (int i = 0; i < count; i++)
		data[i] += 1e-3f;
	CHECK(cuMemcpyHtoD(p, data, count * sizeof(float)));
	free(data);
	return p;
}

static CUdeviceptr zeros(size_t bytes)
{
	CUdeviceptr p = raw(bytes);

	CHECK(cuMemsetD8(p, 0, bytes));
	return p;
}

static void show(CUdeviceptr p, size_t bytes)
{
	unsigned char *data = malloc(bytes);

	WAIT();
	CHECK(cuMemcpyDtoH(data, p, bytes));
	printf("%016llx\n", (unsigned long long)checksum(data, bytes));
	free(data);
}

/* Another value in each process. */
static unsigned entropy(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (unsigned)now.tv_nsec * 2654435761u ^ (unsigned)getpid() << 8 ^ (unsigned)now.tv_sec;
}

static void busy(CUstream stream)
{
	static CUdeviceptr word;
	int rounds = 100000;

	if (!word) {
		word = zeros(4);
		WAIT();
	}
	CHECK(cuLaunchKernel(kernel(module, "spin"), 1, 1, 1, 1, 1, 1, 0, stream, PARAMS(&word, &rounds), NULL));
}

static void after(CUstream waiting, CUstream other)
{
	CUevent event;

	CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	CHECK(cuEventRecord(event, other));
	CHECK(cuStreamWaitEvent(waiting, event, 0));
	CHECK(cuEventDestroy(event));
}

/* ---- two runs differ ---- */

static void steps_of_dropout(int from)
{
	CUdeviceptr p = values(n);
	unsigned seed;

	for (int step = 0; step < STEPS; step++) {
		GO("scale", NULL, n, &p, &two, &n);
		seed = fixed || step < from ? 1234u + step : entropy();
		GO("dropout", NULL, n, &p, &seed, &n); /* culprit of seed, late_seed */
		GO("add", NULL, n, &p, &p, &n);
		WAIT();
	}
	show(p, SIZE);
}

static void seed(void)
{
	steps_of_dropout(0);
}

static void late_seed(void)
{
	steps_of_dropout(STEPS - 2);
}

static void host_input(void)
{
	CUdeviceptr p = values(n), q = raw(SIZE);
	float *data = random_floats(n, 7);

	for (int step = 0; step < STEPS; step++) {
		if (!fixed && step == 3)
			data[17] = (float)(entropy() >> 8);
		CHECK(cuMemcpyHtoD(q, data, SIZE)); /* culprit of host_input */
		GO("add", NULL, n, &p, &q, &n);
		WAIT();
	}
	show(p, SIZE);
	free(data);
}

static void host_address(void)
{
	CUdeviceptr p = zeros(64);
	uintptr_t what = fixed ? 1 : (uintptr_t)&what ^ entropy();

	CHECK(cuMemcpyHtoD(p, &what, sizeof(what))); /* culprit of host_address */
	show(p, 64);
}

static void set_value(void)
{
	CUdeviceptr p = values(n);

	GO("scale", NULL, n, &p, &two, &n);
	CHECK(cuMemsetD32(p + 400, fixed ? 1 : entropy(), 10)); /* culprit of set_value */
	GO("scale", NULL, n, &p, &two, &n);
	show(p, SIZE);
}

static void grid(void)
{
	CUdeviceptr p = zeros(1 << 20);
	int count = fixed ? 4096 : 4096 + (int)(entropy() % 200) * 256;

	GO("unchecked", NULL, count, &p, &two); /* culprit of grid */
	show(p, 1 << 20);
}

static void number_of_launches(void)
{
	CUdeviceptr p = values(n);
	unsigned times = fixed ? 5 : 5 + entropy() % 1000 % 97;

	for (unsigned i = 0; i < times; i++)
		GO("scale", NULL, n, &p, &half, &n); /* culprit of number_of_launches */
	show(p, SIZE);
}

static void float_atomics(void)
{
	int count = 200000;
	CUdeviceptr p = values(count), total = zeros(4);

	for (int step = 0; step < STEPS; step++) {
		if (fixed)
			GO("scale", NULL, one, &total, &two, &one);
		else
			GO("sum", NULL, count, &total, &p, &count); /* culprit of float_atomics */
		WAIT();
	}
	show(total, 4);
}

static void append_in_any_order(void)
{
	int count = 200000;
	CUdeviceptr p = values(count), to = zeros(count * sizeof(float)), counter = zeros(4);

	if (fixed)
		GO("move", NULL, count, &to, &p, &none, &count);
	else
		GO("append", NULL, count, &counter, &to, &p, &count); /* culprit of append_in_any_order */
	show(to, count * sizeof(float));
}

static void clock_in_kernel(void)
{
	CUdeviceptr p = values(n);

	GO("scale", NULL, n, &p, &two, &n);
	if (fixed)
		GO("scale", NULL, n, &p, &two, &n);
	else
		GO("clocked", NULL, n, &p, &n); /* culprit of clock_in_kernel */
	show(p, SIZE);
}

static void other_order(void)
{
	CUdeviceptr p = values(n), q = values(n);
	bool swapped = !fixed && entropy() % 64 > 31;

	for (int step = 0; step < 40; step++, swapped = !fixed && entropy() % 64 > 31) {
		GO("add", NULL, n, swapped ? &p : &q, swapped ? &q : &p, &n); /* culprit of other_order */
		GO("scale", NULL, n, &q, &half, &n);
	}
	show(p, SIZE);
}

/* ---- writes out of bounds ---- */

static void write_at(int shift, int count, size_t bytes)
{
	CUdeviceptr p = values(n), q = zeros(bytes), other = zeros(bytes);

	GO("scale", NULL, n, &p, &two, &n);
	shift = fixed ? 0 : shift;
	GO("move", NULL, count, &q, &p, &shift, &count); /* culprit of end_4, end_12, start_4, end_200 */
	GO("scale", NULL, n, &p, &two, &n);
	show(p, SIZE);
	show(other, bytes);
}

static void end_4(void)
{
	write_at(1, n, SIZE);
}

static void end_12(void)
{
	write_at(3, n, SIZE);
}

static void start_4(void)
{
	write_at(-1, n, SIZE);
}

static void end_200(void)
{
	write_at(50, 100, 400);
}

static void grid_rounded_up(void)
{
	CUdeviceptr p = zeros(fixed ? 1024 * sizeof(float) : SIZE), q = zeros(SIZE);

	GO("unchecked", NULL, n, &p, &two); /* culprit of grid_rounded_up */
	show(q, SIZE);
}

static void write_after_free(void)
{
	CUdeviceptr p = values(n), q = values(n);

	CHECK(cuMemFree(fixed ? values(n) : q));
	GO("scale", NULL, n, &q, &two, &n); /* culprit of write_after_free */
	show(p, SIZE);
}

static void set_too_long(void)
{
	CUdeviceptr p = zeros(SIZE), q = zeros(SIZE);

	CHECK(cuMemsetD8(p, 1, fixed ? SIZE : SIZE + 8)); /* culprit of set_too_long */
	show(q, SIZE);
}

static void copy_too_long(void)
{
	CUdeviceptr p = zeros(SIZE), q = values(2 * n);

	CHECK(cuMemcpyDtoD(p, q, fixed ? SIZE : SIZE + 16)); /* culprit of copy_too_long */
	show(q, SIZE);
}

static void upload_too_long(void)
{
	float *data = random_floats(2 * n, 3);
	CUdeviceptr p = zeros(SIZE), q = zeros(SIZE);

	CHECK(cuMemcpyHtoD(p, data, fixed ? SIZE : SIZE + 20)); /* culprit of upload_too_long */
	show(q, SIZE);
	free(data);
}

static void bad_index(void)
{
	int *at = malloc(SIZE);
	CUdeviceptr p = zeros(SIZE), indices = raw(SIZE);

	for (int i = 0; i < n; i++)
		at[i] = i;
	at[500] = fixed ? 0 : -1;
	CHECK(cuMemcpyHtoD(indices, at, SIZE));
	GO("scatter", NULL, n, &p, &indices, &two, &n); /* culprit of bad_index */
	show(p, SIZE);
	free(at);
}

static void pool_end_4(void)
{
	CUdeviceptr p = values(n), q;
	int shift = fixed ? 0 : 1;

	CHECK(cuMemAllocAsync(&q, SIZE, first));
	GO("move", first, n, &q, &p, &shift, &n); /* culprit of pool_end_4 */
	CHECK(cuMemFreeAsync(q, first));
	CHECK(cuStreamSynchronize(first));
	show(p, SIZE);
}

static void pool_write_after_free(void)
{
	CUdeviceptr p = values(n), q;

	CHECK(cuMemAllocAsync(&q, SIZE, first));
	if (!fixed)
		CHECK(cuMemFreeAsync(q, first));
	CHECK(cuStreamSynchronize(first));
	GO("move", first, n, &q, &p, &none, &n); /* culprit of pool_write_after_free */
	CHECK(cuStreamSynchronize(first));
	show(p, SIZE);
}

static void pitched_row(void)
{
	CUdeviceptr p, from = values(4096);
	size_t pitch;
	int shift, width = 100;

	CHECK(cuMemAllocPitch(&p, &pitch, 400, 8, 4));
	CHECK(cuMemsetD8(p, 0, pitch * 8));
	for (int row = 0; row < 8 + !fixed; row++) {
		shift = (int)(row * pitch / sizeof(float));
		GO("move", NULL, width, &p, &from, &shift, &width); /* culprit of pitched_row */
	}
	show(p, pitch * 8);
}

static void through_memory(void)
{
	CUdeviceptr p = zeros(SIZE);
	struct {
		CUdeviceptr values;
		int first, unused;
	} node = {p, fixed ? 0 : 2, 0};
	CUdeviceptr q = raw(sizeof(node));

	CHECK(cuMemcpyHtoD(q, &node, sizeof(node)));
	GO("through", NULL, n, &q, &two, &n); /* culprit of through_memory */
	show(p, SIZE);
}

static void in_graph(void (*work)(CUdeviceptr, CUdeviceptr), CUdeviceptr p, CUdeviceptr q)
{
	CUgraph graph;
	CUgraphExec exec;

	CHECK(cuStreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_GLOBAL));
	work(p, q);
	CHECK(cuStreamEndCapture(first, &graph));
	CHECK(cuGraphInstantiate(&exec, graph, 0));
	for (int i = 0; i < 3; i++)
		CHECK(cuGraphLaunch(exec, first));
	CHECK(cuStreamSynchronize(first));
	show(p, SIZE);
	show(q, SIZE);
}

static void write_out_in_graph(CUdeviceptr p, CUdeviceptr q)
{
	int shift = fixed ? 0 : 1;

	GO("scale", first, n, &q, &half, &n);
	GO("move", first, n, &p, &q, &none, &n);
	GO("move", first, n, &p, &q, &shift, &n); /* culprit of graph_end_4 */
}

static void graph_end_4(void)
{
	in_graph(write_out_in_graph, values(n), values(n));
}

static void write_out_in_branch(CUdeviceptr p, CUdeviceptr q)
{
	int more = n + (fixed ? 0 : 24);

	after(second, first);
	GO("scale", first, n, &q, &half, &n);
	GO("scale", second, more, &p, &half, &more); /* culprit of graph_branch_end_96 */
	after(first, second);
}

static void graph_branch_end_96(void)
{
	in_graph(write_out_in_branch, values(n), values(n));
}

static void copy_out_in_graph(CUdeviceptr p, CUdeviceptr q)
{
	GO("scale", first, n, &p, &half, &n);
	CHECK(cuMemcpyDtoDAsync(p, q, SIZE + 8 * !fixed, first)); /* culprit of graph_copy_too_long */
	GO("scale", first, n, &q, &half, &n);
}

static void graph_copy_too_long(void)
{
	in_graph(copy_out_in_graph, values(n), values(2 * n));
}

static void end_by_two(void)
{
	CUdeviceptr p = values(n), q = zeros(SIZE);
	int shift = !fixed, more = n + 2 * shift;

	for (int step = 0; step < STEPS; step++) {
		GO("move", NULL, n, &q, &p, &shift, &n); /* culprit of end_by_two */
		GO("scale", NULL, more, &q, &half, &more); /* culprit of end_by_two */
		WAIT();
	}
	show(q, SIZE);
}

static void row_too_many(void)
{
	int rows = 40, columns = 25, shift;
	CUdeviceptr p = zeros(SIZE), row = values(columns);

	for (int i = 0; i <= rows - fixed; i++) {
		shift = i * columns;
		GO("move", NULL, columns, &p, &row, &shift, &columns); /* culprit of row_too_many */
	}
	show(row, 100);
}

/* ---- reads out of bounds ---- */

static void read_neighbour(void)
{
	CUdeviceptr p = values(n), to = values(n);
	int count = fixed ? n - 1 : n;

	GO("halo", NULL, count, &to, &p, &count); /* culprit of read_neighbour */
	show(to, SIZE);
}

static void read_in_a_queue(void)
{
	CUdeviceptr p = values(n), to = values(n);
	int count;

	for (int step = 0; step < STEPS; step++) {
		GO("scale", NULL, n, &p, &half, &n);
		count = n - 1 + (!fixed && step == STEPS - 2);
		GO("halo", NULL, count, &to, &p, &count); /* culprit of read_in_a_queue */
		GO("add", NULL, n, &p, &to, &n);
	}
	show(p, SIZE);
}

/* The pointer to the last row is where the allocation ends. */
static void read_row_too_many(void)
{
	int rows = 40, columns = 25;
	CUdeviceptr p = values(rows * columns), to = zeros(columns * sizeof(float)), row;

	for (int i = 0; i <= rows - fixed; i++) {
		row = p + i * columns * sizeof(float);
		GO("move", NULL, columns, &to, &row, &none, &columns); /* culprit of read_row_too_many */
	}
	show(to, columns * sizeof(float));
}

/* The threads beside the tile load the number after its last one, and do not use it. */
static void route_past_map(void)
{
	int tile = 8, blocks = 4, last = fixed ? tile - 1 : tile;
	int rows = tile * blocks, *data = malloc(rows * sizeof(int));
	CUdeviceptr from = values(rows), to = zeros(rows * sizeof(float)), map = raw(rows * sizeof(int));

	for (int i = 0; i < rows; i++)
		data[i] = (i * 5) % rows;
	CHECK(cuMemcpyHtoD(map, data, rows * sizeof(int)));
	GO("route", NULL, blocks * 256, &to, &from, &map, &tile, &last); /* culprit of route_past_map */
	show(to, rows * sizeof(float));
	free(data);
}

static void download_too_long(void)
{
	CUdeviceptr p = values(n);
	float *data = calloc(n + 4, sizeof(float));
	size_t bytes = fixed ? SIZE : SIZE + 16;

	CHECK(cuMemcpyDtoH(data, p, bytes)); /* culprit of download_too_long */
	printf("%016llx\n", (unsigned long long)checksum((unsigned char *)data, SIZE));
	free(data);
}

/* ---- uninitialised memory ---- */

static void use_of(CUdeviceptr p)
{
	CUdeviceptr q = values(n);

	GO("add", NULL, n, &q, &p, &n); /* culprit of empty, part, reused, async_empty */
	show(q, SIZE);
}

static void empty(void)
{
	use_of(fixed ? values(n) : raw(SIZE));
}

static void part(void)
{
	CUdeviceptr p = raw(SIZE);

	CHECK(cuMemsetD32(p, 0, fixed ? n : n - 100));
	use_of(p);
}

static void reused(void)
{
	CUdeviceptr p = values(n);

	CHECK(cuMemFree(p));
	p = raw(SIZE);
	if (fixed)
		CHECK(cuMemsetD8(p, 0, SIZE));
	use_of(p);
}

static void async_empty(void)
{
	CUdeviceptr p;

	CHECK(cuMemAllocAsync(&p, SIZE, NULL));
	if (fixed)
		CHECK(cuMemsetD8(p, 0, SIZE));
	use_of(p);
}

static void not_zeroed(void)
{
	CUdeviceptr p = values(n), total = fixed ? zeros(4) : raw(4);

	GO("add", NULL, one, &total, &p, &one); /* culprit of not_zeroed */
	show(total, 4);
}

/* The scale of the padding counts only if it is NaN: 0 times any other scale is 0. */
static void scale_of_padding(void)
{
	int count = 200, scales = (count + 31) / 32, used = fixed ? scales : 256 / 32;
	unsigned char data[256 / 32] = {127, 126, 128, 127, 125, 127, 129};
	CUdeviceptr p = values(count), to = zeros(256 * sizeof(float)), scale = raw(sizeof(data));

	CHECK(cuMemcpyHtoD(scale, data, scales));
	GO("scaled", NULL, 256, &to, &p, &scale, &count, &used); /* culprit of scale_of_padding */
	show(to, 256 * sizeof(float));
}

static void halo_read(void)
{
	int count = n + 1;
	CUdeviceptr p = raw(count * sizeof(float)), to = raw(SIZE);

	CHECK(cuMemsetD32(p, 0x3f800000, fixed ? count : n));
	GO("halo", NULL, n, &to, &p, &n); /* culprit of halo_read */
	show(to, SIZE);
}

static void counter_in_memory(void)
{
	CUdeviceptr p = zeros(1 << 20), q = values(n), counter = fixed ? zeros(4) : raw(4);
	CUdeviceptr indices = raw(SIZE);

	CHECK(cuMemsetD32(indices, 5, n));
	GO("move", NULL, one, &indices, &counter, &none, &one); /* culprit of counter_in_memory */
	show(indices, SIZE);
	show(p, SIZE);
	show(q, SIZE);
}

static void read_past_end(void)
{
	CUdeviceptr p = values(fixed ? n + 1 : n), to = raw(SIZE);

	GO("halo", NULL, n, &to, &p, &n); /* culprit of read_past_end */
	show(to, SIZE);
}

/* ---- order ---- */

static void read_before_write(void)
{
	CUdeviceptr p = values(n), q = zeros(SIZE);

	WAIT();
	busy(first);
	GO("scale", first, n, &p, &two, &n);
	if (fixed)
		after(second, first);
	GO("add", second, n, &q, &p, &n); /* culprit of read_before_write */
	WAIT();
	show(q, SIZE);
}

static void write_before_read(void)
{
	CUdeviceptr p = values(n), q = zeros(SIZE);

	WAIT();
	busy(first);
	GO("add", first, n, &q, &p, &n);
	if (fixed)
		after(second, first);
	GO("scale", second, n, &p, &two, &n); /* culprit of write_before_read */
	WAIT();
	show(q, SIZE);
}

static void two_writes(void)
{
	CUdeviceptr p = values(n), q = values(n), r = zeros(SIZE);

	WAIT();
	busy(first);
	GO("move", first, n, &r, &p, &none, &n);
	if (fixed)
		after(second, first);
	GO("move", second, n, &r, &q, &none, &n); /* culprit of two_writes */
	WAIT();
	show(r, SIZE);
}

static void download_before_write(void)
{
	CUdeviceptr p = values(n);
	float *data;

	CHECK(cuMemAllocHost((void **)&data, SIZE));
	WAIT();
	busy(first);
	GO("scale", first, n, &p, &two, &n);
	if (fixed)
		after(second, first);
	CHECK(cuMemcpyDtoHAsync(data, p, SIZE, second)); /* culprit of download_before_write */
	WAIT();
	printf("%016llx\n", (unsigned long long)checksum(data, SIZE));
}

static void write_under_download(void)
{
	CUdeviceptr p = values(n);
	float *data;

	CHECK(cuMemAllocHost((void **)&data, SIZE));
	WAIT();
	busy(first);
	CHECK(cuMemcpyDtoHAsync(data, p, SIZE, first));
	if (fixed)
		after(second, first);
	GO("scale", second, n, &p, &two, &n); /* culprit of write_under_download */
	WAIT();
	printf("%016llx\n", (unsigned long long)checksum(data, SIZE));
}

static void set_in_other_stream(void)
{
	CUdeviceptr p = values(n);

	WAIT();
	busy(first);
	GO("scale", first, n, &p, &two, &n);
	if (fixed)
		after(second, first);
	CHECK(cuMemsetD8Async(p, 0, SIZE / 2, second)); /* culprit of set_in_other_stream */
	WAIT();
	show(p, SIZE);
}

static void event_too_early(void)
{
	CUdeviceptr p = values(n), q = zeros(SIZE);
	CUevent event;

	CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	WAIT();
	busy(first);
	if (!fixed)
		CHECK(cuEventRecord(event, first));
	GO("scale", first, n, &p, &two, &n);
	if (fixed)
		CHECK(cuEventRecord(event, first));
	CHECK(cuStreamWaitEvent(second, event, 0));
	GO("add", second, n, &q, &p, &n); /* culprit of event_too_early */
	WAIT();
	show(q, SIZE);
}

static void wait_for_other_event(void)
{
	CUdeviceptr p = values(n), q = zeros(SIZE);
	CUevent events[2];

	for (int i = 0; i < 2; i++)
		CHECK(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
	WAIT();
	busy(first);
	GO("scale", first, n, &p, &two, &n);
	CHECK(cuEventRecord(events[0], first));
	CHECK(cuStreamWaitEvent(second, events[fixed ? 0 : 1], 0));
	GO("add", second, n, &q, &p, &n); /* culprit of wait_for_other_event */
	WAIT();
	show(q, SIZE);
}

static void not_default_stream(void)
{
	CUdeviceptr p = values(n), q = zeros(SIZE);

	WAIT();
	busy(first);
	GO("scale", first, n, &p, &two, &n);
	GO("add", fixed ? first : NULL, n, &q, &p, &n); /* culprit of not_default_stream */
	WAIT();
	show(q, SIZE);
}

static void free_too_early(void)
{
	CUdeviceptr p, q = values(n), r;

	CHECK(cuMemAllocAsync(&p, SIZE, first));
	CHECK(cuStreamSynchronize(first));
	busy(second);
	GO("move", second, n, &p, &q, &none, &n);
	if (fixed)
		after(first, second);
	CHECK(cuMemFreeAsync(p, first)); /* culprit of free_too_early */
	CHECK(cuMemAllocAsync(&r, SIZE, first));
	CHECK(cuMemsetD8Async(r, 0, SIZE, first)); /* culprit of free_too_early */
	WAIT();
	show(r, SIZE);
}

static void race_in_graph(CUdeviceptr p, CUdeviceptr q)
{
	after(second, first);
	busy(first);
	GO("scale", first, n, &p, &half, &n);
	if (fixed)
		after(second, first);
	GO("add", second, n, &q, &p, &n); /* culprit of graph_race */
	after(first, second);
}

static void graph_race(void)
{
	CUdeviceptr p = values(n), q = values(n);

	busy(NULL);
	WAIT();
	in_graph(race_in_graph, p, q);
}

static void host_buffer_reused(void)
{
	CUdeviceptr p = zeros(SIZE);
	float *data;

	CHECK(cuMemAllocHost((void **)&data, SIZE));
	memset(data, 0, SIZE);
	WAIT();
	busy(first);
	CHECK(cuMemcpyHtoDAsync(p, data, SIZE, first)); /* culprit of host_buffer_reused */
	if (fixed)
		CHECK(cuStreamSynchronize(first));
	memset(data, 1, SIZE);
	WAIT();
	show(p, SIZE);
}

/* One staging buffer for all steps. */
static void staging_reused(void)
{
	CUdeviceptr p = values(n), q = zeros(SIZE);
	float *data;
	CUevent copied;

	CHECK(cuEventCreate(&copied, CU_EVENT_DISABLE_TIMING));
	CHECK(cuMemAllocHost((void **)&data, SIZE));
	WAIT();
	for (int step = 0; step < STEPS; step++) {
		if (fixed && step)
			CHECK(cuEventSynchronize(copied));
		for (int i = 0; i < n; i++)
			data[i] = (float)step;
		CHECK(cuMemcpyHtoDAsync(q, data, SIZE, first)); /* culprit of staging_reused */
		CHECK(cuEventRecord(copied, first));
		GO("add", first, n, &p, &q, &n);
	}
	WAIT();
	show(p, SIZE);
}

/* A block of a cache is given to another request, and loaded from the host, while work of the request before
 * still reads it.
 */
static void block_loaded_too_early(void)
{
	CUdeviceptr cache = values(4 * N), block = cache + SIZE, out = zeros(SIZE);
	float *data;
	CUevent computed;

	CHECK(cuEventCreate(&computed, CU_EVENT_DISABLE_TIMING));
	CHECK(cuMemAllocHost((void **)&data, SIZE));
	memset(data, 0, SIZE);
	WAIT();
	busy(first);
	GO("add", first, n, &out, &block, &n);
	CHECK(cuEventRecord(computed, first));
	if (fixed)
		CHECK(cuStreamWaitEvent(second, computed, 0));
	CHECK(cuMemcpyHtoDAsync(block, data, SIZE, second)); /* culprit of block_loaded_too_early */
	WAIT();
	show(out, SIZE);
	show(cache, 4 * SIZE);
}

static void CUDA_CB proxy(void *count)
{
	__atomic_fetch_add((int *)count, 1, __ATOMIC_RELAXED);
}

/*
 * Gradients are reduced as NCCL does it: bucket by bucket, through staging memory, in a stream that forks from the one
 * of the communicator and joins it, beside a proxy on the host. Each bucket has an event.
 */
static void bucket_not_awaited(void)
{
	CUdeviceptr gradients = values(4 * N), weights = zeros(4 * SIZE), staging = zeros(SIZE);
	CUevent reduced;
	CUstream compute;
	int sent = 0;

	CHECK(cuStreamCreate(&compute, CU_STREAM_NON_BLOCKING));
	CHECK(cuEventCreate(&reduced, CU_EVENT_DISABLE_TIMING));
	WAIT();
	for (int i = 0; i < 12; i++) {
		CUdeviceptr bucket = gradients + i % 4 * SIZE, weight = weights + i % 4 * SIZE;
		GO("scale", compute, n, &bucket, &half, &n);
		after(first, compute);
		after(second, first);
		CHECK(cuLaunchHostFunc(second, proxy, &sent));
		busy(second);
		CHECK(cuMemcpyDtoDAsync(staging, bucket, SIZE, second));
		GO("add", second, n, &bucket, &staging, &n);
		after(first, second);
		CHECK(cuEventRecord(reduced, first));
		if (fixed || i < 11)
			CHECK(cuStreamWaitEvent(compute, reduced, 0));
		GO("add", compute, n, &weight, &bucket, &n); /* culprit of bucket_not_awaited */
	}
	WAIT();
	show(weights, 4 * SIZE);
}

/* An allocator that caches gives a block away when the event of each stream that used it is complete (record_stream). */
static void cached_block_given_away(void)
{
	CUdeviceptr block = values(n), out = zeros(SIZE);
	CUevent used;

	CHECK(cuEventCreate(&used, CU_EVENT_DISABLE_TIMING));
	WAIT();
	for (int i = 0; i < 3; i++) {
		GO("scale", first, n, &block, &two, &n);
		after(second, first);
		busy(second);
		GO("add", second, n, &out, &block, &n);
		CHECK(cuEventRecord(used, second));
		while (fixed && cuEventQuery(used) == CUDA_ERROR_NOT_READY)
			usleep(100);
		CHECK(cuMemsetD8Async(block, 1, SIZE, first)); /* culprit of cached_block_given_away */
	}
	WAIT();
	show(out, SIZE);
}

/* ---- values ---- */

static void zero_by_zero(void)
{
	CUdeviceptr a = values(n), b = values(n), to = zeros(SIZE);

	GO("scale", NULL, n, &a, &two, &n);
	if (!fixed) {
		CHECK(cuMemsetD32(a + 40, 0, 1));
		CHECK(cuMemsetD32(b + 40, 0, 1));
	}
	GO("divide", NULL, n, &to, &a, &b, &n); /* culprit of zero_by_zero */
	GO("scale", NULL, n, &to, &two, &n);
	show(to, SIZE);
}

static void infinite(void)
{
	CUdeviceptr p = values(n);
	float huge = fixed ? 1.5f : 1e30f;

	GO("scale", NULL, n, &p, &huge, &n);
	WAIT();
	GO("scale", NULL, n, &p, &huge, &n); /* culprit of infinite */
	show(p, SIZE);
}

static void root_of_negative(void)
{
	CUdeviceptr p = values(n);
	float minus = fixed ? 1.0f : -1.0f;

	GO("scale", NULL, n, &p, &minus, &n);
	GO("root", NULL, n, &p, &n); /* culprit of root_of_negative */
	show(p, SIZE);
}

static void loaded_nan(void)
{
	float *data = random_floats(n, 5);
	CUdeviceptr p = values(n), q = raw(SIZE);

	((unsigned *)data)[77] = fixed ? 0 : 0x7fc00000;
	CHECK(cuMemcpyHtoD(q, data, SIZE)); /* culprit of loaded_nan */
	GO("add", NULL, n, &p, &q, &n);
	show(p, SIZE);
	free(data);
}

static void nan_in_graph_work(CUdeviceptr p, CUdeviceptr q)
{
	GO("scale", first, n, &q, &half, &n);
	GO("divide", first, n, &p, &p, &q, &n); /* culprit of graph_nan */
	GO("scale", first, n, &p, &half, &n);
}

static void graph_nan(void)
{
	CUdeviceptr p = values(n), q = values(n);

	if (!fixed) {
		CHECK(cuMemsetD32(p + 80, 0, 1));
		CHECK(cuMemsetD32(q + 80, 0, 1));
	}
	in_graph(nan_in_graph_work, p, q);
}

/* One kernel of the graph copies what nobody wrote, the next one divides by it. */
static CUdeviceptr unwritten;

static void unwritten_in_graph_work(CUdeviceptr p, CUdeviceptr q)
{
	GO("scale", first, n, &p, &half, &n);
	GO("move", first, n, &q, &unwritten, &none, &n);
	GO("divide", first, n, &p, &p, &q, &n); /* culprit of graph_unwritten */
}

static void graph_unwritten(void)
{
	CUdeviceptr p = values(n), q = values(n);

	unwritten = fixed ? values(n) : raw(SIZE);
	CHECK(cuMemsetD32(p + 80, 0, 1));
	in_graph(unwritten_in_graph_work, p, q);
}

static void half_overflow(void)
{
	CUdeviceptr p = zeros(2 * n);
	int count = fixed ? 7 : n;

	GO("overflow", NULL, count, &p, &count); /* culprit of half_overflow */
	show(p, 2 * n);
}

static void nan_from_uninitialized(void)
{
	CUdeviceptr p = fixed ? values(n) : raw(SIZE), q = values(n);

	GO("add", NULL, n, &q, &p, &n); /* culprit of nan_from_uninitialized */
	show(q, SIZE);
}

static void zero_by_unwritten(void)
{
	CUdeviceptr a = values(n), b = fixed ? values(n) : raw(SIZE), to = raw(SIZE);

	CHECK(cuMemsetD32(a, 0, 16));
	GO("divide", NULL, n, &to, &a, &b, &n); /* culprit of zero_by_unwritten */
	show(to, SIZE);
}

/* Two kernels and a copy take what nobody wrote to the launch that divides by it. */
static void nan_from_chain(void)
{
	CUdeviceptr a = values(n), b = fixed ? values(n) : raw(SIZE), c = values(n), d = values(n);
	CUdeviceptr to = values(n);

	CHECK(cuMemsetD32(a, 0, 16));
	GO("move", NULL, n, &c, &b, &none, &n);
	GO("scale", NULL, n, &c, &half, &n);
	CHECK(cuMemcpyDtoD(d, c, SIZE));
	GO("divide", NULL, n, &to, &a, &d, &n); /* culprit of nan_from_chain */
	show(to, SIZE);
}

/* The divisor is computed from what somebody wrote; what nobody wrote is only copied. */
static void nan_beside_chain(void)
{
	CUdeviceptr a = values(n), b = raw(SIZE), c = values(n), d = values(n), to = values(n);

	CHECK(cuMemsetD32(a, 0, 16));
	if (!fixed)
		CHECK(cuMemsetD32(d, 0, 16));
	GO("move", NULL, n, &c, &b, &none, &n);
	GO("divide", NULL, n, &to, &a, &d, &n); /* culprit of nan_beside_chain */
	show(to, SIZE);
}

/* The last divisor lies past the end, where a freed allocation had zeros. */
static void divide_past_end(CUdeviceptr a, int zero)
{
	CUdeviceptr to = zeros(SIZE), b = zeros(SIZE);

	CHECK(cuMemFree(b));
	b = values(fixed ? n : n - 1);
	if (zero >= 0 && !fixed)
		CHECK(cuMemsetD32(b + zero * sizeof(float), 0, 1));
	GO("divide", NULL, n, &to, &a, &b, &n); /* culprit of nan_past_end, infinity_past_end, nan_inside */
	show(to, SIZE);
}

static void nan_past_end(void)
{
	CUdeviceptr a = values(n);

	CHECK(cuMemsetD32(a + (n - 1) * sizeof(float), 0, 1));
	divide_past_end(a, -1);
}

static void infinity_past_end(void)
{
	divide_past_end(values(n), -1);
}

/* The launch reads past the end, too, but makes no NaN of that. */
static void nan_inside(void)
{
	CUdeviceptr a = values(n);

	CHECK(cuMemsetD32(a + 40, 0, 1));
	divide_past_end(a, 10);
}

static void nan_after_free(void)
{
	CUdeviceptr a = values(n), to = zeros(SIZE), b = zeros(SIZE);

	CHECK(cuMemsetD32(a, 0, n));
	if (fixed)
		CHECK(cuMemsetD32(b, 0x3f800000, n));
	else
		CHECK(cuMemFree(b));
	GO("divide", NULL, n, &to, &a, &b, &n); /* culprit of nan_after_free */
	show(to, SIZE);
}

/* ---- devices ---- */

static void one_of_two_devices(void)
{
	CUcontext contexts[2];

	for (int i = 0; i < 2; i++) {
		CHECK(cuDevicePrimaryCtxRetain(&contexts[i], i));
		CHECK(cuCtxSetCurrent(contexts[i]));
		CHECK(cuModuleLoadData(&module, ptx));
		CUdeviceptr p = values(n);
		unsigned value = i && !fixed ? entropy() : 1;
		GO("dropout", NULL, n, &p, &value, &n); /* culprit of one_of_two_devices */
		show(p, SIZE);
	}
}

#define FAULT(name, check) {#name, name}

static const struct {
	const char *name;
	void (*run)(void);
} faults[] = {
	FAULT(seed, determinism), FAULT(late_seed, determinism), FAULT(host_input, determinism),
	FAULT(host_address, determinism), FAULT(set_value, determinism), FAULT(grid, determinism),
	FAULT(number_of_launches, determinism), FAULT(float_atomics, determinism),
	FAULT(append_in_any_order, determinism), FAULT(clock_in_kernel, determinism),
	FAULT(other_order, determinism), FAULT(one_of_two_devices, determinism),
	FAULT(end_4, bounds), FAULT(end_12, bounds), FAULT(start_4, bounds), FAULT(end_200, bounds),
	FAULT(grid_rounded_up, bounds), FAULT(write_after_free, bounds), FAULT(set_too_long, bounds),
	FAULT(copy_too_long, bounds), FAULT(upload_too_long, bounds), FAULT(bad_index, bounds),
	FAULT(pool_end_4, bounds), FAULT(pool_write_after_free, bounds), FAULT(pitched_row, bounds),
	FAULT(through_memory, bounds), FAULT(graph_end_4, bounds), FAULT(row_too_many, bounds),
	FAULT(graph_branch_end_96, bounds), FAULT(graph_copy_too_long, bounds), FAULT(end_by_two, bounds),
	FAULT(read_neighbour, guard), FAULT(read_in_a_queue, guard), FAULT(read_row_too_many, guard),
	FAULT(route_past_map, guard), FAULT(download_too_long, guard),
	FAULT(empty, uninitialized), FAULT(part, uninitialized), FAULT(reused, uninitialized),
	FAULT(async_empty, uninitialized), FAULT(not_zeroed, uninitialized), FAULT(scale_of_padding, uninitialized),
	FAULT(halo_read, uninitialized),
	FAULT(counter_in_memory, uninitialized), FAULT(read_past_end, uninitialized),
	FAULT(read_before_write, order), FAULT(write_before_read, order), FAULT(two_writes, order),
	FAULT(download_before_write, order), FAULT(write_under_download, order),
	FAULT(set_in_other_stream, order), FAULT(event_too_early, order), FAULT(wait_for_other_event, order),
	FAULT(not_default_stream, order), FAULT(free_too_early, order), FAULT(graph_race, order),
	FAULT(host_buffer_reused, order), FAULT(staging_reused, order), FAULT(block_loaded_too_early, order),
	FAULT(bucket_not_awaited, order), FAULT(cached_block_given_away, order),
	FAULT(zero_by_zero, values), FAULT(nan_from_chain, values), FAULT(nan_beside_chain, values),
	FAULT(infinite, values), FAULT(root_of_negative, values),
	FAULT(loaded_nan, values), FAULT(graph_nan, values), FAULT(graph_unwritten, values),
	FAULT(half_overflow, values),
	FAULT(zero_by_unwritten, values), FAULT(nan_from_uninitialized, uninitialized),
	FAULT(nan_past_end, values), FAULT(infinity_past_end, values), FAULT(nan_inside, values),
	FAULT(nan_after_free, values),
};

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";

	fixed = argc > 2 && !strcmp(argv[2], "--fixed");
	for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
		if (strcmp(name, faults[i].name))
			continue;
		start_device();
		CHECK(cuModuleLoadData(&module, ptx));
		CHECK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
		CHECK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
		faults[i].run();
		return 0;
	}
	fprintf(stderr, "usage: faults NAME [--fixed]\n");
	return 2;
}
