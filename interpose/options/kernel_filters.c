/*
 * Chooses kernels by name. See kernel_filters.h.
 */
#include "options/kernel_filters.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "options/options.h"

typedef char *(*demangler)(const char *mangled, char *buffer, size_t *size, int *status);

static demangler demangle; /* NULL: no C++ library */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The program's own C++ library if it has one, so that no second one is loaded. */
static void find_demangler(void)
{
	static const char name[] = "__cxa_demangle";
	void *library = NULL;

	demangle = (demangler)dlsym(RTLD_DEFAULT, name);
	if (!demangle && (library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_LOCAL)))
		demangle = (demangler)dlsym(library, name);
}

static bool has_one(const char *name)
{
	char filters[sizeof(options.kernel_filters)], *rest = filters, *filter;

	memcpy(filters, options.kernel_filters, sizeof(filters));
	while ((filter = strsep(&rest, ",")))
		if (strstr(name, filter))
			return true;
	return false;
}

/* Whether a list of names, separated by commas, has this one. */
static bool is_named(const char *names, const char *name)
{
	size_t length = strlen(name);

	for (const char *at = names; (at = strstr(at, name)); at += length)
		if ((at == names || at[-1] == ',') && (!at[length] || at[length] == ','))
			return true;
	return false;
}

static bool is_filtered(const char *mangled)
{
	char *readable;
	int status;

	if (has_one(mangled))
		return true;
	if (strncmp(mangled, "_Z", 2))
		return false;
	pthread_once(&once, find_demangler);
	readable = demangle ? demangle(mangled, NULL, NULL, &status) : NULL;
	bool found = readable && has_one(readable);
	free(readable);
	return found;
}

bool kernel_is_wanted(const struct expressions *e, const char *mangled)
{
	return (!e->count || expressions_match(e, mangled)) && (!*options.kernel_filters || is_filtered(mangled)) &&
	       (!*options.kernel_names || is_named(options.kernel_names, mangled));
}
