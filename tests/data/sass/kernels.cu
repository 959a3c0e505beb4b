// Kernels whose machine code the tests know: make.py compiles them for several architectures.

__device__ __forceinline__ float scaled(float x)
{
	return x * 3.0f;
}

extern "C" __global__ void exchange(float *out, const float *in, int n)
{
	__shared__ float tile[64];
	int i = blockIdx.x * 64 + threadIdx.x;

	if (i < n)
		tile[threadIdx.x] = scaled(in[i]);
	__syncthreads();
	for (int k = 0; k < n; k++)
		out[i] += tile[(threadIdx.x + k) & 63];
	atomicAdd(out, 1.0f);
}

extern "C" __global__ void wide(double2 *out, const long long *in, int **pointers)
{
	double2 v = out[threadIdx.x];

	v.x = v.x * v.y + (double)in[threadIdx.x];
	out[threadIdx.x + 1] = v;
	*(volatile int *)pointers[threadIdx.x] = 1;
}

extern "C" __global__ void product(unsigned *out, const unsigned *in)
{
	unsigned a = in[0], b = in[1];
	float c = 0, d = 0, e = 0, f = 0;

	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%4,%5}, {%5,%4}, {%0,%1,%2,%3};"
		     : "+f"(c), "+f"(d), "+f"(e), "+f"(f) : "r"(a), "r"(b));
	out[0] = (unsigned)(c + d + e + f);
}

#if __CUDA_ARCH__ >= 900
struct __align__(64) descriptor {
	unsigned long long words[16];
};

extern "C" __global__ void tiles(const __grid_constant__ descriptor tensor, int *out)
{
	__shared__ __align__(128) int tile[256];
	__shared__ unsigned long long barrier;
	unsigned to = (unsigned)__cvta_generic_to_shared(tile), by = (unsigned)__cvta_generic_to_shared(&barrier), done;

	if (threadIdx.x == 0) {
		asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(by));
		asm volatile("fence.mbarrier_init.release.cluster;");
		asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 1024;" ::"r"(by));
		asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
			     ::"r"(to), "l"(&tensor), "r"(4), "r"(5), "r"(by) : "memory");
	}
	__syncthreads();
	do
		asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
			     : "=r"(done) : "r"(by) : "memory");
	while (!done);
	out[threadIdx.x] = tile[threadIdx.x];
	asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 1024;" ::"l"(out), "r"(to) : "memory");
	asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
}
#endif

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
extern "C" __global__ void group(float *out)
{
	__shared__ __align__(128) int tile[1024];
	unsigned long long factor = (__cvta_generic_to_shared(tile) >> 4) | 1ull << 62;
	float a = 0, b = 0, c = 0, d = 0;

	asm volatile("wgmma.fence.sync.aligned;");
	asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0,%1,%2,%3}, %4, %4, 1, 1, 1, 0, 0;"
		     : "+f"(a), "+f"(b), "+f"(c), "+f"(d) : "l"(factor));
	asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;");
	out[threadIdx.x] = a + b + c + d;
}
#endif
