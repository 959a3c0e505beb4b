/* The program may write no file of more than a page. */
#include "program.h"

#include <sys/resource.h>

int main(void)
{
	struct rlimit limit = {4096, 4096};

	setenv("CUDA_CACHE_DISABLE", "1", 1); /* the driver writes no compiled kernels to disk */
	setrlimit(RLIMIT_FSIZE, &limit);
	start();
	struct work w = begin_work();
	do_step(&w);
	do_step(&w);
	OK(cuMemFree(w.data));
	return 0;
}
