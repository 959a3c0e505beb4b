/* A program that has nothing to do with CUDA. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int main(void)
{
	printf("hello %d\n", dlsym(RTLD_DEFAULT, "printf") != NULL);
	return 0;
}
