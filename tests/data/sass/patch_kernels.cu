/*
 * Kernels with what compilers make use of: each reads `in`, and writes to `out` what depends on
 * nothing but that. Launched with 4 blocks of 128 threads, and `n` = 4096 items in `in` and `out`.
 * The cubins beside this are made with -DSMALL, by build.py.
 */
#include <cstdint>
#include <cstdio>
#include <cuda_fp16.h>
#include <mma.h>

#define KERNEL extern "C" __global__ void
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)

__device__ unsigned counter;

KERNEL scale(const float *in, float *out, int n)
{
	for (int i = INDEX; i < n; i += gridDim.x * blockDim.x)
		out[i] = in[i] * 2 + 1;
}

#ifndef SMALL
__device__ __noinline__ float twist(float x, int n)
{
	for (int i = 0; i < n; i++)
		x = x * 0.5f + sinf(x);
	return x;
}

KERNEL calls(const float *in, float *out, int n)
{
	out[INDEX] = twist(in[INDEX], INDEX & 7) + twist(in[n - 1 - INDEX] * 1e6f, 3);
}
#endif

KERNEL reduce(const float *in, float *out, int n)
{
	__shared__ float s[128];
	float v = 0;

	for (int i = threadIdx.x; i < n; i += blockDim.x)
		v += in[i];
	s[threadIdx.x] = v;
	__syncthreads();
	for (int k = 64; k; k >>= 1) {
		if (threadIdx.x < k)
			s[threadIdx.x] += s[threadIdx.x + k];
		__syncthreads();
	}
	if (!threadIdx.x)
		out[blockIdx.x] = s[0];
	if (n < 0)
		printf("%d\n", n);
}

KERNEL warps(const float *in, float *out, int n)
{
	int v = (int)(in[INDEX] * 1000), lane = threadIdx.x % 32;
	unsigned same = __match_any_sync(~0u, v & 3);

	for (int o = 16; o; o >>= 1)
		v += __shfl_xor_sync(~0u, v, o);
	if (lane & 1) {
		v ^= __ballot_sync(0xaaaaaaaa, v & 4);
		__syncwarp(0xaaaaaaaa);
		if (lane & 2)
			v += __reduce_add_sync(0x88888888, v);
	} else {
		v -= __popc(__activemask() & 0);
	}
	__syncwarp();
	out[INDEX] = v + __popc(same) + __any_sync(~0u, v == n);
}

KERNEL atomics(const float *in, float *out, int n)
{
	__shared__ unsigned s[64], most;
	unsigned v = (unsigned)(in[INDEX] * 1000);

	if (threadIdx.x < 64)
		s[threadIdx.x] = 0;
	most = 0;
	__syncthreads();
	atomicAdd(&s[v % 64], v);
	atomicMax(&most, v);
	atomicXor(&s[(v + 1) % 64], v << 8);
	atomicCAS(&s[63], 0u, 7u);
	__syncthreads();
	if (threadIdx.x < 64)
		atomicAdd((unsigned *)out + blockIdx.x * 64 + threadIdx.x, s[threadIdx.x] + most);
	atomicAdd((double *)(out + n / 2) + v % 16, 1.0);
	atomicInc(&counter, 1000000);
}

#ifndef SMALL
KERNEL branches(const float *in, float *out, int n)
{
	int local[32], v = (int)(in[INDEX] * 100);

	for (int i = 0; i < 32; i++)
		local[i] = v * i;
	for (int i = 0; i < (v & 31); i++) {
		switch ((v + i) % 8) {
		case 0: local[i] += 3; break;
		case 1: local[v & 31] ^= i; break;
		case 2: local[i] *= local[(i + 7) & 31]; break;
		case 3: if (i > 9) v -= i; break;
		case 4: v = v * 5 + 1; break;
		case 5: local[(v ^ i) & 31] = n / (i + 1); break;
		case 6: v += local[i]; continue;
		default: local[1]++;
		}
	}
	for (int i = 0; i < 32; i++)
		v = v * 31 + local[i];
	out[INDEX] = (float)v;
}

KERNEL doubles(const float *in, float *out, int n)
{
	double x = in[INDEX], y = 0;
	long long k = (long long)(x * 1e9);

	for (int i = 1; i < 20; i++)
		y += x / (i + x) + sqrt(x * i);
	out[INDEX] = (float)(y + exp(x) + (double)(k / (n + 7ll) + k % 1000003));
}
#endif

KERNEL matrix(const float *in, float *out, int n)
{
	using namespace nvcuda;
	__shared__ half a[16 * 16], b[16 * 16];
	__shared__ float c[16 * 16];
	wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
	wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb;
	wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;

	for (int i = threadIdx.x; i < 256; i += blockDim.x) {
		a[i] = __float2half(in[i + blockIdx.x * 256]);
		b[i] = __float2half(in[i + 1024]);
	}
	__syncthreads();
	if (threadIdx.x < 32) {
		wmma::fill_fragment(fc, 0.5f);
		for (int i = 0; i < 8; i++) {
			wmma::load_matrix_sync(fa, a, 16);
			wmma::load_matrix_sync(fb, b, 16);
			wmma::mma_sync(fc, fa, fb, fc);
		}
		wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);
	}
	__syncthreads();
	for (int i = threadIdx.x; i < 256; i += blockDim.x)
		out[i + blockIdx.x * 256] = c[i];
}

__device__ static uint32_t shared_address(const void *p)
{
	return (uint32_t)__cvta_generic_to_shared(p);
}

KERNEL staged(const float *in, float *out, int n)
{
	__shared__ __align__(16) float s[4][128 * 4];

	for (int k = 0; k < 2; k++) {
		asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(&s[k][threadIdx.x * 4])),
			     "l"(in + k * 512 + threadIdx.x * 4));
		asm volatile("cp.async.commit_group;");
	}
	for (int k = 0; k < n / 512; k++) {
		asm volatile("cp.async.wait_group 1;");
		__syncthreads();
		float v = 0;
		for (int i = 0; i < 4; i++)
			v += s[k % 4][(threadIdx.x * 7 + i * 128) % 512];
		out[k * 128 + threadIdx.x] = v;
		if (k + 2 < n / 512)
			asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
					     shared_address(&s[(k + 2) % 4][threadIdx.x * 4])),
				     "l"(in + (k + 2) * 512 + threadIdx.x * 4));
		asm volatile("cp.async.commit_group;");
	}
}

#if __CUDA_ARCH__ >= 900
__device__ static void wait(uint32_t barrier, uint32_t phase)
{
	asm volatile("{\n.reg .pred p;\n"
		     "again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
		     "@!p bra again;\n}" ::"r"(barrier), "r"(phase) : "memory");
}

KERNEL __cluster_dims__(2, 1, 1) bulk(const float *in, float *out, int n)
{
	__shared__ __align__(128) float s[2][512], back[128];
	__shared__ uint64_t barrier[2];
	uint32_t b[2] = {shared_address(&barrier[0]), shared_address(&barrier[1])}, rank;

	asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
	if (!threadIdx.x) {
		for (int k = 0; k < 2; k++)
			asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(b[k]));
		asm volatile("fence.mbarrier_init.release.cluster;");
	}
	asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;");
	for (int k = 0; k < n / 512; k++) {
		if (!threadIdx.x) {
			asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 2048;" ::"r"(b[k % 2]));
			asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
				     " [%0], [%1], 2048, [%2];" ::"r"(shared_address(s[k % 2])),
				     "l"(in + k * 512), "r"(b[k % 2]) : "memory");
		}
		wait(b[k % 2], k / 2 % 2);
		back[threadIdx.x] = s[k % 2][threadIdx.x * 3 % 512] + rank;
		asm volatile("fence.proxy.async;\nbarrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;");
		uint32_t peer;
		float v;
		asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
			     : "=r"(peer) : "r"(shared_address(&back[127 - threadIdx.x])), "r"(rank ^ 1));
		asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(peer) : "memory");
		if (blockIdx.x < 2)
			out[(k * 2 + blockIdx.x) * 128 + threadIdx.x] = v;
		asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;");
	}
	if (!threadIdx.x && blockIdx.x == 0) {
		asm volatile("fence.proxy.async;\ncp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 512;\n"
			     "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::"l"(out + n - 128),
			     "r"(shared_address(back)) : "memory");
	}
}
#endif

#if __CUDA_ARCH_FEAT_SM90_ALL
KERNEL groups(const float *in, float *out, int n)
{
	__shared__ __align__(128) half a[64 * 16], b[16 * 16];
	float d[8] = {0};
	uint64_t da, db;

	if (threadIdx.x < 128)
		asm volatile("setmaxnreg.inc.sync.aligned.u32 96;");
	for (int i = threadIdx.x; i < 64 * 16; i += blockDim.x)
		a[i] = __float2half(in[i]);
	for (int i = threadIdx.x; i < 16 * 16; i += blockDim.x)
		b[i] = __float2half(in[i + 1024 + blockIdx.x]);
	asm volatile("fence.proxy.async;");
	__syncthreads();
	da = (shared_address(a) >> 4 & 0x3fff) | 8ull << 16 | 16ull << 32;
	db = (shared_address(b) >> 4 & 0x3fff) | 8ull << 16 | 16ull << 32;
	for (int k = 0; k < 4; k++) {
		asm volatile("wgmma.fence.sync.aligned;");
		asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 "
			     "{%0,%1,%2,%3,%4,%5,%6,%7}, %8, %9, 1, 1, 1, 0, 0;"
			     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
			       "+f"(d[7])
			     : "l"(da), "l"(db));
		asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;");
	}
	for (int i = 0; i < 8 && blockIdx.x < 4; i++)
		out[INDEX * 8 + i] = d[i];
}
#endif
