/* A kernel whose warps change their number of registers. */
#if __CUDA_ARCH_FEAT_SM90_ALL
#define CHANGE_REGISTERS(how, number) asm volatile("setmaxnreg." how ".sync.aligned.u32 " number ";")
#else
#define CHANGE_REGISTERS(how, number)
#endif
#define BARRIER(number) asm volatile("barrier.sync " #number ", 384;" ::: "memory")

/* One group of warps loads, and gives registers to the two that compute. */
extern "C" __global__ void __launch_bounds__(3 * 128, 1) specialised(const unsigned *in, unsigned *out, int n)
{
	__shared__ unsigned tile[1024];
	int at = threadIdx.x % 128;

	if (threadIdx.x < 128) {
		CHANGE_REGISTERS("dec", "40");
		for (int begin = blockIdx.x * 1024; begin < n; begin += gridDim.x * 1024) {
			for (int i = at; i < 1024; i += 128)
				tile[i] = in[begin + i];
			BARRIER(1);
			BARRIER(2);
		}
	} else {
		int group = threadIdx.x / 128 - 1;
		CHANGE_REGISTERS("inc", "184");
		for (int begin = blockIdx.x * 1024; begin < n; begin += gridDim.x * 1024) {
			unsigned v[64], sum = 0;
			BARRIER(1);
#pragma unroll
			for (int k = 0; k < 64; k++)
				v[k] = tile[(at * 8 + k * 5) % 1024];
#pragma unroll 1
			for (int turn = 0; turn < 2 + group; turn++)
#pragma unroll
				for (int k = 0; k < 64; k++)
					v[k] = v[k] * 5 + (v[(k + 7) % 64] ^ v[(k * 3 + 1) % 64]);
#pragma unroll
			for (int k = 0; k < 64; k++)
				sum = sum * 3 + v[k];
			for (int k = 0; k < 4; k++)
				out[begin + group * 512 + at * 4 + k] = sum + k;
			BARRIER(2);
		}
	}
}
