/*
 * Returns the driver's functions by name.
 *
 * Invariant: cuGetProcAddress returns the newest form of a name that the given version has, at the
 * same address as dlsym returns for its symbol.
 */
#include <stdio.h>
#include <string.h>

#include "sim/driver/driver.h"

/* The table needs only addresses; function declarations would need every type. */
#define SYMBOL(name) tt_address_of_##name
#define DECLARE(name) extern const char SYMBOL(name)[] __asm__(#name) __attribute__((visibility("protected")));
#define ENTRY(base, version, symbol, own) DECLARE(symbol) DECLARE(own)
#define NONE cuInit
#include "sim/driver/entry_table.h"
#undef NONE
#undef ENTRY

static const struct entry {
	const char *base;
	int version;
	const void *symbol, *own; /* own NULL: no per-thread form */
} entries[] = {
#define tt_address_of_NONE NULL
#define ENTRY(base, version, symbol, own) {#base, version, SYMBOL(symbol), SYMBOL(own)},
#include "sim/driver/entry_table.h"
#undef ENTRY
};

#define ENTRY_COUNT (sizeof entries / sizeof *entries)
#define FIRST_OWN_VERSION 7000

static const void *look_up(const char *name, int version, bool own, CUdriverProcAddressQueryResult *found)
{
	const void *address = NULL;
	bool has_own = false;

	for (size_t i = 0; i < ENTRY_COUNT; i++)
		has_own |= entries[i].own && !strcmp(entries[i].base, name);
	*found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	own = own && has_own;
	for (size_t i = 0; i < ENTRY_COUNT; i++) {
		const struct entry *e = &entries[i];
		int since = own && e->version < FIRST_OWN_VERSION ? FIRST_OWN_VERSION : e->version;
		if (strcmp(e->base, name) || (own && !e->own) || since > sim_settings.driver_version)
			continue;
		if (since <= version)
			address = own ? e->own : e->symbol;
		*found = address ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
	}
	return address;
}

CUresult cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
			     CUdriverProcAddressQueryResult *found)
{
	CUdriverProcAddressQueryResult unused;

	settings_load();
	if (!name || !function || flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM ||
	    version > sim_settings.driver_version)
		return CUDA_ERROR_INVALID_VALUE;
	*function = (void *)(uintptr_t)look_up(name, version, flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
					       found ? found : &unused);
	return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags)
{
	CUdriverProcAddressQueryResult found;
	CUresult result = cuGetProcAddress_v2(name, function, version, flags, &found);

	return !result && found != CU_GET_PROC_ADDRESS_SUCCESS ? CUDA_ERROR_NOT_FOUND : result;
}

/*
 * NVIDIA's runtime asks for tables of calls without names, one of them to find out whether the driver is NVIDIA's. This one
 * is not and does not say so: programs use the runtime of sim/runtime. In one that contains NVIDIA's, sim/preload puts it there.
 */
CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
	CUresult result = sim_life();
	char text[40];
	int n = 0;

	if (result)
		return result;
	if (!table || !id)
		return CUDA_ERROR_INVALID_VALUE;
	*table = NULL;
	for (unsigned i = 0; i < sizeof id->bytes; i++)
		n += snprintf(text + n, sizeof text - (size_t)n, "%s%02x", i >= 4 && i <= 10 && i % 2 == 0 ? "-" : "",
			      (unsigned char)id->bytes[i]);
	sim_note("the driver's export table %s is not there: preload libttstatic.so, as record --sim does, or use a GPU", text);
	return CUDA_ERROR_NOT_SUPPORTED;
}
