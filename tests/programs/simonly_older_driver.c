/* TT_SIM_FAULT=version:12040: a driver of CUDA 12.4, for look-ups and for PTX. */
#include "program.h"

static void look_up(const char *name, int version)
{
	CUdriverProcAddressQueryResult found = 77;
	void *p = NULL;
	CUresult r = cuGetProcAddress(name, &p, version, 0, &found);

	printf("%s %d: %s, %d, %s\n", name, version, result_name(r), (int)found, p ? "found" : "nothing");
}

int main(void)
{
	int version;
	CUmodule module;

	start();
	OK(cuDriverGetVersion(&version));
	printf("version %d\n", version);
	look_up("cuMemAlloc", 12040);
	look_up("cuMemAlloc", 12050);
	look_up("cuMemcpyBatchAsync", 12040);
	look_up("cuCtxCreate", 12040);
	SHOW(cuModuleLoadData(&module, ".version 9.0\n.target sm_75\n.address_size 64\n"));
	SHOW(cuModuleLoadData(&module, ".version 8.4\n.target sm_75\n.address_size 64\n"));
	return 0;
}
