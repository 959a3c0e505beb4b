/*
 * Finds the library of CUPTI.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "entry/entry.h"

static void *open_beside(const char *path, const char *name)
{
	const char *slash = strrchr(path, '/');
	char beside[4096];

	if (!slash || (size_t)snprintf(beside, sizeof(beside), "%.*s/%s", (int)(slash - path), path, name) >= sizeof(beside))
		return NULL;
	return dlopen(beside, RTLD_NOW | RTLD_LOCAL);
}

struct search {
	char paths[8][1024];
	unsigned count;
};

static int note_cuda_library(struct dl_phdr_info *info, size_t size, void *into)
{
	const char *base = strrchr(info->dlpi_name, '/');
	struct search *s = into;

	(void)size;
	if (base && (!strncmp(base, "/libcu", 6) || !strncmp(base, "/libnv", 6)) && strncmp(base, "/libcuda.", 9) &&
	    s->count < sizeof(s->paths) / sizeof(*s->paths) && strlen(info->dlpi_name) < sizeof(*s->paths))
		strcpy(s->paths[s->count++], info->dlpi_name);
	return 0;
}

static void *open_in(const char *directory, const char *name)
{
	static const char *const folders[] = {"lib64", "extras/CUPTI/lib64", "lib"};
	char path[4096];
	void *handle = NULL;

	for (size_t i = 0; directory && !handle && i < sizeof(folders) / sizeof(*folders); i++)
		if ((size_t)snprintf(path, sizeof(path), "%s/%s/%s", directory, folders[i], name) < sizeof(path))
			handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	return handle;
}

void *cupti_find_library(void)
{
	struct search s = {0};
	char name[32];
	void *handle;
	int driver = 0;

	real.cuDriverGetVersion(&driver);
	snprintf(name, sizeof(name), "libcupti.so.%d", driver / 1000);
	if ((handle = dlopen(name, RTLD_NOW | RTLD_LOCAL)))
		return handle;
	dl_iterate_phdr(note_cuda_library, &s);
	for (unsigned i = 0; !handle && i < s.count; i++)
		handle = open_beside(s.paths[i], name);
	if (!handle)
		handle = open_in(secure_getenv("CUDA_HOME"), name);
	if (!handle)
		handle = open_in(secure_getenv("CUDA_PATH"), name);
	return handle ? handle : open_in("/usr/local/cuda", name);
}
