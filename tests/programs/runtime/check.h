/* What programs on the CUDA runtime share. Each prints one line, which its first line gives. */
#ifndef TEST_CHECK_H
#define TEST_CHECK_H

#include <cstdio>
#include <cstdlib>
#define OK(call) \
	do { \
		cudaError_t e = (call); \
		if (e != cudaSuccess) { \
			printf("%s: %s\n", #call, cudaGetErrorString(e)); \
			exit(1); \
		} \
	} while (0)

#endif
