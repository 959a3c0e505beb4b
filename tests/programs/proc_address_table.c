/*
 * Results of cuGetProcAddress for names, versions and flags: the result, the status, whether there is a
 * pointer, and whether it is that of the exported symbol.
 */
#include "program.h"

#include <dlfcn.h>

static const char *const names[] = {
	"cuInit", "cuGetProcAddress", "cuMemAlloc", "cuMemFree", "cuMemcpy", "cuMemcpyHtoD", "cuMemcpyHtoDAsync",
	"cuMemcpyDtoH", "cuMemcpyAsync", "cuMemcpyBatchAsync", "cuMemsetD8", "cuMemsetD8Async", "cuMemAllocAsync",
	"cuMemFreeAsync", "cuMemAllocManaged", "cuMemCreate", "cuMemMap", "cuLaunchKernel", "cuLaunchKernelEx",
	"cuLaunchCooperativeKernel", "cuLaunchHostFunc", "cuStreamSynchronize", "cuStreamCreate", "cuStreamDestroy",
	"cuStreamBeginCapture", "cuStreamGetCaptureInfo", "cuStreamWaitEvent", "cuStreamWaitValue32", "cuEventRecord",
	"cuEventElapsedTime", "cuCtxCreate", "cuCtxDestroy", "cuCtxSynchronize", "cuCtxGetDevice",
	"cuDevicePrimaryCtxRelease", "cuDeviceGetUuid", "cuGraphInstantiate", "cuGraphLaunch", "cuGraphExecUpdate",
	"cuGraphAddKernelNode", "cuGraphExecKernelNodeSetParams", "cuModuleLoadData", "cuModuleGetGlobal",
	"cuLibraryLoadData", "cuLibraryGetKernel", "cuPointerGetAttribute", "cuMemPrefetchAsync", "cuMemAdvise",
	"cuArrayCreate", "cuIpcOpenMemHandle", "cuMemHostRegister", "cuFuncGetParamInfo",
	"cuMemAlloc_v2", "cuNoSuchCall", "malloc", "",
};
static const int versions[] = {1000, 2000, 3020, 4000, 5000, 7000, 10010, 11010, 11020, 11030, 11040, 12000, 12030, 12050,
			       12080, 13000, 99000};

/* The suffix of the exported symbol that p is. */
static const char *which(void *driver, const char *name, void *p)
{
	static const char *const suffixes[] = {"_v2", "_v3", "_v4", "", "_ptsz", "_ptds", "_v2_ptsz", "_v2_ptds", "_v3_ptsz"};
	char symbol[100];

	if (!p)
		return "no pointer";
	for (unsigned i = 0; i < sizeof(suffixes) / sizeof(*suffixes); i++) {
		snprintf(symbol, sizeof(symbol), "%s%s", name, suffixes[i]);
		if (*name && dlsym(driver, symbol) == p)
			return *suffixes[i] ? suffixes[i] : "plain";
	}
	return "a pointer";
}

int main(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	/* The first version of the call has no status. */
	CUresult (*first)(const char *, void **, int, cuuint64_t) = dlsym(driver, "cuGetProcAddress");

	setvbuf(stdout, NULL, _IOLBF, 0);
	OK(cuInit(0));
	for (unsigned n = 0; n < sizeof(names) / sizeof(*names); n++)
		for (unsigned flags = 0; flags <= 2; flags++) {
			char before[200] = "", now[200];

			printf("\"%s\", flags %u\n", names[n], flags);
			for (unsigned v = 0; v < sizeof(versions) / sizeof(*versions); v++) {
				CUdriverProcAddressQueryResult status = 77;
				void *p = NULL, *q = NULL;
				CUresult r = cuGetProcAddress(names[n], &p, versions[v], flags, &status);
				CUresult r1 = first(names[n], &q, versions[v], flags);

				snprintf(now, sizeof(now), "%s, status %d, %s; without status %s, %s", result_name(r), (int)status,
					 which(driver, names[n], p), result_name(r1), p == q ? "the same" : "another");
				if (strcmp(before, now))
					printf("  from %d: %s\n", versions[v], now);
				strcpy(before, now);
			}
		}
	SHOW(cuGetProcAddress("cuInit", &driver, 12000, 4, NULL));
	return 0;
}
