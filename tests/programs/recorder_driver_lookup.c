/* Looks for the driver among the loaded libraries, before and after the program loads it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

static void look(const char *how, const char *name)
{
	dlerror();
	void *p = dlsym(RTLD_DEFAULT, name);

	printf("%s%s %d", how, name, p != NULL);
	printf(", an error %d\n", dlerror() != NULL);
}

int main(void)
{
	look("", "cuInit");
	look("", "cuMemAlloc_v2");
	if (!dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL)) {
		printf("no driver\n");
		return 0;
	}
	look("for all ", "cuInit");
	look("for all ", "cuNoSuchCall");
	return 0;
}
