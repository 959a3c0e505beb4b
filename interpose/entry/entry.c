/*
 * dlsym, cuGetProcAddress and the direct symbols. See entry.h for the invariant.
 */
#include "entry/entry.h"

#include "nvtx/abi.h"
#include "nvtx/nvtx.h"
#include "entry/pass_table.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct driver real;

const char *const call_names[CALL_COUNT] = {
#define X(symbol) #symbol,
	HOOK_TABLE(X)
#undef X
};

/* Every hooked call: its symbol, our wrapper, where the driver's address is kept. */
static const struct hook {
	const char *symbol;
	void *wrapper;
	void **member;
} hooks[CALL_COUNT] = {
#define X(symbol) {#symbol, (void *)symbol, (void **)&real.symbol},
	HOOK_TABLE(X)
#undef X
};

static const struct used {
	const char *symbol;
	void **member;
} used[] = {
#define X(symbol) {#symbol, (void **)&real.symbol},
	CALL_TABLE(X)
#undef X
};

typedef void *dlsym_fn(void *, const char *);
static dlsym_fn *real_dlsym;

#define SLOTS 1024 /* power of two, well above CALL_COUNT */
static struct slot { void *address, *wrapper; } by_address[SLOTS];
static const struct hook *by_symbol[SLOTS];
static char (*unknown)[96];

/* The names that programs ask for: those of the tables without version and default stream. */
#define NAMES 2048 /* power of two, above twice their number */
static struct name { const char *symbol; unsigned length; bool hooked; } by_name[NAMES];
static bool names_indexed;
static const char *unknown_list[ENTRY_UNKNOWN_MAX];
static unsigned unknown_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool resolved;


UNWATCHED static void find_dlsym(void)
{
	static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};

	for (unsigned i = 0; !real_dlsym && i < sizeof(versions) / sizeof(*versions); i++)
		real_dlsym = (dlsym_fn *)dlvsym(RTLD_NEXT, "dlsym", versions[i]);
	if (!real_dlsym)
		fputs("ttanalyze: no dlsym in this C library; the program can't look up symbols\n", stderr);
}

static unsigned hash_pointer(const void *p)
{
	return (unsigned)(((uintptr_t)p * 0x9e3779b97f4a7c15ull) >> 54) & (SLOTS - 1);
}

static unsigned hash_name(const char *s, size_t n)
{
	unsigned h = 2166136261u;

	while (n--)
		h = (h ^ (unsigned char)*s++) * 16777619u;
	return (h ^ h >> 15) & (SLOTS - 1);
}

static void index_symbols(void)
{
	for (unsigned i = 0; i < CALL_COUNT; i++) {
		unsigned h = hash_name(hooks[i].symbol, strlen(hooks[i].symbol));
		while (by_symbol[h])
			h = (h + 1) & (SLOTS - 1);
		by_symbol[h] = &hooks[i];
	}
}

__attribute__((constructor)) static void start(void)
{
	find_dlsym();
	index_symbols();
}

static const struct hook *hook_of_symbol(const char *name)
{
	for (unsigned h = hash_name(name, strlen(name)); by_symbol[h]; h = (h + 1) & (SLOTS - 1))
		if (!strcmp(by_symbol[h]->symbol, name))
			return by_symbol[h];
	return NULL;
}

static void *wrapper_of(void *address)
{
	for (unsigned h = hash_pointer(address); by_address[h].address; h = (h + 1) & (SLOTS - 1))
		if (by_address[h].address == address)
			return by_address[h].wrapper;
	return NULL;
}

/* A symbol of the driver itself: never our own export, which a global look-up finds first. */
static void *driver_symbol(void *handle, const char *symbol)
{
	void *p = real_dlsym(handle, symbol);
	const struct hook *h = hook_of_symbol(symbol);

	return h && p == h->wrapper ? NULL : p;
}

/* From an open driver library, take all addresses. Caller holds the lock. */
static void take_addresses(void *handle)
{
	for (unsigned i = 0; i < CALL_COUNT; i++) {
		void *p = driver_symbol(handle, hooks[i].symbol);
		unsigned h = hash_pointer(p);

		if (!p)
			continue;
		while (by_address[h].address && by_address[h].address != p)
			h = (h + 1) & (SLOTS - 1);
		if (!by_address[h].address) { /* aliases of one address: the first in the table stands for it */
			by_address[h].wrapper = hooks[i].wrapper;
			by_address[h].address = p;
		}
		__atomic_store_n(hooks[i].member, p, __ATOMIC_RELEASE);
	}
	for (unsigned i = 0; i < sizeof(used) / sizeof(*used); i++)
		*used[i].member = real_dlsym(handle, used[i].symbol);
	dlerror(); /* what this driver lacks is no error of the program's */
	__atomic_store_n(&resolved, true, __ATOMIC_RELEASE);
}

/* We use the driver until the process ends, though the program may close it before. */
static void keep_driver(void)
{
	Dl_info found;

	if (dladdr((void *)real.cuInit, &found))
		dlopen(found.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

static bool resolve_from(void *handle)
{
	bool first = false;

	if (likely(__atomic_load_n(&resolved, __ATOMIC_ACQUIRE)))
		return true;
	pthread_mutex_lock(&lock);
	if (!resolved && handle) {
		take_addresses(handle);
		first = true;
	}
	pthread_mutex_unlock(&lock);
	if (first)
		keep_driver();
	return resolved;
}

bool entry_resolve(void)
{
	if (likely(__atomic_load_n(&resolved, __ATOMIC_ACQUIRE)))
		return true;
	if (!real_dlsym)
		start(); /* called from another library's constructor, before ours ran */
	return resolve_from(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL));
}

bool entry_preloaded(void)
{
	void *program = dlopen(NULL, RTLD_NOW);
	bool found = real_dlsym && program && real_dlsym(program, "cuGetProcAddress_v2") == (void *)cuGetProcAddress_v2;

	if (program)
		dlclose(program);
	return found;
}

const void *entry_driver_address(unsigned call)
{
	return *hooks[call].member;
}

void entry_exchange(unsigned call, void **pointer, bool install)
{
	__atomic_store_n(hooks[call].member, *pointer, __ATOMIC_RELEASE);
	if (install)
		*pointer = hooks[call].wrapper;
}

bool entry_resolve_for(void **member)
{
	return entry_resolve() && *member;
}

const char *entry_lacks(void)
{
#define X(symbol) \
	if (!real.symbol) \
		return #symbol;
	NEED_TABLE(X)
#undef X
	return NULL;
}

UNWATCHED static bool driver_name(const char *name)
{
	return name && name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

/*
 * Our export came first in a global look-up. Without us the next one would have been found, or
 * the driver in a library's own scope, which only the library's own look-ups reach: we give the
 * wrapper where there is any driver in the process that has the call.
 */
static void *instead_of_ours(const struct hook *h)
{
	void *driver;

	if (real_dlsym(RTLD_NEXT, h->symbol))
		return h->wrapper;
	driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	void *p = driver ? real_dlsym(driver, h->symbol) : real_dlsym(RTLD_NEXT, h->symbol);
	if (driver)
		dlclose(driver);
	return p ? h->wrapper : NULL;
}

static void *driver_dlsym(void *handle, const struct hook *h)
{
	void *p = real_dlsym(handle, h->symbol);

	if (!p)
		return p;
	if (p == h->wrapper)
		return instead_of_ours(h);
	/* Another library's own symbol of that name, a second interposer say, is left alone unless
	 * it is the first we hear of a driver at all. */
	if (!resolve_from(handle == RTLD_DEFAULT || handle == RTLD_NEXT ? NULL : handle) && !entry_resolve())
		return p;
	void *w = wrapper_of(p);
	return w ? w : p;
}

void (*_Atomic entry_cupti_taken)(void);

UNWATCHED static bool takes_cupti(const char *name)
{
	return name && name[0] == 'c' && name[1] == 'u' && name[2] == 'p' && atomic_load(&entry_cupti_taken) &&
	       (!strncmp(name, "cuptiSubscribe", 14) || !strcmp(name, "cuptiActivityRegisterCallbacks"));
}

/* By which modules that use NVTX find a tool. */
UNWATCHED static bool nvtx_name(const char *name)
{
	return name && name[0] == 'I' && !strcmp(name, NVTX_INITIALIZE);
}

/*
 * Names that we do not wrap are passed on by a tail call, so that RTLD_NEXT and RTLD_DEFAULT see
 * the program's return address and not ours.
 */
UNWATCHED EXPORT __attribute__((optimize("optimize-sibling-calls"))) void *dlsym(void *restrict handle,
								     const char *restrict name)
{
	if (unlikely(!real_dlsym)) {
		find_dlsym();
		if (!real_dlsym)
			return NULL;
	}
	if (unlikely(driver_name(name)) && handle != RTLD_NEXT) {
		if (unlikely(!by_symbol[hash_name("cuInit", 6)]))
			start();
		const struct hook *h = hook_of_symbol(name);
		if (h)
			return driver_dlsym(handle, h);
	}
	if (unlikely(nvtx_name(name)) && handle != RTLD_NEXT)
		return nvtx_instead_of(real_dlsym(handle, name));
	if (unlikely(takes_cupti(name)))
		atomic_load(&entry_cupti_taken)();
	return real_dlsym(handle, name);
}

/* Where the name is or belongs. */
static struct name *name_slot(const char *name, size_t length)
{
	unsigned h = hash_name(name, length);

	while (by_name[h].symbol && (by_name[h].length != length || memcmp(by_name[h].symbol, name, length)))
		h = (h + 1) & (NAMES - 1);
	return &by_name[h];
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
	CALL_TABLE(X) PASS_TABLE(X)
#undef X
	names_indexed = true;
}

/* The driver gave something that is none of ours for it. */
static void note_unknown(const char *name, int version, uint64_t flags)
{
	char text[96];

	snprintf(text, sizeof(text), "%s:%d:%llu", name, version, (unsigned long long)flags);
	pthread_mutex_lock(&lock);
	if (!names_indexed)
		index_names();
	const struct name *known = name_slot(name, strlen(name));
	if (known->symbol && !known->hooked) {
		pthread_mutex_unlock(&lock);
		return;
	}
	if (!unknown)
		unknown = calloc(ENTRY_UNKNOWN_MAX, sizeof(*unknown));
	for (unsigned i = 0; i < unknown_count; i++)
		if (!strcmp(unknown_list[i], text)) {
			pthread_mutex_unlock(&lock);
			return;
		}
	if (unknown && unknown_count < ENTRY_UNKNOWN_MAX) {
		strcpy(unknown[unknown_count], text);
		unknown_list[unknown_count] = unknown[unknown_count];
		__atomic_store_n(&unknown_count, unknown_count + 1, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&lock);
}

unsigned entry_unknown_calls(const char *const **list)
{
	*list = unknown_list;
	return __atomic_load_n(&unknown_count, __ATOMIC_ACQUIRE);
}

static void substitute(const char *name, void **address, int version, uint64_t flags)
{
	if (!name || !address || !*address || !entry_resolve())
		return;
	void *w = wrapper_of(*address);
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
