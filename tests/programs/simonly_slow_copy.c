/* TT_SIM_FAULT=slow-copy:50000: a copy takes that many microseconds. */
#include "program.h"

#include <time.h>

int main(void)
{
	struct timespec begin, end;
	char host[100] = "";

	start();
	CUdeviceptr p = allocate(100);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	OK(cuMemcpyHtoD(p, host, 100));
	clock_gettime(CLOCK_MONOTONIC, &end);
	long us = (end.tv_sec - begin.tv_sec) * 1000000 + (end.tv_nsec - begin.tv_nsec) / 1000;
	printf("slow %d\n", us >= 50000);
	return 0;
}
