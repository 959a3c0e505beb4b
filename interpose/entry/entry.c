/*
 * dlsym, cuGetProcAddress and the direct symbols. See entry.h for the invariant.
 */
#include "entry/entry.h"

#include "nvtx_abi.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* The names that programs look up: those of the tables, without version and default stream. */
#define NAMES 2048 /* a power of two above twice their number */
static struct {
	pthread_mutex_t lock;
	struct name {
		const char *symbol;
		unsigned length;
		bool hooked;
	} by_name[NAMES];
	bool indexed;
	const char *unknown[ENTRY_UNKNOWN_MAX];
	unsigned unknown_count;
} names = {.lock = PTHREAD_MUTEX_INITIALIZER};

bool entry_preloaded(void)
{
	void *program = dlopen(NULL, RTLD_NOW);
	bool found = driver_dlsym && program && driver_dlsym(program, "cuGetProcAddress_v2") == (void *)cuGetProcAddress_v2;

	if (program)
		dlclose(program);
	return found;
}

UNWATCHED static bool driver_name(const char *name)
{
	return name && name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

/*
 * The recorder's export was first in a global lookup. Without the recorder, the lookup finds the next one, or the
 * driver in a library's own scope, which only that library's lookups reach. So return the wrapper if any driver in
 * the process has the call.
 */
static void *instead_of_ours(const struct hook *h)
{
	void *driver;

	if (driver_dlsym(RTLD_NEXT, h->symbol))
		return h->wrapper;
	driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	void *p = driver ? driver_dlsym(driver, h->symbol) : driver_dlsym(RTLD_NEXT, h->symbol);
	if (driver)
		dlclose(driver);
	return p ? h->wrapper : NULL;
}

static void *look_up(void *handle, const struct hook *h)
{
	void *p = driver_dlsym(handle, h->symbol);

	if (!p)
		return p;
	if (p == h->wrapper)
		return instead_of_ours(h);
	/*
	 * Another library's symbol of that name, for example of a second interposer, is returned unchanged, unless
	 * no driver was seen before.
	 */
	if (!driver_resolve_from(handle == RTLD_DEFAULT || handle == RTLD_NEXT ? NULL : handle) && !driver_resolve())
		return p;
	void *w = driver_wrapper_of(p);
	return w ? w : p;
}

void (*_Atomic entry_cupti_taken)(void);

UNWATCHED static bool takes_cupti(const char *name)
{
	return name && name[0] == 'c' && name[1] == 'u' && name[2] == 'p' && atomic_load(&entry_cupti_taken) &&
	       (!strncmp(name, "cuptiSubscribe", 14) || !strcmp(name, "cuptiActivityRegisterCallbacks"));
}

/* The symbols by which modules that use NVTX find a tool. */
UNWATCHED static bool nvtx_name(const char *name)
{
	return name && name[0] == 'I' && (!strcmp(name, NVTX_INITIALIZE) || !strcmp(name, NVTX_INITIALIZE_EXTENSION));
}

/*
 * Unwrapped names are passed on by a tail call, so that RTLD_NEXT and RTLD_DEFAULT see the program's return
 * address.
 */
UNWATCHED EXPORT TAIL_CALLS void *dlsym(void *restrict handle, const char *restrict name)
{
	if (unlikely(!driver_dlsym)) {
		driver_find_dlsym();
		if (!driver_dlsym)
			return NULL;
	}
	if (unlikely(driver_name(name)) && handle != RTLD_NEXT) {
		driver_begin();
		const struct hook *h = driver_hook_of(name);
		if (h)
			return look_up(handle, h);
	}
	if (unlikely(nvtx_name(name)) && handle != RTLD_NEXT)
		return entry_nvtx_tool(name, driver_dlsym(handle, name));
	if (unlikely(takes_cupti(name)))
		atomic_load (&entry_cupti_taken)();
	return driver_dlsym(handle, name);
}

/* The slot that has the name, or where it belongs. */
static struct name *name_slot(const char *name, size_t length)
{
	unsigned h = name_hash(name, length) & (NAMES - 1);

	while (names.by_name[h].symbol && (names.by_name[h].length != length || memcmp(names.by_name[h].symbol, name, length)))
		h = (h + 1) & (NAMES - 1);
	return &names.by_name[h];
}

/* "cuMemAlloc" is the name of cuMemAlloc_v2, and "cuMemcpy" that of cuMemcpy_ptds. */
static void index_name(const char *symbol, bool hooked)
{
	size_t length = strcspn(symbol, "_");
	struct name *n = name_slot(symbol, length);

	*n = (struct name){symbol, (unsigned)length, hooked || n->hooked};
}

static void index_names(void)
{
#define X(symbol) index_name(#symbol, true);
	HOOK_TABLE(X)
#undef X
#define X(symbol) index_name(#symbol, false);
	CALL_TABLE(X)
	PASS_TABLE(X)
#undef X
	names.indexed = true;
}

/* The driver returned an address that has no wrapper. */
static void note_unknown(const char *name, int version, uint64_t flags)
{
	char text[96];

	snprintf(text, sizeof(text), "%s:%d:%llu", name, version, (unsigned long long)flags);
	pthread_mutex_lock(&names.lock);
	if (!names.indexed)
		index_names();
	const struct name *known = name_slot(name, strlen(name));
	bool is_new = (!known->symbol || known->hooked) && names.unknown_count < ENTRY_UNKNOWN_MAX;
	for (unsigned i = 0; is_new && i < names.unknown_count; i++)
		is_new = strcmp(names.unknown[i], text) != 0;
	if (is_new && (names.unknown[names.unknown_count] = strdup(text)))
		__atomic_store_n(&names.unknown_count, names.unknown_count + 1, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&names.lock);
}

unsigned entry_unknown_calls(const char *const **list)
{
	*list = names.unknown;
	return __atomic_load_n(&names.unknown_count, __ATOMIC_ACQUIRE);
}

static void substitute(const char *name, void **address, int version, uint64_t flags)
{
	if (!name || !address || !*address || !driver_resolve())
		return;
	void *w = driver_wrapper_of(*address);
	if (w)
		*address = w;
	else if (driver_name(name))
		note_unknown(name, version, flags);
}

EXPORT CUresult CUDAAPI cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
	if (!REAL(cuGetProcAddress))
		return CUDA_ERROR_NOT_FOUND;
	CUresult r = real.cuGetProcAddress(symbol, pfn, version, flags);
	if (r == CUDA_SUCCESS)
		substitute(symbol, pfn, version, flags);
	return r;
}

EXPORT CUresult CUDAAPI cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
					    CUdriverProcAddressQueryResult *status)
{
	if (!REAL(cuGetProcAddress_v2))
		return CUDA_ERROR_NOT_FOUND;
	CUresult r = real.cuGetProcAddress_v2(symbol, pfn, version, flags, status);
	if (r == CUDA_SUCCESS)
		substitute(symbol, pfn, version, flags);
	return r;
}
