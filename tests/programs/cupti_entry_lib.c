/*
 * A driver whose calls CUPTI reports, and that CUPTI. It stands before the simulator ($SIMULATOR), which handles the
 * calls. Both are the same library, by the names libcuda.so.1 and libcupti.so.13.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/call_table.h"
#include "entry/call_arguments.h"

enum {
	NO_CALL,
#define X(symbol) ID_##symbol,
	HOOK_TABLE(X)
#undef X
		CALLS
};

static const char *const names[CALLS] = {
#define X(symbol) [ID_##symbol] = #symbol,
	HOOK_TABLE(X)
#undef X
};

static const char *const sizes[CALLS] = {
#define X(symbol, text) [ID_##symbol] = text,
	CALL_ARGUMENTS(X)
#undef X
};

struct call {
	uint32_t site;
	const char *name;
	const void *params;
	void *result;
	const char *symbol;
	void *context;
	uint32_t context_id;
	uint64_t *data;
	uint32_t correlation;
};

typedef uint64_t arguments[11];
typedef uint32_t any_call(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
			  uint64_t);

static void (*tell)(void *user, uint32_t domain, uint32_t id, const struct call *call);
static unsigned char enabled[CALLS];
static _Atomic uint32_t correlation;

static any_call *behind(const char *name)
{
	static void *simulator;

	if (!simulator && !(simulator = dlopen(getenv("SIMULATOR"), RTLD_NOW | RTLD_LOCAL)))
		abort();
	return (any_call *)(uintptr_t)dlsym(simulator, name);
}

static uint32_t call(const char *name, unsigned id, const uint64_t *a)
{
	unsigned char params[11 * 8] = {0};
	any_call *next = behind(name);
	size_t at = 0;
	uint32_t result = 0;

	for (unsigned i = 0; id && sizes[id] && sizes[id][i]; i++) {
		size_t size = (size_t)(sizes[id][i] - '0');
		at = (at + size - 1) / size * size;
		memcpy(params + at, &a[i], size);
		at += size;
	}
	struct call told = {.name = name, .params = params, .result = &result, .correlation = ++correlation};
	if (enabled[id])
		tell(NULL, 1, id, &told);
	result = next(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10]);
	told.site = 1;
	if (enabled[id])
		tell(NULL, 1, id, &told);
	return result;
}

#define CALL(symbol, id) \
	uint32_t symbol(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h, \
			uint64_t i, uint64_t j, uint64_t k) \
	{ \
		return call(#symbol, id, (arguments){a, b, c, d, e, f, g, h, i, j, k}); \
	}
#define X(symbol) CALL(symbol, ID_##symbol)
HOOK_TABLE(X)
#undef X
#define X(symbol) CALL(symbol, NO_CALL)
CALL_TABLE(X)
PASS_TABLE(X)
#undef X

/* ---- CUPTI ---- */

int cuptiSubscribe(void **subscriber, void *callback, void *user)
{
	(void)user;
	if (getenv("TAKEN"))
		return 39;
	*subscriber = &tell;
	*(void **)&tell = callback;
	return 0;
}

int cuptiEnableCallback(uint32_t enable, void *subscriber, uint32_t domain, uint32_t id)
{
	(void)subscriber;
	(void)domain;
	enabled[id] = (unsigned char)enable;
	return 0;
}

int cuptiGetCallbackName(uint32_t domain, uint32_t id, const char **name)
{
	(void)domain;
	if (!id || id >= CALLS)
		return 1;
	*name = names[id];
	return 0;
}

#define UNUSED(name) \
	int name(void) \
	{ \
		return 999; \
	}
UNUSED(cuptiGetVersion)
UNUSED(cuptiActivityRegisterTimestampCallback)
UNUSED(cuptiActivityRegisterCallbacks)
UNUSED(cuptiActivityEnable)
UNUSED(cuptiActivitySetAttribute)
UNUSED(cuptiActivityDisable)
UNUSED(cuptiActivityFlushAll)
UNUSED(cuptiActivityGetNextRecord)
UNUSED(cuptiActivityGetNumDroppedRecords)
UNUSED(cuptiGetContextId)
UNUSED(cuptiUnsubscribe)
