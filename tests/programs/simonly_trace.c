/*
 * Launches that the simulator traces: which one ttSimTraceNext means, a ring that is emptied while the kernel
 * runs, and heartbeats of a kernel that waits for the host, or (with the argument "deadlock") for its own threads.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "format.h"
#include "program.h"
#include "sim_trace.h"

#define TURNS 10000
#define THREADS 64

/* As many turns as p says, which may change meanwhile. */
static const char turns_ptx[] =
	PTX_HEADER
	".visible .entry turns(.param .u64 p)\n{\n"
	".reg .pred %q; .reg .b32 %r<4>; .reg .b64 %rd<2>;\n"
	"ld.param.u64 %rd1, [p];\nmov.u32 %r1, 0;\n"
	"LOOP: add.u32 %r1, %r1, 1;\n"
	"ld.volatile.global.u32 %r2, [%rd1];\n"
	"setp.lt.u32 %q, %r1, %r2;\n"
	"@%q bra LOOP;\nret;\n}\n";

/* The warps wait at different barriers; the third one exits. */
static const char apart_ptx[] =
	PTX_HEADER
	".visible .entry apart()\n{\n"
	".reg .pred %q; .reg .b32 %r<3>;\n"
	"mov.u32 %r1, %tid.x;\nsetp.gt.u32 %q, %r1, 63;\n@%q exit;\nshr.u32 %r2, %r1, 5;\n"
	"bar.sync %r2;\nret;\n}\n";

static CUcontext context;
static CUfunction turns;
static CUdeviceptr word, control, base;
static size_t ring_bytes;
static tt_sim_trace_next *trace_next;
static uint64_t taken, broken;
static atomic_bool finished;

static CUdeviceptr map_twice(size_t *bytes)
{
	CUmemAllocationProp own = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle memory;
	CUdeviceptr at;

	OK(cuMemGetAllocationGranularity(bytes, &own, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	OK(cuMemCreate(&memory, *bytes, &own, 0));
	OK(cuMemAddressReserve(&at, 2 * *bytes, 0, 0, 0));
	OK(cuMemMap(at, *bytes, 0, memory, 0));
	OK(cuMemMap(at + *bytes, *bytes, 0, memory, 0));
	OK(cuMemSetAccess(at, 2 * *bytes, &access, 1));
	OK(cuMemsetD8(at, 0, *bytes));
	return at;
}

/* Records at the loop's four lines. */
static void trace_launch(unsigned kinds, CUdeviceptr heartbeat)
{
	uint8_t lines[32] = {0};
	struct tt_sim_trace trace = {
		.param = {control, base, ring_bytes, 0, heartbeat, 5, 0, 0, UINT64_MAX},
		.lines = lines,
		.line_count = sizeof lines,
	};
	unsigned line = 1;

	for (const char *c = turns_ptx; *c; line += *c++ == '\n')
		if (!strncmp(c, "LOOP:", 5))
			break;
	for (unsigned i = 0; i < 4; i++)
		lines[line + i] = (uint8_t)kinds;
	trace_next(&trace);
	memset(lines, 0xff, sizeof lines);
}

static struct tt_trace_ring ring_now(CUstream stream)
{
	struct tt_trace_ring ring;

	OK(cuMemcpyDtoHAsync(&ring, control, sizeof ring, stream));
	OK(cuStreamSynchronize(stream));
	return ring;
}

/* Takes what is complete and makes room, as the recorder does. */
static void drain(CUstream stream, unsigned char *copy)
{
	struct tt_trace_ring ring = ring_now(stream);
	size_t bytes = ring.head - ring.tail < ring_bytes ? ring.head - ring.tail : ring_bytes, at = 0;

	if (!bytes)
		return;
	OK(cuMemcpyDtoHAsync(copy, base + ring.tail % ring_bytes, bytes, stream));
	OK(cuStreamSynchronize(stream));
	for (const struct tt_trace_record *r; at < bytes; at += (r->tag >> 16) * 8) {
		r = (const void *)(copy + at);
		if (!r->tag)
			break;
		broken += (r->tag & 0xff) != TT_TRACE_OPCODE || r->launch != 5 || r->mask != UINT32_MAX;
		taken++;
	}
	if (!at)
		return;
	ring.tail += at;
	OK(cuMemsetD8Async(base + (ring.tail - at) % ring_bytes, 0, at, stream));
	OK(cuMemcpyHtoDAsync(control + offsetof(struct tt_trace_ring, tail), &ring.tail, sizeof ring.tail, stream));
	OK(cuStreamSynchronize(stream));
}

static void *drain_all(void *unused)
{
	unsigned char *copy = malloc(ring_bytes);
	CUstream stream;

	OK(cuCtxSetCurrent(context));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	while (!finished)
		drain(stream, copy);
	drain(stream, copy);
	free(copy);
	return unused;
}

static void run(uint32_t until)
{
	OK(cuMemcpyHtoD(word, &until, sizeof until));
	OK(cuLaunchKernel(turns, 1, 1, 1, THREADS, 1, 1, 0, NULL, PARAMS(&word), NULL));
	OK(cuCtxSynchronize());
}

static void show_records(const char *what)
{
	static uint64_t before;
	struct tt_trace_ring ring = ring_now(NULL);

	printf("%s: %llu records, %llu lost\n", what, (unsigned long long)(ring.head - before) / sizeof(struct tt_trace_record),
	       (unsigned long long)ring.lost);
	before = ring.head;
}

static void show_which_launch(void)
{
	CUstream stream;
	CUgraph graph;

	trace_launch(1u << TT_TRACE_OPCODE, 0);
	run(3);
	show_records("the next launch");
	run(3);
	show_records("the one after it");
	trace_launch(1u << TT_TRACE_OPCODE, 0);
	SHOW(cuLaunchKernel(turns, 0, 1, 1, THREADS, 1, 1, 0, NULL, PARAMS(&word), NULL));
	run(3);
	show_records("after a launch that failed");
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	trace_launch(1u << TT_TRACE_OPCODE, 0);
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	OK(cuLaunchKernel(turns, 1, 1, 1, THREADS, 1, 1, 0, stream, PARAMS(&word), NULL));
	OK(cuStreamEndCapture(stream, &graph));
	run(3);
	show_records("after a captured launch");
}

static void show_full_ring(void)
{
	pthread_t thread;
	size_t records = TURNS * 4 * THREADS / 32;

	taken = 0;
	pthread_create(&thread, NULL, drain_all, NULL);
	trace_launch(1u << TT_TRACE_OPCODE, 0);
	run(TURNS);
	finished = true;
	pthread_join(thread, NULL);
	show_records("a full ring");
	printf("more than it holds: %d, taken: %llu, broken: %llu\n", records * sizeof(struct tt_trace_record) > ring_bytes,
	       (unsigned long long)taken, (unsigned long long)broken);
}

static struct tt_heartbeat *beats_now(CUdeviceptr beats, CUstream stream)
{
	static struct tt_heartbeat seen[3];

	OK(cuMemcpyDtoHAsync(seen, beats, sizeof seen, stream));
	OK(cuStreamSynchronize(stream));
	return seen;
}

static void show_deadlock(void)
{
	CUdeviceptr beats = allocate(3 * sizeof(struct tt_heartbeat));
	const struct tt_heartbeat *seen;
	CUstream stream;
	CUmodule module;

	OK(cuModuleLoadData(&module, apart_ptx));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemsetD8(beats, 0, 3 * sizeof *seen));
	trace_launch(0, beats);
	OK(cuLaunchKernel(get_kernel(module, "apart"), 1, 1, 1, 96, 1, 1, 0, NULL, NULL, NULL));
	do
		seen = beats_now(beats, stream);
	while (seen[0].state != TT_WARP_AT_BARRIER || seen[1].state != TT_WARP_AT_BARRIER);
	printf("deadlock: the third has state %u; ", seen[2].state);
	SHOW(cuStreamQuery(NULL));
}

static void show_heartbeat(void)
{
	CUdeviceptr beats = allocate(3 * sizeof(struct tt_heartbeat));
	const struct tt_heartbeat *seen;
	uint32_t never = UINT32_MAX, now = 1;
	CUstream stream;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemsetD8(beats, 0, 3 * sizeof *seen));
	OK(cuMemcpyHtoD(word, &never, sizeof never));
	trace_launch(0, beats);
	OK(cuLaunchKernel(turns, 1, 1, 1, THREADS, 1, 1, 0, NULL, PARAMS(&word), NULL));
	do
		seen = beats_now(beats, stream);
	while (!seen[0].count || !seen[1].count);
	printf("while it runs: states %u and %u\n", seen[0].state, seen[1].state);
	OK(cuMemcpyHtoDAsync(word, &now, sizeof now, stream));
	OK(cuCtxSynchronize());
	seen = beats_now(beats, stream);
	printf("at its end: states %u and %u\n", seen[0].state, seen[1].state);
}

int main(int count, char **arguments)
{
	CUmodule module;

	start();
	OK(cuCtxGetCurrent(&context));
	trace_next = (tt_sim_trace_next *)(uintptr_t)dlsym(RTLD_DEFAULT, "ttSimTraceNext");
	OK(cuModuleLoadData(&module, turns_ptx));
	turns = get_kernel(module, "turns");
	word = allocate(sizeof(uint32_t));
	control = allocate(sizeof(struct tt_trace_ring));
	OK(cuMemsetD8(control, 0, sizeof(struct tt_trace_ring)));
	base = map_twice(&ring_bytes);
	if (count > 1 && !strcmp(arguments[1], "deadlock")) {
		show_deadlock();
		return 0;
	}
	show_which_launch();
	show_full_ring();
	show_heartbeat();
	return 0;
}
