/*
 * Leaves CUPTI to a program that uses it: intercepts the calls that register with CUPTI, by symbol or by dlsym.
 *
 * Invariant: the program's call is made unchanged, after the recorder has released CUPTI.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "cupti_abi.h"
#include "util/compiler.h"
#include "timeline/timeline.h"

static int find_cupti(struct dl_phdr_info *info, size_t size, void *into)
{
	const char *base = strrchr(info->dlpi_name, '/');

	(void)size;
	if (!base || strncmp(base, "/libcupti.so", 12))
		return 0;
	*(const char **)into = info->dlpi_name;
	return 1;
}

/* The symbol in the caller's own scope, as without the recorder; else in any loaded CUPTI. */
static void *next_of(const void *caller, const char *symbol)
{
	const char *path = NULL;
	void *handle, *found = NULL, *ours = NULL;
	Dl_info info;

	if (dladdr((void *)next_of, &info))
		ours = info.dli_fbase;
	if (dladdr(caller, &info) && (handle = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD))) {
		found = dlsym(handle, symbol);
		dlclose(handle);
	}
	if (found && dladdr(found, &info) && info.dli_fbase != ours)
		return found;
	dl_iterate_phdr(find_cupti, &path);
	if (!path || !(handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD)))
		return NULL;
	found = dlsym(handle, symbol);
	dlclose(handle);
	return found;
}

#define TAKES(name, params, args) \
	EXPORT CUptiResult name params \
	{ \
		CUptiResult(*next) params; \
		timeline_give_way(); \
		*(void **)&next = next_of(__builtin_return_address(0), #name); \
		return next ? next args : CUPTI_ERROR_UNKNOWN; \
	}

TAKES(cuptiSubscribe, (void **subscriber, cupti_callback callback, void *user), (subscriber, callback, user))
TAKES(cuptiSubscribe_v2, (void **subscriber, cupti_callback callback, void *user, void *params), (subscriber, callback, user, params))
TAKES(cuptiActivityRegisterCallbacks, (cupti_request request, cupti_complete complete), (request, complete))
