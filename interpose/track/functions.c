/*
 * Functions of modules. See functions.h for the invariant.
 */
#include "track/functions.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "options/kernel_filters.h"
#include "options/options.h"
#include "session/session.h"
#include "store/store.h"
#include "track/modules_internal.h"
#include "util/clock.h"

/*
 * A launch may still use a function or a lookup while another thread unloads its module. So a lookup's memory is
 * reused only for lookups, and a function's only after this many others were unloaded later.
 */
#define GONE_KEPT 256

HOT_DATA struct handle_table *_Atomic function_lookups;

static struct {
	struct function *list;
	struct function *gone, **gone_end; /* of unloaded modules, oldest first */
	size_t gone_count;
	struct lookup *spare_lookups;
	uint32_t count;
} functions = {.gone_end = &functions.gone};

static void no_memory(void)
{
	session_fail("no host memory for a kernel");
}

static void lookup_add(void *handle, struct function *f, bool kernel)
{
	struct lookup *l = functions.spare_lookups ? functions.spare_lookups
						   : (functions.spare_lookups = calloc(1, sizeof(*l)));

	if (l) {
		l->function = f;
		l->kernel = kernel;
		atomic_store_explicit(&l->handle, handle, memory_order_release);
	}
	if (!l || !handle_add(&function_lookups, &l->handle)) {
		no_memory();
		return;
	}
	functions.spare_lookups = l->next;
	l->next = f->lookups;
	f->lookups = l;
}

/* The driver reuses handles of an unloaded module. */
static void lookups_forget(struct function *f)
{
	for (struct lookup *l; (l = f->lookups);) {
		f->lookups = l->next;
		handle_remove(&function_lookups, &l->handle);
		atomic_store(&l->handle, l); /* equals no handle of the driver */
		l->next = functions.spare_lookups;
		functions.spare_lookups = l;
	}
}

void functions_forget(uint32_t module)
{
	for (struct function **link = &functions.list; *link;) {
		struct function *f = *link;
		if (f->module != module) {
			link = &f->next;
			continue;
		}
		lookups_forget(f);
		*link = f->next;
		f->next = NULL;
		*functions.gone_end = f;
		functions.gone_end = &f->next;
		functions.gone_count++;
	}
}

/* All zeros; NULL: no memory. */
static struct function *function_new(void)
{
	struct function *f = functions.gone;

	if (functions.gone_count <= GONE_KEPT)
		return calloc_at_line(sizeof(*f));
	functions.gone = f->next;
	functions.gone_count--;
	free((char *)f->name);
	free((struct function_param *)f->params);
	memset(f, 0, sizeof(*f));
	return f;
}

static struct function *function_named(uint32_t module, const char *name)
{
	struct function *f = functions.list;

	while (f && (f->module != module || strcmp(f->name, name)))
		f = f->next;
	if (f)
		return f;
	if (!(f = function_new()) || !(f->name = strdup(name))) {
		no_memory();
		free(f);
		return NULL;
	}
	f->id = TT_NO_ID;
	f->module = module;
	f->name_string = session_store() ? store_string(session_store(), name) : TT_NO_ID;
	f->chosen = expressions_match(&options.epoch.kernel, name);
	f->traced = options.instrument && strcmp(name, TT_MARK) != 0 && kernel_is_wanted(&options.instrument_kernel, name);
	f->replayable = options.replayable && kernel_is_wanted(&options.kernel, name);
	f->inside = expressions_match(&options.epoch.inside, name);
	f->stamped = expressions_match(&options.stamps, name);
	f->next = functions.list;
	functions.list = f;
	return f;
}

/*
 * The only kernel of that name that the program got from a loaded library; NULL: none, or several. A library's
 * module in a context has other handles for its kernels, and the driver may use them in graphs.
 */
static struct function *function_known_as(const char *name)
{
	struct function *found = NULL;

	for (struct function *f = functions.list; f; f = f->next) {
		if (strcmp(f->name, name) || !module_is_library(f->module))
			continue;
		if (found)
			return NULL;
		found = f;
	}
	return found;
}

struct function *function_seen(CUfunction handle, const char *name, CUmodule module)
{
	pthread_mutex_lock(&modules_lock);
	uint32_t id = module ? module_id_of(module) : TT_NO_ID;
	struct function *f = id != TT_NO_ID ? NULL : function_known_as(name);
	if (!f)
		f = function_named(id, name);
	if (f && !handle_find(&function_lookups, handle))
		lookup_add(handle, f, false);
	pthread_mutex_unlock(&modules_lock);
	return function_find(handle);
}

void module_function(void *module, void *function, const char *name, bool kernel)
{
	pthread_mutex_lock(&modules_lock);
	struct lookup *l = handle_find(&function_lookups, function);
	struct function *f = l ? NULL : function_named(module_id_of(module), name);
	if (f)
		lookup_add(function, f, kernel);
	pthread_mutex_unlock(&modules_lock);
}

void functions_begin(void)
{
	for (struct function *f = functions.list; f; f = f->next)
		if (f->name_string == TT_NO_ID)
			f->name_string = store_string(session_store(), f->name);
}

void function_number(struct function *f)
{
	pthread_mutex_lock(&modules_lock);
	if (f->id == TT_NO_ID)
		f->id = functions.count++;
	pthread_mutex_unlock(&modules_lock);
}

bool function_is_kernel(CUfunction handle)
{
	const struct lookup *l = handle_find(&function_lookups, handle);

	return l && l->kernel;
}

const char *function_name(uint32_t id)
{
	const struct function *f;

	if (id == TT_NO_ID) /* also functions that were not launched yet */
		return NULL;
	if (!lock_within(&modules_lock, 20))
		return NULL;
	for (f = functions.list; f && f->id != id; f = f->next)
		;
	for (f = f ? f : functions.gone; f && f->id != id; f = f->next)
		;
	pthread_mutex_unlock(&modules_lock);
	return f ? f->name : NULL;
}

struct function *function_numbered(uint32_t id, CUfunction *handle)
{
	struct function *f;

	pthread_mutex_lock(&modules_lock);
	for (f = functions.list; f && (f->id != id || !f->lookups); f = f->next)
		;
	*handle = f ? atomic_load(&f->lookups->handle) : NULL;
	pthread_mutex_unlock(&modules_lock);
	return f;
}

static void describe(struct context *c, struct function *f, CUfunction handle, const struct code_answers *ask)
{
	struct tt_function record = {.id = f->id, .name = f->name_string, .module = f->module};

	ask->function(f, handle, function_is_kernel(handle), c->device, &record);
	record.param_bytes = f->param_bytes;
	record.param_count = f->param_count;
	store_function(session_store(), &record);
	f->recorded = true;
}

void function_launched(struct context *c, struct function *f, CUfunction handle, const struct code_answers *ask)
{
	pthread_mutex_lock(&modules_lock);
	if (!f->recorded)
		describe(c, f, handle, ask);
	module_launched(c, f->module, ask);
	atomic_fetch_or_explicit(&f->known, context_bit(c), memory_order_release);
	pthread_mutex_unlock(&modules_lock);
}

void function_cache(CUfunction handle, CUfunc_cache config)
{
	struct lookup *l = handle_find(&function_lookups, handle);

	if (l)
		atomic_store(&l->function->cache, (uint32_t)config);
}
