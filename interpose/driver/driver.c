/*
 * The driver's functions, and the wrapper for an address. See driver.h for the invariant.
 */
#include "driver/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct driver real;

const char *const call_names[CALL_COUNT] = {
#define X(symbol) #symbol,
	HOOK_TABLE(X)
#undef X
};

/* Each hooked call: its symbol, the wrapper, where the driver's address is stored. */
static const struct hook hooks[CALL_COUNT] = {
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

driver_dlsym_fn *driver_dlsym;

#define SLOTS 1024 /* power of two, well above CALL_COUNT */
static struct {
	struct {
		void *address, *wrapper;
	} by_address[SLOTS];
	const struct hook *by_symbol[SLOTS];
	bool indexed, resolved;
	pthread_mutex_t lock;
} known = {.lock = PTHREAD_MUTEX_INITIALIZER};

UNWATCHED void driver_find_dlsym(void)
{
	static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};

	for (unsigned i = 0; !driver_dlsym && i < sizeof(versions) / sizeof(*versions); i++)
		driver_dlsym = (driver_dlsym_fn *)dlvsym(RTLD_NEXT, "dlsym", versions[i]);
	if (!driver_dlsym)
		fputs("ttanalyze: no dlsym in this C library; the program can't look up symbols\n", stderr);
}

static unsigned hash_pointer(const void *p)
{
	return (unsigned)(((uintptr_t)p * 0x9e3779b97f4a7c15ull) >> 54) & (SLOTS - 1);
}

static void index_symbols(void)
{
	for (unsigned i = 0; i < CALL_COUNT; i++) {
		unsigned h = name_hash(hooks[i].symbol, strlen(hooks[i].symbol)) & (SLOTS - 1);
		while (known.by_symbol[h])
			h = (h + 1) & (SLOTS - 1);
		known.by_symbol[h] = &hooks[i];
	}
}

/* Another library's constructor may make calls before this one runs. */
__attribute__((constructor)) void driver_begin(void)
{
	driver_find_dlsym();
	if (!known.indexed)
		index_symbols();
	known.indexed = true;
}

const struct hook *driver_hook_of(const char *name)
{
	for (unsigned h = name_hash(name, strlen(name)) & (SLOTS - 1); known.by_symbol[h]; h = (h + 1) & (SLOTS - 1))
		if (!strcmp(known.by_symbol[h]->symbol, name))
			return known.by_symbol[h];
	return NULL;
}

void *driver_wrapper_of(void *address)
{
	for (unsigned h = hash_pointer(address); known.by_address[h].address; h = (h + 1) & (SLOTS - 1))
		if (known.by_address[h].address == address)
			return known.by_address[h].wrapper;
	return NULL;
}

/* A symbol of the driver itself, not the recorder's export, which a global lookup finds first. */
static void *driver_symbol(void *handle, const char *symbol)
{
	void *p = driver_dlsym(handle, symbol);
	const struct hook *h = driver_hook_of(symbol);

	return h && p == h->wrapper ? NULL : p;
}

/* Takes all addresses from an open driver library. Caller holds the lock. */
static void take_addresses(void *handle)
{
	for (unsigned i = 0; i < CALL_COUNT; i++) {
		void *p = driver_symbol(handle, hooks[i].symbol);
		unsigned h = hash_pointer(p);

		if (!p)
			continue;
		while (known.by_address[h].address && known.by_address[h].address != p)
			h = (h + 1) & (SLOTS - 1);
		if (!known.by_address[h].address) { /* the first of several aliases in the table represents them */
			known.by_address[h].wrapper = hooks[i].wrapper;
			known.by_address[h].address = p;
		}
		__atomic_store_n(hooks[i].member, p, __ATOMIC_RELEASE);
	}
	for (unsigned i = 0; i < sizeof(used) / sizeof(*used); i++)
		*used[i].member = driver_dlsym(handle, used[i].symbol);
	dlerror(); /* the program must not see this error of a missing call */
	__atomic_store_n(&known.resolved, true, __ATOMIC_RELEASE);
}

/* The recorder uses the driver until the process ends, but the program may close it earlier. */
static void keep_driver(void)
{
	Dl_info found;

	if (dladdr((void *)real.cuInit, &found))
		dlopen(found.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

bool driver_resolve_from(void *handle)
{
	bool first = false;

	if (likely(__atomic_load_n(&known.resolved, __ATOMIC_ACQUIRE)))
		return true;
	pthread_mutex_lock(&known.lock);
	if (!known.resolved && handle) {
		take_addresses(handle);
		first = true;
	}
	pthread_mutex_unlock(&known.lock);
	if (first)
		keep_driver();
	return known.resolved;
}

bool driver_resolve(void)
{
	if (likely(__atomic_load_n(&known.resolved, __ATOMIC_ACQUIRE)))
		return true;
	if (!driver_dlsym)
		driver_begin();
	return driver_resolve_from(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL));
}

const struct hook *driver_hook(unsigned call)
{
	return &hooks[call];
}

const void *driver_address(unsigned call)
{
	return *hooks[call].member;
}

void driver_exchange(unsigned call, void **pointer, bool install)
{
	__atomic_store_n(hooks[call].member, *pointer, __ATOMIC_RELEASE);
	if (install)
		*pointer = hooks[call].wrapper;
}

bool driver_resolve_for(void **member)
{
	return driver_resolve() && *member;
}

const char *driver_lacks(void)
{
#define X(symbol) \
	if (!real.symbol) \
		return #symbol;
	NEED_TABLE(X)
#undef X
	return NULL;
}

bool driver_context_lost(CUresult r)
{
	switch (r) {
	case CUDA_ERROR_ECC_UNCORRECTABLE:
	case CUDA_ERROR_NVLINK_UNCORRECTABLE:
	case CUDA_ERROR_CONTAINED:
	case CUDA_ERROR_ILLEGAL_ADDRESS:
	case CUDA_ERROR_LAUNCH_TIMEOUT:
	case CUDA_ERROR_ASSERT:
	case CUDA_ERROR_HARDWARE_STACK_ERROR:
	case CUDA_ERROR_ILLEGAL_INSTRUCTION:
	case CUDA_ERROR_MISALIGNED_ADDRESS:
	case CUDA_ERROR_INVALID_ADDRESS_SPACE:
	case CUDA_ERROR_INVALID_PC:
	case CUDA_ERROR_LAUNCH_FAILED:
	case CUDA_ERROR_TENSOR_MEMORY_LEAK:
	case CUDA_ERROR_EXTERNAL_DEVICE:
		return true;
	default:
		return false;
	}
}
