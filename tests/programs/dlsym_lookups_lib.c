/* The library of dlsym_lookups.c. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

int strverscmp(const char *a, const char *b)
{
	int (*next)(const char *, const char *) = (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "strverscmp");

	return next(a, b) + 1000;
}

/* Calls the interposed one from inside. */
int shout(void)
{
	return strverscmp("7", "7") * 2;
}

const void *next_driver_call(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}
