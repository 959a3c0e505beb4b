/*
 * Checks and times the capture kernels on a GPU, without the recorder around them.
 *
 *     nvcc -O2 -arch=sm_90 -I../interpose/capture kernels.cu -o kernels
 *     ./kernels [--gib N] [--runs N] [--no-check] FILE.ptx...
 *
 * Each PTX file is one variant (build_ptx.py -o FILE -D NAME=VALUE); all are checked against
 * the host's XXH3 and measured in one process. Prints one JSON object; exits 1 on any failure.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <string>
#include <vector>

#include <cuda.h>
#include <cuda_runtime.h>

#include "kernels.h"
#include "xxh3.h"

#define TRY(call) try_runtime((call), #call, __LINE__)
#define TRY_DRIVER(call) try_driver((call), #call, __LINE__)
#define CHECK(condition, ...) check((condition), __LINE__, __VA_ARGS__)

static const char *variant_name = "";
static int failures;

static void try_runtime(cudaError_t error, const char *what, int line)
{
	if (error == cudaSuccess)
		return;
	fprintf(stderr, "%s: line %d: %s: %s\n", variant_name, line, what, cudaGetErrorString(error));
	exit(1);
}

static void try_driver(CUresult error, const char *what, int line)
{
	if (error == CUDA_SUCCESS)
		return;
	fprintf(stderr, "%s: line %d: %s: CUDA error %d\n", variant_name, line, what, (int)error);
	exit(1);
}

template <typename... Args> static bool check(bool condition, int line, const char *format, Args... args)
{
	if (condition)
		return true;
	if (failures++ < 20) {
		fprintf(stderr, "%s: line %d: ", variant_name, line);
		fprintf(stderr, format, args...);
		fputc('\n', stderr);
	}
	return false;
}

/* ---- the driver calls needed, without linking to libcuda ---- */

static struct {
	CUresult (*load)(CUmodule *, const void *);
	CUresult (*function)(CUfunction *, CUmodule, const char *);
	CUresult (*attribute)(int *, CUfunction_attribute, CUfunction);
	CUresult (*occupancy)(int *, CUfunction, int, size_t);
	CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
	                   void **, void **);
} cu;

static void find_driver(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	*(void **)&cu.load = dlsym(library, "cuModuleLoadData");
	*(void **)&cu.function = dlsym(library, "cuModuleGetFunction");
	*(void **)&cu.attribute = dlsym(library, "cuFuncGetAttribute");
	*(void **)&cu.occupancy = dlsym(library, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
	*(void **)&cu.launch = dlsym(library, "cuLaunchKernel");
}

struct kernel {
	CUfunction function;
	int threads, registers, spilled, ctas; /* ctas: that fill the device */
};

struct variant {
	kernel digest, digest_small, gather;
};

static int multiprocessors;

static kernel load_kernel(CUmodule module, const char *name)
{
	kernel k;
	int per_sm;

	TRY_DRIVER(cu.function(&k.function, module, name));
	TRY_DRIVER(cu.attribute(&k.threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, k.function));
	TRY_DRIVER(cu.attribute(&k.registers, CU_FUNC_ATTRIBUTE_NUM_REGS, k.function));
	TRY_DRIVER(cu.attribute(&k.spilled, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, k.function));
	TRY_DRIVER(cu.occupancy(&per_sm, k.function, k.threads, 0));
	k.ctas = per_sm * multiprocessors;
	return k;
}

static variant load_variant(const char *path)
{
	FILE *file = fopen(path, "rb");
	std::string text;
	CUmodule module;
	char buffer[65536];

	if (!file) {
		perror(path);
		exit(1);
	}
	for (size_t n; (n = fread(buffer, 1, sizeof buffer, file)) > 0;)
		text.append(buffer, n);
	fclose(file);
	TRY_DRIVER(cu.load(&module, text.c_str()));
	return { load_kernel(module, TT_KERNEL_DIGEST), load_kernel(module, TT_KERNEL_DIGEST_SMALL),
		     load_kernel(module, TT_KERNEL_GATHER) };
}

template <typename P> static void launch(const kernel &k, P params, uint64_t work, int ctas = 0)
{
	void *arguments[] = { &params };
	uint64_t grid = std::max<uint64_t>(1, std::min<uint64_t>(ctas ? ctas : k.ctas, work));

	TRY_DRIVER(cu.launch(k.function, (unsigned)grid, 1, 1, k.threads, 1, 1, 0, 0, arguments, 0));
}

/* ---- a set of regions with all that an epoch needs ---- */

static uint64_t random_state = 0x853c49e6748fea9bull;

static uint64_t random_word(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

__global__ void fill(uint64_t *p, uint64_t words, uint64_t seed)
{
	for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < words; i += (uint64_t)gridDim.x * blockDim.x) {
		uint64_t x = (i + seed) * 0x9e3779b97f4a7c15ull;

		p[i] = x ^ x >> 29 ^ x << 31;
	}
}

struct bed {
	bool host; /* ring, list and control in pinned host memory */
	std::vector<tt_capture_region> regions;
	tt_capture_params params = {};
	volatile tt_capture_status *status;
	uint64_t expected_head = 0;
	bool small; /* TT_KERNEL_DIGEST_SMALL */
};

static uint64_t allocate(uint64_t size, bool host)
{
	void *p, *device;

	if (!host) {
		TRY(cudaMalloc(&p, size));
		TRY(cudaMemset(p, 0xa5, size));
		return (uint64_t)p;
	}
	TRY(cudaHostAlloc(&p, size, cudaHostAllocMapped));
	memset(p, 0xa5, size);
	TRY(cudaHostGetDevicePointer(&device, p, 0));
	return (uint64_t)device;
}

static void release(uint64_t p, bool host)
{
	if (host)
		TRY(cudaFreeHost((void *)p));
	else
		TRY(cudaFree((void *)p));
}

/* Regions as (base, size), digests and bookkeeping; a ring of ring_size. */
static bed make_bed(const std::vector<std::pair<uint64_t, uint64_t>> &spans, uint64_t ring_size, bool host)
{
	bed b;
	uint64_t blocks = 0, payload = 0, digests;
	tt_capture_control zero = {};
	void *p;

	b.host = host;
	for (auto [base, size] : spans) {
		uint64_t n = (size + TT_BLOCK_SIZE - 1) / TT_BLOCK_SIZE;
		tt_capture_region r = {};

		r.base = base;
		r.size = size;
		r.first_block = (uint32_t)blocks;
		r.payload = payload;
		r.region = 1000 + (uint32_t)b.regions.size();
		b.regions.push_back(r);
		blocks += n;
		payload += (n - 1) * TT_BLOCK_SIZE + tt_payload_size(size - (n - 1) * TT_BLOCK_SIZE);
	}
	digests = allocate(blocks * 8, false);
	for (auto &r : b.regions)
		r.digests = digests + 8ull * r.first_block;
	b.params.regions = allocate(b.regions.size() * sizeof(tt_capture_region), false);
	TRY(cudaMemcpy((void *)b.params.regions, b.regions.data(), b.regions.size() * sizeof(tt_capture_region),
	               cudaMemcpyDefault));
	b.params.control = allocate(sizeof(tt_capture_control), host);
	TRY(cudaMemcpy((void *)b.params.control, &zero, sizeof zero, cudaMemcpyDefault));
	b.params.scratch = allocate(blocks * sizeof(tt_chunk_entry), host);
	b.params.ring = allocate(ring_size, host);
	b.params.ring_size = ring_size;
	TRY(cudaHostAlloc(&p, sizeof(tt_capture_status), cudaHostAllocMapped));
	memset(p, 0, sizeof(tt_capture_status));
	b.status = (volatile tt_capture_status *)p;
	TRY(cudaHostGetDevicePointer(&p, p, 0));
	b.params.status = (uint64_t)p;
	b.params.payload = payload;
	b.params.region_count = (uint32_t)b.regions.size();
	b.params.blocks = (uint32_t)blocks;
	b.params.last = TT_CAPTURE_LAST;
	b.small = tt_digest_small(blocks, payload, (uint64_t)multiprocessors);
	return b;
}

static void free_bed(bed &b)
{
	release(b.regions[0].digests, false);
	release(b.params.regions, false);
	release(b.params.control, b.host);
	release(b.params.scratch, b.host);
	release(b.params.ring, b.host);
	TRY(cudaFreeHost((void *)b.status));
}

static void begin_epoch(bed &b)
{
	b.params.epoch++;
	b.params.part = 0;
	b.params.first = 0;
	b.params.last = TT_CAPTURE_LAST;
}

static tt_capture_status wait_status(bed &b)
{
	tt_capture_status s;

	TRY(cudaDeviceSynchronize());
	memcpy(&s, (const void *)b.status, sizeof s);
	CHECK(s.sequence == b.params.sequence, "status sequence %llu, not %llu", (unsigned long long)s.sequence,
	      (unsigned long long)b.params.sequence);
	CHECK(s.epoch == b.params.epoch && s.part == b.params.part, "status of epoch %u part %u", s.epoch, s.part);
	return s;
}

static tt_capture_status gather(const variant &v, bed &b, int ctas)
{
	b.params.sequence++;
	launch(v.gather, b.params, b.params.blocks, ctas);
	return wait_status(b);
}

static const kernel &digest_of(const variant &v, const bed &b)
{
	return b.small ? v.digest_small : v.digest;
}

static tt_capture_status capture(const variant &v, bed &b, bool full, int ctas)
{
	begin_epoch(b);
	b.params.sequence++;
	b.params.flags = full ? TT_CAPTURE_FULL : 0;
	launch(digest_of(v, b), b.params, b.params.blocks, ctas);
	b.params.flags = 0;
	if (!full)
		launch(v.gather, b.params, b.params.blocks, ctas);
	return wait_status(b);
}

/* ---- correctness ---- */

#define ARENA (24ull << 20)

struct fixture {
	uint64_t arena;             /* device */
	std::vector<uint8_t> bytes; /* what it holds */
};

static void check_chunk(const fixture &f, bed &b, const tt_capture_status &s, std::vector<bool> &seen)
{
	uint64_t at = s.position % b.params.ring_size, rest = b.params.ring_size - b.expected_head % b.params.ring_size;
	uint64_t sum = 0;
	std::vector<uint8_t> chunk(s.size);
	tt_chunk header, wrap;

	if (!CHECK(!(s.flags & TT_CAPTURE_OVERFLOW) && s.size <= b.params.ring_size, "overflow of %llu bytes",
	           (unsigned long long)s.size))
		return;
	if (s.position != b.expected_head) {
		TRY(cudaMemcpy(&wrap, (void *)(b.params.ring + b.expected_head % b.params.ring_size), sizeof wrap,
		               cudaMemcpyDefault));
		CHECK(s.position == b.expected_head + rest && s.size > rest, "chunk at %llu after head %llu",
		      (unsigned long long)s.position, (unsigned long long)b.expected_head);
		CHECK(wrap.magic == TT_CHUNK_MAGIC && wrap.kind == TT_CHUNK_WRAP && wrap.position == b.expected_head &&
		          wrap.size == rest && wrap.check == tt_chunk_mix(&wrap),
		      "wrap header at %llu", (unsigned long long)b.expected_head);
	}
	b.expected_head = s.position + s.size;
	TRY(cudaMemcpy(chunk.data(), (void *)(b.params.ring + at), s.size, cudaMemcpyDefault));
	memcpy(&header, chunk.data(), sizeof header);
	if (!CHECK(header.magic == TT_CHUNK_MAGIC && header.kind == TT_CHUNK_EPOCH && header.epoch == s.epoch &&
	               header.part == s.part && header.position == s.position && header.size == s.size &&
	               header.count == s.count && header.payload == tt_chunk_payload(s.count) &&
	               header.size == tt_chunk_size(s.count, s.payload) && header.check == tt_chunk_mix(&header),
	           "header of epoch %u", s.epoch))
		return;
	for (uint64_t i = 0; i < header.count; i++) {
		tt_chunk_entry e;

		memcpy(&e, chunk.data() + sizeof header + i * sizeof e, sizeof e);
		sum += tt_entry_mix(&e);
		if (!CHECK(e.region >= 1000 && e.region - 1000 < b.regions.size() && !e.more, "entry %llu",
		           (unsigned long long)i))
			return;
		const tt_capture_region &r = b.regions[e.region - 1000];
		uint64_t from = r.base - f.arena + (uint64_t)e.block * TT_BLOCK_SIZE;
		uint64_t length = std::min<uint64_t>(TT_BLOCK_SIZE, r.size - (uint64_t)e.block * TT_BLOCK_SIZE);

		CHECK(e.length == length && e.offset % TT_CHUNK_ALIGN == 0 && e.offset + length <= s.payload,
		      "entry %llu: offset %llu length %u", (unsigned long long)i, (unsigned long long)e.offset, e.length);
		CHECK(e.digest == xxh3_64(&f.bytes[from], length), "region %u (base %% 16 = %u, size %llu) block %u: digest",
		      e.region, (unsigned)(r.base % 16), (unsigned long long)r.size, e.block);
		CHECK(!memcmp(&f.bytes[from], chunk.data() + header.payload + e.offset, length),
		      "region %u (base %% 16 = %u, size %llu) block %u: contents", e.region, (unsigned)(r.base % 16),
		      (unsigned long long)r.size, e.block);
		CHECK(!seen[r.first_block + e.block], "region %u block %u twice", e.region, e.block);
		seen[r.first_block + e.block] = true;
	}
	CHECK(sum == header.entries_check && sum == s.entries_check, "entries check of epoch %u", s.epoch);
}

/* Changes single bytes of the arena and says which blocks of the regions that touches. */
static std::vector<bool> change_some(fixture &f, const bed &b, int permille)
{
	std::vector<bool> changed(b.params.blocks);

	for (const auto &r : b.regions)
		for (uint64_t at = 0; at < r.size; at += TT_BLOCK_SIZE) {
			uint64_t length = std::min<uint64_t>(TT_BLOCK_SIZE, r.size - at), which = random_word() % 3;
			uint64_t i = r.base - f.arena + at + (which == 0 ? 0 : which == 1 ? length - 1 : random_word() % length);

			if (random_word() % 1000 >= (uint64_t)permille)
				continue;
			f.bytes[i] ^= 1 << random_word() % 8;
			changed[r.first_block + at / TT_BLOCK_SIZE] = true;
		}
	TRY(cudaMemcpy((void *)f.arena, f.bytes.data(), ARENA, cudaMemcpyDefault));
	return changed;
}

/* After an overflow: the rest of the epoch in parts, as small as the ring demands. */
static void drain_in_parts(const variant &v, const fixture &f, bed &b, uint64_t count, std::vector<bool> &seen, int ctas)
{
	uint64_t step = std::max<uint64_t>(1, count / 3);

	b.params.part = 0;
	for (uint64_t first = 0; first < count;) {
		b.params.first = (uint32_t)first;
		b.params.last = (uint32_t)std::min(count, first + step);
		b.params.tail = b.expected_head;
		tt_capture_status s = gather(v, b, ctas);

		if (s.flags & TT_CAPTURE_OVERFLOW) {
			CHECK(s.count == count, "list of %llu, not %llu", (unsigned long long)s.count, (unsigned long long)count);
			if (!CHECK(step > 1, "a part of one block does not fit"))
				return;
			step = (step + 1) / 2;
			continue;
		}
		check_chunk(f, b, s, seen);
		CHECK(!(s.flags & TT_CAPTURE_FINAL) == (b.params.last < count), "final flag of part %u", b.params.part);
		first = b.params.last;
		b.params.part++;
	}
}

static void check_variant(const variant &v, bool host, int ctas, bool small = false)
{
	static const uint64_t sizes[] = { 1, 2, 3, 4, 8, 9, 16, 17, 32, 100, 128, 129, 200, 240, 241, 256, 257, 319, 320, 321,
		                              1000, 1023, 1024, 1025, 1088, 1089, 2048, 4000, 4095, 4096, 4097, 8192, 12288, 20000,
		                              65535, 65536, 65537, 65536 + 100, 131072, 200000, 196608 + 4096, 1000003 };
	static const uint64_t shifts[] = { 0, 1, 2, 4, 8, 12, 15 };
	std::vector<std::pair<uint64_t, uint64_t>> spans;
	fixture f;
	uint64_t at = 0;

	f.arena = allocate(ARENA, false);
	f.bytes.resize(ARENA);
	for (auto &byte : f.bytes)
		byte = (uint8_t)(random_word() >> 32);
	TRY(cudaMemcpy((void *)f.arena, f.bytes.data(), ARENA, cudaMemcpyDefault));
	for (uint64_t size : sizes)
		for (uint64_t shift : shifts) {
			spans.push_back({ f.arena + at + shift, size });
			at = tt_round_up(at + shift + size + 2, 16);
		}
	CHECK(at <= ARENA, "arena too small: %llu", (unsigned long long)at);

	bed b = make_bed(spans, 32ull << 20, host);
	b.small = small;
	std::vector<bool> all(b.params.blocks, true), none(b.params.blocks, false), seen = none, changed;
	tt_capture_status s = capture(v, b, true, ctas);

	check_chunk(f, b, s, seen);
	CHECK(seen == all, "a full epoch lacks blocks");
	for (int permille : { 0, 20, 500, 1000, 100, 900, 300 }) {
		b.params.tail = b.expected_head; /* the ring wraps on the way */
		changed = change_some(f, b, permille);
		seen = none;
		check_chunk(f, b, capture(v, b, false, ctas), seen);
		CHECK(seen == changed, "a delta epoch with %d permille lists other blocks than changed", permille);
	}
	/* Full ring: nothing is lost, and a part of the ring's room suffices. */
	changed = change_some(f, b, 1000);
	b.params.tail = b.expected_head - b.params.ring_size + 4096;
	s = capture(v, b, false, ctas);
	CHECK(s.flags == TT_CAPTURE_OVERFLOW && s.count == b.params.blocks, "overflow: flags %u count %llu", s.flags,
	      (unsigned long long)s.count);
	seen = none;
	drain_in_parts(v, f, b, s.count, seen, ctas);
	CHECK(seen == all, "parts lack blocks");
	/* Discarded: the changes come again. */
	changed = change_some(f, b, 300);
	b.params.tail = b.expected_head - b.params.ring_size;
	s = capture(v, b, false, ctas);
	CHECK(s.flags == TT_CAPTURE_OVERFLOW, "no overflow of a full ring");
	b.params.flags = TT_CAPTURE_DISCARD;
	s = gather(v, b, ctas);
	CHECK(s.flags == (TT_CAPTURE_DISCARDED | TT_CAPTURE_FINAL), "discard: flags %u", s.flags);
	b.params.tail = b.expected_head;
	seen = none;
	check_chunk(f, b, capture(v, b, false, ctas), seen);
	CHECK(seen == changed, "discarded changes did not come again");
	free_bed(b);

	/* A full epoch larger than the ring. */
	b = make_bed(spans, 4ull << 20, host);
	b.small = small;
	s = capture(v, b, true, ctas);
	CHECK(s.flags == TT_CAPTURE_OVERFLOW && s.count == b.params.blocks && s.payload == b.params.payload,
	      "full overflow: flags %u", s.flags);
	seen = none;
	drain_in_parts(v, f, b, s.count, seen, ctas);
	CHECK(seen == all, "parts of a full epoch lack blocks");
	seen = none;
	b.params.tail = b.expected_head;
	check_chunk(f, b, capture(v, b, false, ctas), seen);
	CHECK(seen == none, "a delta after a full epoch lists blocks");
	free_bed(b);
	release(f.arena, false);
}

/* ---- times ---- */

static int runs = 21;
static cudaEvent_t before, after;

/* Median of microseconds; prepare runs outside the timed part. */
template <typename Prepare, typename Work> static double measure(Prepare prepare, Work work)
{
	std::vector<float> times;

	for (int i = 0; i < runs + 2; i++) {
		float milliseconds;

		prepare();
		TRY(cudaEventRecord(before));
		work();
		TRY(cudaEventRecord(after));
		TRY(cudaEventSynchronize(after));
		TRY(cudaEventElapsedTime(&milliseconds, before, after));
		if (i >= 2)
			times.push_back(milliseconds * 1000);
	}
	std::sort(times.begin(), times.end());
	return times[times.size() / 2];
}

__global__ void __launch_bounds__(256) read_all(const ulonglong2 *p, uint64_t count, uint64_t *out)
{
	uint64_t sum = 0, stride = (uint64_t)gridDim.x * blockDim.x;

	for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < count; i += 8 * stride) {
		ulonglong2 v[8];

#pragma unroll
		for (int k = 0; k < 8; k++)
			v[k] = i + k * stride < count ? __ldg(p + i + k * stride) : make_ulonglong2(0, 0);
#pragma unroll
		for (int k = 0; k < 8; k++)
			sum += v[k].x ^ v[k].y;
	}
	if (sum == 0x123456789abcdefull)
		*out = sum;
}

__global__ void spoil_digests(uint64_t *digests, uint64_t count, unsigned permille)
{
	for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < count; i += (uint64_t)gridDim.x * blockDim.x)
		if ((uint32_t)(i * 2654435761u) / 4294968u < permille)
			digests[i] ^= 1;
}

/* Microseconds for a launch of its own for each region, nothing having changed. */
static double time_one_by_one(const variant &v, const bed &b)
{
	std::vector<tt_capture_region> alone = b.regions;
	std::vector<tt_capture_params> params(alone.size(), b.params);
	uint64_t table = allocate(alone.size() * sizeof alone[0], false);
	uint64_t controls = allocate(alone.size() * sizeof(tt_capture_control), false);

	for (size_t i = 0; i < alone.size(); i++) {
		alone[i].first_block = 0;
		alone[i].payload = 0;
		params[i].regions = table + i * sizeof alone[0];
		params[i].control = controls + i * sizeof(tt_capture_control);
		params[i].region_count = 1;
		params[i].blocks = (uint32_t)((alone[i].size + TT_BLOCK_SIZE - 1) / TT_BLOCK_SIZE);
	}
	TRY(cudaMemcpy((void *)table, alone.data(), alone.size() * sizeof alone[0], cudaMemcpyDefault));
	double t = measure([&] { TRY(cudaMemsetAsync((void *)controls, 0, alone.size() * sizeof(tt_capture_control))); },
	                   [&] {
		                   for (const auto &p : params)
			                   launch(v.digest, p, p.blocks);
	                   });
	release(table, false);
	release(controls, false);
	return t;
}

static void time_variant(const variant &v, uint64_t data, uint64_t size, uint64_t ring, uint64_t ring_size)
{
	bed b = make_bed({ { data, size } }, TT_RING_ALIGN, false);
	auto reset = [&] { TRY(cudaMemsetAsync((void *)b.params.control, 0, sizeof(tt_capture_control))); };
	auto digest = [&] { launch(digest_of(v, b), b.params, b.params.blocks); };
	auto delta = [&] {
		digest();
		launch(v.gather, b.params, b.params.blocks);
	};
	uint64_t own_ring = b.params.ring, spread = 0;
	double t;

	b.params.ring = ring;
	b.params.ring_size = ring_size;
	b.params.flags = TT_CAPTURE_FULL;
	t = measure(reset, digest);
	printf("\"full_snapshot_us\": %.1f, \"full_snapshot_TBps_payload\": %.3f, ", t, size / t / 1e6);
	CHECK(b.status->flags == TT_CAPTURE_FINAL, "snapshot does not fit");
	b.params.flags = 0;
	t = measure(reset, digest);
	printf("\"digest_us\": %.1f, \"digest_TBps\": %.3f, \"delta_us\": {", t, size / t / 1e6);
	for (unsigned permille : { 0, 20, 500, 1000 }) {
		uint64_t *digests = (uint64_t *)b.regions[0].digests;

		t = measure(
			[&] {
				reset();
				spoil_digests<<<256, 256>>>(digests, b.params.blocks, permille);
			},
			delta);
		printf("%s\"%g%%\": %.1f", permille ? ", " : "", permille / 10.0, t);
		CHECK(b.status->flags == TT_CAPTURE_FINAL, "delta does not fit");
	}
	printf("}, ");
	b.params.ring = own_ring;
	free_bed(b);

	/* Many regions, and few bytes. */
	struct {
		const char *name;
		int count;
		uint64_t smallest, largest;
	} sets[] = { { "regions_1000_of_4KiB_to_2MiB", 1000, 4096, 2 << 20 }, { "regions_1000_of_64KiB", 1000, 65536, 65536 },
		         { "regions_1000_of_4KiB", 1000, 4096, 4096 },            { "region_of_20MiB", 1, 20 << 20, 20 << 20 },
		         { "regions_100000_of_4KiB", 100000, 4096, 4096 },        { "regions_100000_of_700B", 100000, 700, 700 },
		         { "region_of_64KiB", 1, 65536, 65536 },                  { "regions_1000_of_4B", 1000, 4, 4 } };

	for (auto &set : sets) {
		std::vector<std::pair<uint64_t, uint64_t>> spans;
		uint64_t at = 0, bytes = 0, range = set.largest / set.smallest;

		for (int i = 0; i < set.count; i++) {
			uint64_t length = set.smallest;

			/* Sizes spread evenly over the powers of two between the bounds. */
			for (uint64_t r = range, draw = spread++ % 10; r > 1 && draw > 0; r /= 2, draw--)
				length *= 2;
			spans.push_back({ data + at, length });
			at += tt_round_up(length, 512);
			bytes += length;
		}
		if (at > size)
			continue;
		b = make_bed(spans, 2 * bytes + (1 << 20), false);
		b.params.flags = TT_CAPTURE_FULL;
		launch(digest_of(v, b), b.params, b.params.blocks);
		b.params.flags = 0;
		t = measure(reset, digest);
		printf("\"%s\": {\"MiB\": %.2f, \"digest_us\": %.1f, ", set.name, bytes / 1048576.0, t);
		if (&set == sets || set.count == 100000) {
			uint64_t sink = allocate(64, false);
			auto read = [&] {
				read_all<<<multiprocessors * 8, 256>>>((ulonglong2 *)data, bytes / 16, (uint64_t *)sink);
			};

			printf("\"read_us\": %.1f, ", measure([] {}, read));
			if (&set == sets)
				printf("\"one_by_one_us\": %.1f, ", time_one_by_one(v, b));
			release(sink, false);
		}
		printf("\"delta_0%%_us\": %.1f}, ", measure(reset, delta));
		CHECK(b.status->count == 0, "unchanged regions are listed");
		free_bed(b);
	}
}

int main(int argc, char **argv)
{
	uint64_t gib = 8;
	bool checks = true;
	std::vector<const char *> paths;
	cudaDeviceProp device;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--gib") && i + 1 < argc)
			gib = strtoull(argv[++i], 0, 0);
		else if (!strcmp(argv[i], "--runs") && i + 1 < argc)
			runs = std::max(1, atoi(argv[++i]));
		else if (!strcmp(argv[i], "--no-check"))
			checks = false;
		else
			paths.push_back(argv[i]);
	}
	if (paths.empty()) {
		fprintf(stderr, "usage: %s [--gib N] [--runs N] [--no-check] FILE.ptx...\n", argv[0]);
		return 2;
	}
	find_driver();
	TRY(cudaSetDevice(0));
	TRY(cudaFree(0));
	TRY(cudaGetDeviceProperties(&device, 0));
	TRY(cudaEventCreate(&before));
	TRY(cudaEventCreate(&after));
	multiprocessors = device.multiProcessorCount;

	size_t available, total;
	TRY(cudaMemGetInfo(&available, &total));
	while (gib > 1 && (2 * gib + 2) << 30 > available)
		gib /= 2;
	uint64_t size = gib << 30, ring_size = size + (size >> 8) + (1 << 20), data = allocate(size, false);
	uint64_t ring = allocate(ring_size, false), *sink = (uint64_t *)allocate(64, false);

	fill<<<multiprocessors * 8, 256>>>((uint64_t *)data, size / 8, 1);
	TRY(cudaDeviceSynchronize());
	printf("{\"device\": \"%s\", \"multiprocessors\": %d, \"GiB\": %llu, \"runs\": %d, ", device.name, multiprocessors,
	       (unsigned long long)gib, runs);
	double t = measure([] {}, [&] { read_all<<<multiprocessors * 8, 256>>>((ulonglong2 *)data, size / 16, sink); });
	printf("\"read_us\": %.1f, \"read_TBps\": %.3f, ", t, size / t / 1e6);
	t = measure([] {}, [&] { TRY(cudaMemcpyAsync((void *)ring, (void *)data, size, cudaMemcpyDeviceToDevice)); });
	printf("\"copy_us\": %.1f, \"copy_TBps_payload\": %.3f, \"variants\": {", t, size / t / 1e6);
	for (size_t i = 0; i < paths.size(); i++) {
		variant_name = paths[i];
		variant v = load_variant(paths[i]);

		printf("%s\n\"%s\": {", i ? "," : "", paths[i]);
		for (auto [name, k] : { std::make_pair("digest", v.digest), { "gather", v.gather } })
			printf("\"%s\": {\"registers\": %d, \"local_bytes\": %d, \"threads\": %d, \"ctas_per_sm\": %d}, ", name,
			       k.registers, k.spilled, k.threads, k.ctas / multiprocessors);
		if (checks) {
			check_variant(v, false, 0);
			check_variant(v, false, 1);
			check_variant(v, true, 0);
			check_variant(v, false, 0, true);
			check_variant(v, false, 1, true);
		}
		time_variant(v, data, size, ring, ring_size);
		TRY(cudaDeviceSynchronize());
		printf("\"failures_so_far\": %d}", failures);
		fflush(stdout);
	}
	printf("}, \"ok\": %s}\n", failures ? "false" : "true");
	return failures ? 1 : 0;
}
