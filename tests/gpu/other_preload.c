/*
 * A preloaded library of somebody else: it wraps dlsym and the launches of the CUDA runtime, and
 * counts both.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>

typedef struct {
	unsigned x, y, z;
} dim3;

static atomic_int launches, lookups;

int other_launches(void)
{
	return launches;
}

int other_lookups(void)
{
	return lookups;
}

static void *next(const char *name)
{
	static void *(*real)(void *, const char *);
	if (!real)
		real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
	if (!real)
		real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
	void *found = real(RTLD_NEXT, name);
	if (found)
		return found;
	void *runtime = dlopen("libcudart.so.13", RTLD_LAZY | RTLD_NOLOAD);
	return runtime ? real(runtime, name) : NULL;
}

void *dlsym(void *handle, const char *name)
{
	static void *(*real)(void *, const char *);
	if (!real)
		real = (void *(*)(void *, const char *))next("dlsym");
	lookups++;
	return real(handle, name);
}

int cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
	void *stream)
{
	static int (*real)(const void *, dim3, dim3, void **, size_t, void *);
	if (!real)
		real = (int (*)(const void *, dim3, dim3, void **, size_t, void *))next("cudaLaunchKernel");
	launches++;
	return real(function, grid, block, arguments, shared, stream);
}
