/* TT_SIM_FAULT=oom:3: the third call that allocates fails, and only that one. */
#include "program.h"

int main(void)
{
	CUdeviceptr p, q, r, s;
	void *host;

	start();
	SHOW(cuMemAlloc(&p, 100));
	SHOW(cuMemAllocHost(&host, 100));
	SHOW(cuMemAlloc(&q, 100));
	SHOW(cuMemAllocAsync(&r, 100, NULL));
	SHOW(cuMemAllocManaged(&s, 100, CU_MEM_ATTACH_GLOBAL));
	return 0;
}
