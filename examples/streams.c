/*
 * Work in many streams at once: kernels, copies and sets that each write a whole buffer, drawn by
 * lot, in streams drawn by lot, in an order that events keep only as far as they must. All streams
 * are there: the two default ones, those that are in order with these and those that are not.
 *
 * Every element of a buffer has the same value at any time between two writes, and it is known
 * which: whoever sees a buffer with two values in it, or with those of a moment ago in one and of
 * this moment in another, has looked while it was written. examples/demos/streams.py does that.
 *
 * --async: buffers are given back and allocated anew in the midst of it, in the order of streams.
 * --host: host functions stand between.
 * --graphs: some kernels are launched as graphs, one for each stream, that are changed before.
 */
#include "common.h"

#define MOST_STREAMS 64
#define MOST_BUFFERS 256
#define NOBODY (-1)

EMBED(ptx, "streams.ptx");

struct stream {
	CUstream handle;
	bool legacy;   /* the default stream that waits for others and they for it... */
	bool blocking; /* ...namely for those that are this */
	CUgraphExec graph; /* of one kernel, or NULL */
};

struct buffer {
	CUdeviceptr data;
	uint32_t value; /* of every element, once all that was submitted is through */
	int writer;     /* stream of the last write, or NOBODY */
	CUevent written;
	bool read[MOST_STREAMS]; /* in this stream, since the last write */
	CUevent been_read[MOST_STREAMS];
};

static struct stream streams[MOST_STREAMS];
static struct buffer buffers[MOST_BUFFERS];
static uint32_t writes; /* so far */
static uint32_t chance;
static int calls; /* of the host function, one at a time */

static long pick(long count)
{
	return (long)(next_random(&chance) * (float)count);
}

/* Of the write that comes now: different for each. */
static uint32_t next_stamp(void)
{
	return ++writes * 2654435761u;
}

/* As the kernels do it. */
static uint32_t turned(uint32_t value, long rounds)
{
	while (rounds-- > 0)
		value = value * 1664525u + 1013904223u;
	return value;
}

static void count_call(void *unused)
{
	(void)unused;
	__atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
}

static void make_streams(long count)
{
	streams[0] = (struct stream){CU_STREAM_LEGACY, true, true, NULL};
	streams[1] = (struct stream){CU_STREAM_PER_THREAD, false, true, NULL};
	for (long i = 2; i < count; i++) {
		streams[i].blocking = i % 2 == 0;
		CHECK(cuStreamCreate(&streams[i].handle, streams[i].blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
	}
}

/* The default streams hold up many others: they come seldom. */
static int pick_stream(long count)
{
	return (int)(pick(12) ? 2 + pick(count - 2) : pick(2));
}

/* What comes in stream `to` comes after the event, which was recorded in stream `from`. */
static void wait_for(int to, int from, CUevent event)
{
	const struct stream *a = &streams[to], *b = &streams[from];
	bool in_order = to == from || ((a->legacy || b->legacy) && a->blocking && b->blocking);

	if (!in_order)
		CHECK(cuStreamWaitEvent(a->handle, event, 0));
}

static void before_reading(int stream, const struct buffer *b)
{
	if (b->writer != NOBODY)
		wait_for(stream, b->writer, b->written);
}

static void after_reading(int stream, struct buffer *b)
{
	CHECK(cuEventRecord(b->been_read[stream], streams[stream].handle));
	b->read[stream] = true;
}

static void before_writing(int stream, struct buffer *b, long count)
{
	before_reading(stream, b);
	for (int i = 0; i < count; i++) {
		if (b->read[i])
			wait_for(stream, i, b->been_read[i]);
		b->read[i] = false;
	}
}

static void after_writing(int stream, struct buffer *b, uint32_t value)
{
	CHECK(cuEventRecord(b->written, streams[stream].handle));
	b->writer = stream;
	b->value = value;
}

static CUDA_KERNEL_NODE_PARAMS node_params(CUfunction f, long count, void **params)
{
	return (CUDA_KERNEL_NODE_PARAMS){
		.func = f, .gridDimX = (unsigned)BLOCKS(count), .gridDimY = 1, .gridDimZ = 1,
		.blockDimX = 256, .blockDimY = 1, .blockDimZ = 1, .kernelParams = params,
	};
}

static long wrong_elements(const struct buffer *b, uint32_t *out, long n)
{
	long wrong = 0;

	CHECK(cuMemcpyDtoH(out, b->data, (size_t)n * sizeof(*out)));
	for (long i = 0; i < n; i++)
		wrong += out[i] != b->value;
	return wrong;
}

int main(int argc, char **argv)
{
	long stream_count = 8, buffer_count = 16, turns = 3, wrong = 0;
	bool async = false, host = false, graphs = false;
	struct own_option own[] = {
		{"--streams", &stream_count, NULL}, {"--buffers", &buffer_count, NULL}, {"--rounds", &turns, NULL},
		{"--async", NULL, &async}, {"--host", NULL, &host}, {"--graphs", NULL, &graphs}, {NULL, NULL, NULL},
	};
	struct options o = read_options(argc, argv, (struct options){.size = 4096, .steps = 200, .seed = 1, .own = own});
	size_t bytes = (size_t)o.size * sizeof(uint32_t);
	int n = (int)o.size, rounds = (int)turns;
	uint64_t total = 0;
	CUmodule module;

	if (stream_count < 3 || stream_count > MOST_STREAMS || buffer_count < 3 || buffer_count > MOST_BUFFERS)
		usage(argv[0], &o, 2);
	chance = (uint32_t)o.seed;
	uint32_t *out = malloc(bytes);
	start_device();
	CHECK(cuModuleLoadData(&module, ptx));
	CUfunction advance = kernel(module, "advance"), combine = kernel(module, "combine");
	make_streams(stream_count);
	for (struct buffer *b = buffers; b < buffers + buffer_count; b++) {
		if (async)
			CHECK(cuMemAllocAsync(&b->data, bytes, streams[0].handle));
		else
			CHECK(cuMemAlloc(&b->data, bytes));
		CHECK(cuEventCreate(&b->written, CU_EVENT_DISABLE_TIMING));
		for (long i = 0; i < stream_count; i++)
			CHECK(cuEventCreate(&b->been_read[i], CU_EVENT_DISABLE_TIMING));
		b->value = next_stamp();
		b->writer = NOBODY;
		CHECK(cuMemsetD32(b->data, b->value, (size_t)n));
	}
	CUgraph graph;
	CUgraphNode node;
	CUDA_KERNEL_NODE_PARAMS usual = node_params(advance, o.size, PARAMS(&buffers[0].data, &n, &writes, &rounds));
	CHECK(cuGraphCreate(&graph, 0));
	CHECK(cuGraphAddKernelNode(&node, graph, NULL, 0, &usual));
	for (long i = 0; graphs && i < stream_count; i++)
		CHECK(cuGraphInstantiate(&streams[i].graph, graph, 0));
	CHECK(cuCtxSynchronize());

	for (long step = 0; step < o.steps; step++) {
		int s = pick_stream(stream_count);
		CUstream stream = streams[s].handle;
		struct buffer *to = &buffers[pick(buffer_count)];
		struct buffer *a = &buffers[pick(buffer_count)], *b = &buffers[pick(buffer_count)];
		bool anew = async && !pick(8);
		long what = anew ? 9 : pick(10);

		if (host && !pick(16))
			CHECK(cuLaunchHostFunc(stream, count_call, NULL));
		before_writing(s, to, stream_count);
		if (anew) {
			CHECK(cuMemFreeAsync(to->data, stream));
			CHECK(cuMemAllocAsync(&to->data, bytes, stream));
		}
		uint32_t stamp = next_stamp(), value = stamp;
		if (what < 4) {
			void **params = PARAMS(&to->data, &n, &stamp, &rounds);
			value += turned(to->value, turns);
			if (graphs && what < 2) {
				CUDA_KERNEL_NODE_PARAMS changed = node_params(advance, o.size, params);
				CHECK(cuGraphExecKernelNodeSetParams(streams[s].graph, node, &changed));
				CHECK(cuGraphLaunch(streams[s].graph, stream));
			} else {
				launch(advance, o.size, stream, params);
			}
		} else if (what < 7) {
			before_reading(s, a);
			before_reading(s, b);
			value += turned(a->value ^ b->value, turns);
			launch(combine, o.size, stream, PARAMS(&to->data, &a->data, &b->data, &n, &stamp, &rounds));
			after_reading(s, a);
			after_reading(s, b);
		} else if (what < 9 && a != to) {
			before_reading(s, a);
			value = a->value;
			CHECK(cuMemcpyDtoDAsync(to->data, a->data, bytes, stream));
			after_reading(s, a);
		} else {
			CHECK(cuMemsetD32Async(to->data, stamp, (size_t)n, stream));
		}
		after_writing(s, to, value);
	}

	CHECK(cuCtxSynchronize());
	for (struct buffer *b = buffers; b < buffers + buffer_count; b++) {
		wrong += wrong_elements(b, out, o.size);
		total = total * 31 + b->value;
	}
	if (host)
		printf("streams: %d calls of the host\n", calls);
	printf("streams: %u writes to %ld buffers of %ld in %ld streams, checksum %016llx, %ld elements wrong\n",
	       (unsigned)writes, buffer_count, o.size, stream_count, (unsigned long long)total, wrong);
	for (struct buffer *b = buffers; b < buffers + buffer_count; b++) {
		if (async)
			CHECK(cuMemFreeAsync(b->data, streams[0].handle));
		else
			CHECK(cuMemFree(b->data));
		CHECK(cuEventDestroy(b->written));
		for (long i = 0; i < stream_count; i++)
			CHECK(cuEventDestroy(b->been_read[i]));
	}
	for (long i = 0; graphs && i < stream_count; i++)
		CHECK(cuGraphExecDestroy(streams[i].graph));
	CHECK(cuGraphDestroy(graph));
	for (long i = 2; i < stream_count; i++)
		CHECK(cuStreamDestroy(streams[i].handle));
	CHECK(cuDevicePrimaryCtxRelease(0));
	free(out);
	return wrong != 0;
}
