/* The kernels of faults.c. One thread for each of n elements, unless a comment says otherwise. */
#define INDEX \
	int i = blockIdx.x * blockDim.x + threadIdx.x; \
	if (i >= n) \
	return

extern "C" __global__ void scale(float *p, float a, int n)
{
	INDEX;
	p[i] *= a;
}

extern "C" __global__ void add(float *to, const float *from, int n)
{
	INDEX;
	to[i] += from[i];
}

/* to[i + shift] = from[i] */
extern "C" __global__ void move(float *to, const float *from, int shift, int n)
{
	INDEX;
	to[i + shift] = from[i];
}

/* Every thread of the grid writes: nothing says where p ends. */
extern "C" __global__ void unchecked(float *p, float a)
{
	p[blockIdx.x * blockDim.x + threadIdx.x] = a;
}

/* to[i] = from[i] + from[i + 1] */
extern "C" __global__ void halo(float *to, const float *from, int n)
{
	INDEX;
	to[i] = from[i] + from[i + 1];
}

extern "C" __global__ void dropout(float *p, unsigned seed, int n)
{
	INDEX;
	unsigned h = (seed ^ (unsigned)i) * 2654435761u;

	h ^= h >> 15;
	h *= 2246822519u;
	p[i] = h >> 31 ? p[i] * 2 : 0;
}

/* One block for each 256 elements; the order of the additions is not defined. */
extern "C" __global__ void sum(float *total, const float *from, int n)
{
	INDEX;
	atomicAdd(total, from[i]);
}

/* Places are given out in the order in which threads come. */
extern "C" __global__ void append(unsigned *count, float *to, const float *from, int n)
{
	INDEX;
	to[atomicAdd(count, 1u)] = from[i];
}

extern "C" __global__ void clocked(float *p, int n)
{
	INDEX;
	p[i] += (float)(clock64() & 1023);
}

extern "C" __global__ void divide(float *to, const float *a, const float *b, int n)
{
	INDEX;
	to[i] = a[i] / b[i];
}

extern "C" __global__ void root(float *p, int n)
{
	INDEX;
	p[i] = sqrtf(p[i]);
}

/* Where to write comes from memory. */
extern "C" __global__ void scatter(float *to, const int *at, float a, int n)
{
	INDEX;
	to[at[i]] = a;
}

struct node {
	float *values;
	int first;
};

/* The address comes from memory. */
extern "C" __global__ void through(const struct node *node, float a, int n)
{
	INDEX;
	node->values[node->first + i] = a;
}

/* Half-precision numbers by their bits: from 1/8 to 128, the largest one, and an infinity if n > 7. */
extern "C" __global__ void overflow(unsigned short *halves, int n)
{
	INDEX;
	unsigned bits = (i + 1) * 2654435761u >> 16;

	halves[i] = (unsigned short)(i == 6 ? 0x7bff : i == 7 ? 0x7c00 : 0x3000 + bits % 0x2800);
}

/*
 * One block for each `tile` rows, whose numbers the map has. All threads load a number, the last of the block's or
 * an earlier one; those that have no row of their own never use it.
 */
extern "C" __global__ void route(float *to, const float *from, const volatile int *map, int tile, int last)
{
	int i = threadIdx.x, row = map[blockIdx.x * tile + (i < last ? i : last)];

	if (i < tile)
		to[blockIdx.x * tile + i] = from[row];
}

/* One block. Each 32 values have a scale in 8 bits: a power of two, or 255 for NaN. Values from n on count as 0. */
extern "C" __global__ void scaled(float *to, const float *from, const unsigned char *scales, int n, int count)
{
	int i = threadIdx.x, scale = i / 32 < count ? scales[i / 32] : 0;
	float factor = scale == 255 ? __int_as_float(0x7fffffff) : __int_as_float(scale << 23);

	to[i] = (i < n ? from[i] : 0) * factor;
}

/* One thread, for a long while. */
extern "C" __global__ void spin(unsigned *p, int rounds)
{
	unsigned x = *p;

	for (int i = 0; i < rounds; i++)
		x = x * 1664525u + 1013904223u;
	*p = x | 1;
}
