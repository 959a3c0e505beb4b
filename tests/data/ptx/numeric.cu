// Library mathematics, divisions, 128-bit products, halves: long straight code as nvcc writes it.
#include <cuda_fp16.h>

extern "C" __global__ void functions(float *f, double *d, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= n)
		return;
	float x = f[i];
	double y = d[i];
	f[i] = x;
	f[n + i] = sinf(x);
	f[2 * n + i] = expf(x * 0.1f);
	f[3 * n + i] = logf(fabsf(x) + 1);
	f[4 * n + i] = powf(fabsf(x), 1.7f);
	f[5 * n + i] = sqrtf(fabsf(x));
	f[6 * n + i] = x / 7.0f;
	f[7 * n + i] = rsqrtf(fabsf(x) + 1);
	f[8 * n + i] = tanhf(x);
	f[9 * n + i] = fmodf(x, 3.0f);
	d[n + i] = sin(y);
	d[2 * n + i] = exp(y * 0.1);
	d[3 * n + i] = log(fabs(y) + 1);
	d[4 * n + i] = pow(fabs(y), 1.7);
	d[5 * n + i] = sqrt(fabs(y));
	d[6 * n + i] = y / 7.0;
	d[7 * n + i] = cbrt(y);
	d[8 * n + i] = atan2(y, 2.0);
}

extern "C" __global__ void divisions(const long long *a, const long long *b, long long *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= n)
		return;
	unsigned long long ua = a[i], ub = b[i];
	out[i] = a[i] / b[i];
	out[n + i] = a[i] % b[i];
	out[2 * n + i] = ua / ub;
	out[3 * n + i] = ua % ub;
	out[4 * n + i] = (int)a[i] / ((int)b[i] | 1);
	out[5 * n + i] = (unsigned)a[i] % 10007u;
	out[6 * n + i] = __umul64hi(ua, ub);
	out[7 * n + i] = __mul64hi(a[i], b[i]);
	unsigned __int128 wide = (unsigned __int128)ua * ub + ua;
	out[8 * n + i] = (unsigned long long)(wide >> 64);
	out[9 * n + i] = (unsigned long long)wide;
}

extern "C" __global__ void halves(const float *a, const float *b, unsigned short *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= n)
		return;
	__half x = __float2half_rn(a[i]), y = __float2half_rn(b[i]);
	out[i] = __half_as_ushort(x);
	out[n + i] = __half_as_ushort(__float2half_rz(a[i]));
	out[2 * n + i] = __half_as_ushort(__hadd_rn(x, y));
	out[3 * n + i] = __half_as_ushort(__hmul_rn(x, y));
	out[4 * n + i] = __half_as_ushort(__hfma(x, y, x));
	__half2 p = __hadd2(__halves2half2(x, y), __halves2half2(y, y));
	out[5 * n + i] = __half_as_ushort(__high2half(p));
	out[6 * n + i] = __half_as_ushort(__int2half_rn((int)a[i]));
	out[7 * n + i] = (unsigned short)__half2int_rn(x);
}
