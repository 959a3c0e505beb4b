/*
 * Loops that end whatever memory has (ends_NAME), and others (waits_NAME): which of them have heartbeats. The cubin beside
 * this is made by build.py.
 */
#define KERNEL extern "C" __global__ void
#define ONE_BY_ONE _Pragma("unroll 1")
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)

KERNEL ends_by_stride(float *a, const float *b, int n)
{
	ONE_BY_ONE for (int i = INDEX; i < n; i += gridDim.x * blockDim.x)
		a[i] = b[i] * 2;
}

KERNEL ends_far(float *a, const float *b, long n)
{
	ONE_BY_ONE for (long i = INDEX; i < n; i += gridDim.x * blockDim.x)
		a[i] = b[i] * 2;
}

KERNEL ends_ahead(float *out, const float *in, unsigned end, unsigned stride)
{
	float sum = 0;
	unsigned at = threadIdx.y;

	ONE_BY_ONE while (at + 3 * stride < end) {
		for (int i = 0; i < 4; i++)
			sum += in[at + stride * i];
		at += stride * 4;
	}
	out[INDEX] = sum;
}

KERNEL ends_at_zero(float *a, int n)
{
	float sum = 0;

	ONE_BY_ONE for (int k = n; k > 0; k--)
		sum = sum * a[k] + 1;
	a[0] = sum;
}

KERNEL ends_behind_barriers(float *a, int n)
{
	__shared__ float tile[256];

	ONE_BY_ONE for (int i = 0; i < n; i += 2) {
		tile[threadIdx.x] = a[i];
		__syncthreads();
		a[i] += tile[threadIdx.x ^ 1];
		__syncthreads();
	}
}

KERNEL ends_early(const int *f, int *out, int n)
{
	int i = 0;

	ONE_BY_ONE for (; i < n; i++)
		if (f[i])
			break;
	*out = i;
}

KERNEL waits_for_a_flag(volatile int *f, int limit)
{
	int n = 0;

	ONE_BY_ONE while (!*f && n < limit)
		n++;
	f[1] = n;
}

KERNEL waits_for_a_lock(int *f)
{
	ONE_BY_ONE while (atomicCAS(f, 0, 1))
		;
}

KERNEL waits_in_a_list(int *next, int i)
{
	ONE_BY_ONE while (i)
		i = next[i];
	next[0] = i;
}

KERNEL waits_to_count(volatile int *f, int n)
{
	int i = 0;

	ONE_BY_ONE while (i < n)
		if (f[i])
			i++;
	f[n] = i;
}

KERNEL waits_to_converge(float *a)
{
	float x = a[0], y = a[1];

	ONE_BY_ONE while (fabsf(x - y) > 1e-6f) {
		float t = (x + y) / 2;
		y = x;
		x = t * 0.3f + 1;
	}
	a[0] = x;
}

KERNEL waits_for_chance(unsigned *f, unsigned n)
{
	unsigned x = f[0];

	ONE_BY_ONE while (x < n)
		x = x * 1664525 + 1013904223;
	f[1] = x;
}

/* The inner loop ends, the outer one begins it again. */
KERNEL waits_outside(volatile int *f, int n)
{
	int i;

	ONE_BY_ONE do {
		i = 0;
		ONE_BY_ONE while (i < n && !f[i])
			i++;
	} while (i == n);
	f[n] = i;
}

/* The outer loop counts, the inner one may wait. */
KERNEL waits_inside(volatile int *f, int n)
{
	ONE_BY_ONE for (int i = 0; i < n; i++)
		ONE_BY_ONE while (!f[i])
			;
	f[n] = 1;
}
