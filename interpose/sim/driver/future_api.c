/*
 * Calls of a future driver (TT_SIM_FAULT=version:14000 or later); two of them have names of today. A
 * recorder that does not know them must pass them through.
 */
#include "sim/driver/driver.h"

#pragma GCC visibility push(protected)
CUresult cuMemAlloc_v3(CUdeviceptr *out, size_t size);
CUresult cuLaunchKernel_v2(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
			   unsigned shared, CUstream stream, void **params, void **extra);
CUresult cuMemcpyTwice(CUdeviceptr one, CUdeviceptr other, CUdeviceptr from, size_t size);
#pragma GCC visibility pop

CUresult cuMemAlloc_v3(CUdeviceptr *out, size_t size)
{
	return cuMemAlloc_v2(out, size);
}

CUresult cuLaunchKernel_v2(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
			   unsigned shared, CUstream stream, void **params, void **extra)
{
	return cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
}

CUresult cuMemcpyTwice(CUdeviceptr one, CUdeviceptr other, CUdeviceptr from, size_t size)
{
	CUresult result = cuMemcpyDtoD_v2(one, from, size);

	return result ? result : cuMemcpyDtoD_v2(other, from, size);
}
