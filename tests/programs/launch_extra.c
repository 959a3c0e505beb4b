/* A launch whose parameters come as one packed buffer. */
#include "program.h"

int main(void)
{
	struct {
		CUdeviceptr p;
		unsigned char a;
		unsigned short b;
		unsigned c;
		unsigned long long d;
		float e;
		double f;
		unsigned g[3];
	} packed = {.a = 1, .b = 2, .c = 3, .d = 4ull << 40, .e = 5.5f, .f = 6.25, .g = {7, 8, 9}};
	size_t size = offsetof(__typeof__(packed), g) + sizeof(packed.g);

	start();
	CUfunction params = get_kernel(load_kernels(), "params");
	CUdeviceptr p = allocate(48);
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};

	OK(cuMemsetD8(p, 0, 48));
	packed.p = p;
	SHOW(cuLaunchKernel(params, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
	print_words("packed", p, 12);

	OK(cuMemsetD8(p, 0, 48));
	SHOW(cuLaunchKernel(params, 1, 1, 1, 1, 1, 1, 0, NULL,
			    PARAMS(&packed.p, &packed.a, &packed.b, &packed.c, &packed.d, &packed.e, &packed.f, packed.g),
			    NULL));
	print_words("listed", p, 12);
	SHOW(cuLaunchKernel(params, 1, 1, 1, 1, 1, 1, 0, NULL, PARAMS(&packed.p), extra));
	size = 8;
	SHOW(cuLaunchKernel(params, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
	SHOW(cuCtxSynchronize());
	return 0;
}
