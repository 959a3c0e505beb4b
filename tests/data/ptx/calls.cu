// Calls: by value, of structs, recursive, through pointers and virtual, with local arrays.
struct Pair { int a; double b; char c[3]; };

__noinline__ __device__ Pair make(int a, double b)
{
	Pair p;
	p.a = a;
	p.b = b * 2;
	p.c[0] = (char)a;
	p.c[1] = (char)(a + 1);
	p.c[2] = -3;
	return p;
}

__noinline__ __device__ int fibonacci(int n)
{
	return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

__noinline__ __device__ bool odd(unsigned n);
__noinline__ __device__ bool even(unsigned n) { return n == 0 || odd(n - 1); }
__noinline__ __device__ bool odd(unsigned n) { return n != 0 && even(n - 1); }

typedef int (*Operation)(int, int);
__device__ int add(int a, int b) { return a + b; }
__device__ int subtract(int a, int b) { return a - b; }
__device__ int multiply(int a, int b) { return a * b; }
__device__ Operation operations[3] = {add, subtract, multiply};

struct Shape {
	__device__ virtual float area(float x) const = 0;
};
struct Square : Shape {
	__device__ float area(float x) const override { return x * x; }
};
struct Disc : Shape {
	__device__ float area(float x) const override { return 3.0f * x * x; }
};

extern "C" __global__ void structs(int *out, Pair given, short small, int n)
{
	int i = threadIdx.x;
	Pair p = make(i, given.b);
	out[i] = p.a + (int)p.b + p.c[i % 3] + given.c[i % 3] * 1000 + given.a + small * n;
}

extern "C" __global__ void recursion(int *out)
{
	int i = threadIdx.x;
	out[i] = fibonacci(i % 12) * 2 + even(i);
}

extern "C" __global__ void pointers(int *out, int n)
{
	int i = threadIdx.x;
	out[i] = operations[i % 3](i, n);
}

extern "C" __global__ void virtuals(float *out)
{
	int i = threadIdx.x;
	Square square;
	Disc disc;
	const Shape *shape = i & 1 ? (const Shape *)&square : &disc;
	out[i] = shape->area((float)i);
}

extern "C" __global__ void locals(int *out, const int *order, int n)
{
	int stack[64], i = threadIdx.x;
	for (int k = 0; k < 64; k++)
		stack[k] = k * i;
	for (int k = 0; k < n; k++) {
		int at = order[(k + i) & 63];
		stack[at] += stack[(at + 1) & 63];
	}
	int sum = 0;
	for (int k = 0; k < 64; k++)
		sum = sum * 31 + stack[k];
	out[i] = sum;
}
