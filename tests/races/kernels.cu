/*
 * Kernels with a planted race, NAME, and the same without it, NAME_fixed. The lines of the two
 * instructions end with the comment "race of NAME". `nvcc -O2 -arch=compute_90 -ptx -lineinfo` makes
 * kernels.ptx of it, less the folders of its .file lines and the sections behind them.
 */
#define KERNEL(name) \
	template <bool FIXED> static __device__ __forceinline__ void name##_of(unsigned *out, const unsigned *in); \
	extern "C" __global__ void name(unsigned *out, const unsigned *in) \
	{ \
		name##_of<false>(out, in); \
	} \
	extern "C" __global__ void name##_fixed(unsigned *out, const unsigned *in) \
	{ \
		name##_of<true>(out, in); \
	} \
	template <bool FIXED> static __device__ __forceinline__ void name##_of(unsigned *out, const unsigned *in)

/* The same of kernels that copy by tensor maps: of `in`, and behind it of `out`, a line for each block. */
#define MAPPED(name) \
	template <bool FIXED> static __device__ __forceinline__ void name##_of(unsigned *out, const char *maps); \
	extern "C" __global__ void name(unsigned *out, const unsigned *in, const char *maps) \
	{ \
		name##_of<false>(out, maps); \
	} \
	extern "C" __global__ void name##_fixed(unsigned *out, const unsigned *in, const char *maps) \
	{ \
		name##_of<true>(out, maps); \
	} \
	template <bool FIXED> static __device__ __forceinline__ void name##_of(unsigned *out, const char *maps)

/* The same in clusters of two blocks. */
#define CLUSTERED(name) \
	template <bool FIXED> static __device__ __forceinline__ void name##_of(unsigned *out, const unsigned *in); \
	extern "C" __global__ void __cluster_dims__(2, 1, 1) name(unsigned *out, const unsigned *in) \
	{ \
		name##_of<false>(out, in); \
	} \
	extern "C" __global__ void __cluster_dims__(2, 1, 1) name##_fixed(unsigned *out, const unsigned *in) \
	{ \
		name##_of<true>(out, in); \
	} \
	template <bool FIXED> static __device__ __forceinline__ void name##_of(unsigned *out, const unsigned *in)

#define THREADS 128
#define AT (blockIdx.x * THREADS + threadIdx.x)

static __device__ unsigned shared_address(const void *p)
{
	return (unsigned)__cvta_generic_to_shared(p);
}

/* One thread adds up what all threads of the block stored. */
KERNEL(read_after_write)
{
	__shared__ unsigned values[THREADS];

	values[threadIdx.x] = in[AT]; // race of read_after_write
	if (FIXED)
		__syncthreads();
	if (threadIdx.x == 0) {
		unsigned sum = 0;
#pragma unroll 1
		for (int i = 0; i < THREADS; i++)
			sum += values[i]; // race of read_after_write
		out[blockIdx.x] = sum;
	}
}

/* The next round overwrites what neighbours still read. */
KERNEL(write_after_read)
{
	__shared__ unsigned values[THREADS];
	unsigned mine = in[AT];

#pragma unroll 1
	for (int round = 0; round < 4; round++) {
		values[threadIdx.x] = mine; // race of write_after_read
		__syncthreads();
		mine += values[(threadIdx.x + 32) % THREADS]; // race of write_after_read
		if (FIXED)
			__syncthreads();
	}
	out[AT] = mine;
}

/* Two warps store to the same element. */
KERNEL(write_after_write)
{
	__shared__ unsigned values[THREADS];
	unsigned at = FIXED ? threadIdx.x : threadIdx.x % 64;

	values[at] = in[AT]; // race of write_after_write
	__syncthreads();
	out[AT] = values[at];
}

/* The first lane of a warp reads what the others stored. */
KERNEL(warp)
{
	__shared__ unsigned values[THREADS];

	values[threadIdx.x] = in[AT]; // race of warp
	if (FIXED)
		__syncwarp();
	if (threadIdx.x % 32 == 0) {
		unsigned sum = 0;
#pragma unroll 1
		for (int i = 0; i < 32; i++)
			sum += values[threadIdx.x + i]; // race of warp
		out[AT] = sum;
	}
}

/* Half of a warp meets, and reads what the other half stored. */
KERNEL(half_warp)
{
	__shared__ unsigned values[THREADS];
	unsigned lane = threadIdx.x % 32;

	values[threadIdx.x] = in[AT]; // race of half_warp
	if (FIXED)
		__syncwarp();
	if (lane < 16) {
		__syncwarp(0xffff);
		out[AT] = values[threadIdx.x + 16]; // race of half_warp
	}
}

/* Each block reads what the next one stores. */
KERNEL(blocks)
{
	unsigned next = (blockIdx.x + 1) % gridDim.x * THREADS + threadIdx.x;

	out[AT] = in[AT]; // race of blocks
	__syncthreads();
	if (!FIXED)
		out[gridDim.x * THREADS + AT] = out[next]; // race of blocks
}

/* Threads of all blocks count without an atomic operation. */
KERNEL(count)
{
	if (FIXED)
		atomicAdd(out + in[AT] % 8, 1);
	else
		out[in[AT] % 8]++; // race of count
}

/* The last block adds up what all blocks stored before they counted. */
KERNEL(last_block)
{
	volatile unsigned *sums = out + 1;

	if (threadIdx.x == 0) {
		out[1 + blockIdx.x] = in[AT]; // race of last_block
		if (FIXED)
			__threadfence();
		if (atomicAdd(out, 1) == gridDim.x - 1) {
			unsigned sum = 0;
			if (FIXED)
				__threadfence();
#pragma unroll 1
			for (unsigned i = 0; i < gridDim.x; i++)
				sum += sums[i]; // race of last_block
			out[1 + gridDim.x] = sum;
		}
	}
}

/* A warp stores for another, at a barrier of the two. */
KERNEL(named_barrier)
{
	__shared__ unsigned values[THREADS];
	unsigned pair = threadIdx.x / 64, number = 1 + pair;

	if (threadIdx.x % 64 < 32) {
		values[threadIdx.x] = in[AT]; // race of named_barrier
		if (!FIXED)
			number = 1 + (pair + 1) % 2;
		asm volatile("bar.arrive %0, 64;" ::"r"(number) : "memory");
	} else {
		asm volatile("bar.sync %0, 64;" ::"r"(number) : "memory");
		out[AT] = values[threadIdx.x - 32]; // race of named_barrier
	}
}

/* A warp stores for the others, who wait at an mbarrier. */
KERNEL(mbarrier)
{
	__shared__ unsigned values[32];
	__shared__ unsigned long long there;
	unsigned at = shared_address(&there), done = 0;

	if (threadIdx.x == 0)
		asm volatile("mbarrier.init.shared.b64 [%0], 32;" ::"r"(at) : "memory");
	__syncthreads();
	if (threadIdx.x < 32) {
		values[threadIdx.x] = in[AT]; // race of mbarrier
		asm volatile("{ .reg .b64 state;\n mbarrier.arrive.shared.b64 state, [%0];\n }" ::"r"(at) : "memory");
	}
	while (FIXED && !done)
		asm volatile("{ .reg .pred p;\n mbarrier.test_wait.parity.shared.b64 p, [%1], 0;\n selp.u32 %0, 1, 0, p; }"
			     : "=r"(done)
			     : "r"(at)
			     : "memory");
	out[AT] = values[threadIdx.x % 32]; // race of mbarrier
}

/* A block publishes data by a flag for which the next one waits. */
KERNEL(flag)
{
	unsigned *flags = out + gridDim.x * THREADS;
	unsigned seen = 0;

	if (threadIdx.x == 0) {
		out[blockIdx.x] = in[AT]; // race of flag
		if (FIXED)
			asm volatile("st.release.gpu.u32 [%0], 1;" ::"l"(flags + blockIdx.x) : "memory");
		else
			asm volatile("st.relaxed.gpu.u32 [%0], 1;" ::"l"(flags + blockIdx.x) : "memory");
		if (blockIdx.x) {
			while (!seen)
				asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(seen) : "l"(flags + blockIdx.x - 1) : "memory");
			out[gridDim.x + blockIdx.x] = out[blockIdx.x - 1]; // race of flag
		}
	}
}

/* Threads read what another had copied, at a barrier that does not wait for the copy. */
KERNEL(async_copy)
{
	__shared__ alignas(16) unsigned values[THREADS];

	asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(values + threadIdx.x)),
		     "l"(in + AT) // race of async_copy
		     : "memory");
	if (FIXED)
		asm volatile("cp.async.wait_all;" ::: "memory");
	__syncthreads();
	out[AT] = values[(threadIdx.x + 32) % THREADS]; // race of async_copy
}

/* The same for a copy of the whole tile. */
KERNEL(bulk_copy)
{
	__shared__ alignas(128) unsigned values[THREADS];
	__shared__ unsigned long long there;
	unsigned at = shared_address(&there), bytes = sizeof(values), done = 0;

	if (threadIdx.x == 0)
		asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(at) : "memory");
	__syncthreads();
	if (threadIdx.x == 0) {
		asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
		asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
			     ::"r"(shared_address(values)),
			     "l"(in + blockIdx.x * THREADS), "r"(bytes), "r"(at) // race of bulk_copy
			     : "memory");
	}
	__syncthreads();
	while (FIXED && !done)
		asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
			     : "=r"(done)
			     : "r"(at)
			     : "memory");
	out[AT] = values[threadIdx.x]; // race of bulk_copy
}

/* The same for a box of a tensor. */
MAPPED(tensor_load)
{
	__shared__ alignas(128) unsigned values[THREADS];
	__shared__ unsigned long long there;
	unsigned at = shared_address(&there), bytes = sizeof(values), done = 0;

	if (threadIdx.x == 0)
		asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(at) : "memory");
	__syncthreads();
	if (threadIdx.x == 0) {
		asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
		asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
			     ::"r"(shared_address(values)),
			     "l"(maps), "r"(0), "r"(blockIdx.x), "r"(at) // race of tensor_load
			     : "memory");
	}
	__syncthreads();
	while (FIXED && !done)
		asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
			     : "=r"(done)
			     : "r"(at)
			     : "memory");
	out[AT] = values[threadIdx.x]; // race of tensor_load
}

/* What a copy brings to a tensor is read before the copy is complete. */
MAPPED(tensor_store)
{
	__shared__ alignas(128) unsigned values[THREADS];

	values[threadIdx.x] = AT;
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
	__syncthreads();
	if (threadIdx.x == 0) {
		asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];"
			     ::"l"(maps + 128),
			     "r"(0), "r"(blockIdx.x), "r"(shared_address(values)) // race of tensor_store
			     : "memory");
		asm volatile("cp.async.bulk.commit_group;" ::: "memory");
		if (FIXED)
			asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
	}
	__syncthreads();
	out[gridDim.x * THREADS + AT] = out[AT] + 1; // race of tensor_store
}

static __device__ void meet(void)
{
	asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
}

/* The address of shared memory in the other block of the cluster. */
static __device__ unsigned in_other(const void *p)
{
	unsigned at;

	asm("{ .reg .u32 rank; mov.u32 rank, %%cluster_ctarank; xor.b32 rank, rank, 1;\n\t"
	    "mapa.shared::cluster.u32 %0, %1, rank; }" : "=r"(at) : "r"(shared_address(p)));
	return at;
}

/* A block reads shared memory of the other one, which may not have stored. */
CLUSTERED(cluster_read)
{
	__shared__ unsigned values[THREADS];
	unsigned seen;

	values[threadIdx.x] = in[AT]; // race of cluster_read
	if (FIXED)
		meet();
	asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(seen) : "r"(in_other(&values[threadIdx.x])) : "memory"); // race of cluster_read
	out[AT] = seen;
	meet();
}

/* A block stores to shared memory that the other one still reads. */
CLUSTERED(cluster_write)
{
	__shared__ unsigned values[THREADS];

	values[threadIdx.x] = in[AT];
	meet();
	out[AT] = values[THREADS - 1 - threadIdx.x]; // race of cluster_write
	if (FIXED)
		meet();
	asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(in_other(&values[threadIdx.x])), "r"(out[AT]) : "memory"); // race of cluster_write
	meet();
}

/* A block hands a line to the other one, whose mbarrier says when it has come. */
CLUSTERED(cluster_copy)
{
	__shared__ __align__(128) unsigned own[THREADS], other[THREADS];
	__shared__ unsigned long long barrier;
	unsigned done = 0, bytes = sizeof(own), at = shared_address(&barrier);

	if (threadIdx.x == 0) {
		asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
		asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
	}
	own[threadIdx.x] = in[AT];
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
	meet();
	if (threadIdx.x == 0)
		asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], 512, [%2];" ::"r"(in_other(other)), "r"(shared_address(own)), "r"(in_other(&barrier)) : "memory"); // race of cluster_copy
	while (FIXED && !done)
		asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
			     : "=r"(done) : "r"(at) : "memory");
	out[AT] = other[threadIdx.x]; // race of cluster_copy
	meet();
}

/* The first block has a line copied to both, whose mbarriers say when it has come. */
CLUSTERED(cluster_multicast)
{
	__shared__ __align__(128) unsigned line[THREADS];
	__shared__ unsigned long long barrier;
	unsigned done = 0, bytes = sizeof(line), rank, at = shared_address(&barrier);

	asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
	if (threadIdx.x == 0) {
		asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
		asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
	}
	meet();
	if (threadIdx.x == 0 && rank == 0)
		asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], 512, [%2], %3;" ::"r"(shared_address(line)), "l"(in + AT), "r"(at), "h"((short)3) : "memory"); // race of cluster_multicast
	while (FIXED && !done)
		asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
			     : "=r"(done) : "r"(at) : "memory");
	out[AT] = line[threadIdx.x]; // race of cluster_multicast
	meet();
}

/* A thread stores to the other block, whose mbarrier says when all have. */
CLUSTERED(cluster_send)
{
	__shared__ __align__(128) unsigned other[THREADS];
	__shared__ unsigned long long barrier;
	unsigned done = 0, bytes = sizeof(other), at = shared_address(&barrier);

	if (threadIdx.x == 0) {
		asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
		asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
	}
	meet();
	asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(in_other(&other[threadIdx.x])), "r"(in[AT]), "r"(in_other(&barrier)) : "memory"); // race of cluster_send
	while (FIXED && !done)
		asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
			     : "=r"(done) : "r"(at) : "memory");
	out[AT] = other[THREADS - 1 - threadIdx.x]; // race of cluster_send
	meet();
}

/* NVIDIA's Racecheck sample block_error: a thread adds up in global memory what the others store in shared memory. */
KERNEL(sample_block_error)
{
	__shared__ unsigned values[THREADS];

	values[threadIdx.x] = in[AT] + threadIdx.x; // race of sample_block_error
	if (FIXED)
		__syncthreads();
	if (threadIdx.x == 0) {
		out[blockIdx.x] = 0;
#pragma unroll 1
		for (int i = 0; i < THREADS; i++)
			out[blockIdx.x] += values[i]; // race of sample_block_error
	}
}

/* NVIDIA's Racecheck sample warp_error: a lane of each warp adds up before the warp has met, one of the block after. */
KERNEL(sample_warp_error)
{
	__shared__ unsigned first[THREADS];
	__shared__ unsigned second[THREADS / 32];
	unsigned w = threadIdx.x / 32;

	first[threadIdx.x] = in[AT] + threadIdx.x; // race of sample_warp_error
	if (FIXED)
		__syncwarp();
	if (threadIdx.x % 32 == 0) {
		second[w] = 0;
#pragma unroll 1
		for (int i = 0; i < 32; i++)
			second[w] += first[w * 32 + i]; // race of sample_warp_error
	}
	__syncthreads();
	if (threadIdx.x == 0) {
		out[blockIdx.x] = 0;
		for (int i = 0; i < THREADS / 32; i++)
			out[blockIdx.x] += second[i];
	}
}

/* Not a race that changes a result: all threads store the same. */
extern "C" __global__ void same_value(unsigned *out, const unsigned *in)
{
	if (in[AT] != 0xffffffff)
		out[0] = 1;
}
