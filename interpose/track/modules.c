/*
 * Modules and functions. See modules.h for the invariant.
 */
#include "track/modules.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "store/params.h"
#include "store/store.h"
#include "options/options.h"
#include "session/session.h"
#include "util/clock.h"
#include "util/handle_table.h"
#include "track/image_retention.h"
#include "track/image.h"
#include "track/regions.h"
#include "util/vector.h"

/* Frameworks load libraries of hundreds of megabytes to use a few kernels of them. Images that last are
 * kept, and searched for variables, with the first launch from them; larger ones than this only where
 * launches are to be run again. What the program names itself is found all the same. */
#define IMAGE_MAX ((size_t)8 << 20)
#define FILE_MAX ((size_t)1 << 30) /* where they are kept all the same */
#define NO_MEMORY "no host memory for a "

struct module {
	void *handle, **aliases; /* of a library: its module in each context, as far as the program asked */
	size_t alias_count, alias_room;
	bool library;
	bool references;   /* the program took a texture or surface reference out of it */
	bool awaited;      /* it was loaded before the recording: its record is to come */
	struct held held;  /* its image, as long as that is to be kept */
	struct tt_setting *settings; /* of its loading, until its record is written; path likewise */
	char *path;
	struct tt_module record;
	uint32_t id;
	uint64_t searched; /* context_bit of those where its variables were looked up */
	char *variables;   /* names, each with its NUL; the last is empty */
	size_t variables_size, variables_room;
	struct module *next;
};

/* What the program's look-ups told us about a handle before its first launch. */
struct lookup {
	void *_Atomic handle;
	struct function *function;
	bool kernel;
	struct lookup *next; /* of the function, or of those to be used again */
};

/*
 * A launch may still have a function or a look-up in hand while another thread unloads its module. So
 * look-ups are used again as what they are, and functions when this many others have gone after them.
 */
#define GONE_KEPT 256

static struct module *modules;
static struct function *functions;
static struct function *gone, **gone_end = &gone; /* of unloaded modules, the oldest first */
static size_t gone_count;
static struct lookup *spare_lookups;
static uint32_t module_count, function_count;
static struct handle_table *_Atomic lookups;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void lookup_add(void *handle, struct function *f, bool kernel)
{
	struct lookup *l = spare_lookups ? spare_lookups : (spare_lookups = calloc(1, sizeof(*l)));

	if (l) {
		l->function = f;
		l->kernel = kernel;
		atomic_store_explicit(&l->handle, handle, memory_order_release);
	}
	if (!l || !handle_add(&lookups, &l->handle)) {
		session_fail(NO_MEMORY "kernel");
		return;
	}
	spare_lookups = l->next;
	l->next = f->lookups;
	f->lookups = l;
}

/* Handles of an unloaded module come back as others'. */
static void lookups_forget(struct function *f)
{
	for (struct lookup *l; (l = f->lookups);) {
		f->lookups = l->next;
		handle_remove(&lookups, &l->handle);
		atomic_store(&l->handle, l); /* which no handle of the driver's is */
		l->next = spare_lookups;
		spare_lookups = l;
	}
}

static void functions_forget(uint32_t module)
{
	for (struct function **link = &functions; *link;) {
		struct function *f = *link;
		if (f->module != module) {
			link = &f->next;
			continue;
		}
		lookups_forget(f);
		*link = f->next;
		f->next = NULL;
		*gone_end = f;
		gone_end = &f->next;
		gone_count++;
	}
}

/* Zeros; NULL without memory. */
static struct function *function_new(void)
{
	struct function *f = gone;

	if (gone_count <= GONE_KEPT)
		return calloc(1, sizeof(*f));
	gone = f->next;
	gone_count--;
	free((char *)f->name);
	free((struct function_param *)f->params);
	memset(f, 0, sizeof(*f));
	return f;
}

static struct function *function_named(uint32_t module, const char *name)
{
	struct function *f = functions;

	while (f && (f->module != module || strcmp(f->name, name)))
		f = f->next;
	if (f)
		return f;
	if (!(f = function_new()) || !(f->name = strdup(name))) {
		session_fail(NO_MEMORY "kernel");
		free(f);
		return NULL;
	}
	f->id = TT_NO_ID;
	f->module = module;
	f->name_string = session_store() ? store_string(session_store(), name) : TT_NO_ID;
	f->chosen = expressions_match(&options.epoch.kernel, name);
	f->replayable = options.replayable && (!options.kernel.count || expressions_match(&options.kernel, name));
	f->inside = expressions_match(&options.epoch.inside, name);
	f->stamped = expressions_match(&options.stamps, name);
	f->next = functions;
	functions = f;
	return f;
}

static bool goes_by(const struct module *m, const void *handle)
{
	bool found = m->handle == handle;

	for (size_t i = 0; i < m->alias_count && !found; i++)
		found = m->aliases[i] == handle;
	return found;
}

static struct module *module_of(const void *handle)
{
	struct module *m = modules;

	while (m && !goes_by(m, handle))
		m = m->next;
	return m;
}

static struct module *module_new(void *handle, bool library)
{
	struct module *m = calloc(1, sizeof(*m));

	if (!m) {
		session_fail(NO_MEMORY "module");
		return NULL;
	}
	m->handle = handle;
	m->library = library;
	return m;
}

static void note_variable(void *user, const char *name)
{
	struct module *m = user;
	size_t n = strlen(name) + 1;

	if (n == 1 || *name == '.')
		return;
	if (!make_room(&m->variables, &m->variables_room, m->variables_size, n + 1, 1)) {
		session_fail(NO_MEMORY "module");
		return;
	}
	memcpy(m->variables + m->variables_size, name, n);
	m->variables_size += n;
	m->variables[m->variables_size] = 0;
	m->record.globals++;
}

static void note_variables(struct module *m)
{
	if (!image_variables(&m->held.image, note_variable, m))
		session_fail(NO_MEMORY "module");
}

static bool is_too_large(const struct module *m)
{
	return m->held.image.size > IMAGE_MAX && !options.replayable;
}

/* It is kept with the first launch from it. */
static bool is_put_off(const struct module *m)
{
	return m->held.object && !is_too_large(m);
}

static void write_record(struct module *m)
{
	const void *bytes = NULL;
	uint8_t *to;
	size_t size = m->record.setting_count * sizeof(*m->settings);

	m->awaited = false;
	if (m->record.missing == TT_MISSING_NOTHING && !(bytes = held_bytes(&m->held)))
		m->record.missing = TT_MISSING_GONE;
	if (m->settings && options.params && (to = params_next(size, &m->record.settings))) {
		memcpy(to, m->settings, size);
		params_filled(to, size);
	} else if (!m->record.settings) {
		m->record.setting_count = 0;
	}
	if (m->path)
		m->record.path = store_string(session_store(), m->path);
	free(m->settings);
	free(m->path);
	m->settings = NULL;
	m->path = NULL;
	store_module(session_store(), &m->record, bytes, m->record.size);
	if (m->record.missing != TT_MISSING_UNUSED)
		held_let_go(&m->held);
}

static void module_add(struct module *m, const struct context *c, const char *path, uint64_t seq)
{
	const struct image *i = &m->held.image;

	m->id = module_count++;
	m->next = modules;
	modules = m;
	m->record.id = m->id;
	m->record.kind = i->kind;
	m->record.size = i->size;
	m->record.seq = seq;
	m->record.path = TT_NO_ID;
	if (path && !(m->path = strdup(path)))
		session_fail(NO_MEMORY "module");
	m->record.context = c ? c->index : TT_NO_ID;
	m->record.missing = m->held.missing;
	if (is_too_large(m) || is_put_off(m))
		m->record.missing = is_too_large(m) ? TT_MISSING_LARGE : TT_MISSING_UNUSED;
	if (atomic_load(&session_state) == SESSION_ON) {
		write_record(m);
	} else {
		m->awaited = true;
		if (m->record.missing == TT_MISSING_NOTHING && !held_keep(&m->held))
			m->record.missing = TT_MISSING_GONE;
	}
}

void modules_begin(void)
{
	pthread_mutex_lock(&lock);
	for (struct function *f = functions; f; f = f->next)
		if (f->name_string == TT_NO_ID)
			f->name_string = store_string(session_store(), f->name);
	for (;;) { /* in the order in which they came */
		struct module *first = NULL;
		for (struct module *m = modules; m; m = m->next)
			first = m->awaited ? m : first;
		if (!first)
			break;
		write_record(first);
	}
	pthread_mutex_unlock(&lock);
}

/* One whose loading was not seen is known from here on. */
static struct module *module_of_or_new(const struct context *c, void *handle, bool library, uint64_t seq)
{
	struct module *m = module_of(handle);

	if (m || !(m = module_new(handle, library)))
		return m;
	m->held.missing = TT_MISSING_UNSEEN;
	module_add(m, c, NULL, seq);
	return m;
}

/*
 * The only kernel of that name that the program has taken out of a library that is still there; NULL
 * where there is none or more than one. A library's module in a context has handles of its own for
 * its kernels, by which the driver may name what a graph runs.
 */
static struct function *function_known_as(const char *name)
{
	struct function *found = NULL;

	for (struct function *f = functions; f; f = f->next) {
		const struct module *m = modules;
		if (f->module == TT_NO_ID || strcmp(f->name, name))
			continue;
		while (m && (m->id != f->module || !m->library))
			m = m->next;
		if (m && found)
			return NULL;
		if (m)
			found = f;
	}
	return found;
}

struct function *function_seen(CUfunction handle, const char *name, CUmodule module)
{
	pthread_mutex_lock(&lock);
	struct module *m = module ? module_of(module) : NULL;
	struct function *f = m ? NULL : function_known_as(name);
	if (!f)
		f = function_named(m ? m->id : TT_NO_ID, name);
	if (f && !handle_find(&lookups, handle))
		lookup_add(handle, f, false);
	pthread_mutex_unlock(&lock);
	return function_find(handle);
}

HOT struct function *function_find(CUfunction handle)
{
	struct lookup *l = handle_find(&lookups, handle);

	if (unlikely(!l))
		return NULL;
	if (unlikely(l->function->id == TT_NO_ID)) {
		pthread_mutex_lock(&lock);
		if (l->function->id == TT_NO_ID)
			l->function->id = function_count++;
		pthread_mutex_unlock(&lock);
	}
	return l->function;
}

bool function_is_kernel(CUfunction handle)
{
	const struct lookup *l = handle_find(&lookups, handle);

	return l && l->kernel;
}

const char *function_name(uint32_t id)
{
	const struct function *f;

	if (id == TT_NO_ID) /* of those that were not launched so far, too */
		return NULL;
	for (unsigned ms = 0; pthread_mutex_trylock(&lock); ms++) {
		if (ms == 20)
			return NULL;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	for (f = functions; f && f->id != id; f = f->next)
		;
	for (f = f ? f : gone; f && f->id != id; f = f->next)
		;
	pthread_mutex_unlock(&lock);
	return f ? f->name : NULL;
}

static void variable_born(struct context *c, const struct module *m, const char *name, struct variable v, uint64_t seq)
{
	struct region *known = region_find(v.address);

	if (known) {
		bool same = known->base == v.address && known->size == v.size;
		region_release(known);
		if (same)
			return;
	}
	if (!c || !v.size)
		return;
	region_born(c, v.managed ? TT_REGION_MANAGED : TT_REGION_GLOBAL, v.address, v.size, m->id,
		    &(struct region_origin){
			    .seq = seq, .time_ns = clock_ns(), .call = TT_NO_ID, .label = store_string(session_store(), name)});
}

/* A module's variables become regions with the first launch from it in a context: it is loaded
 * there for good then, and asking any earlier would make the driver load what the program may
 * never use. */
static void find_variables(struct context *c, struct module *m, const struct code_answers *ask)
{
	if (m->searched & context_bit(c))
		return;
	m->searched |= context_bit(c);
	for (char *name = m->variables; name && *name; name += strlen(name) + 1) {
		struct variable v = ask->variable(m->handle, m->library, name);
		if (v.address)
			variable_born(c, m, name, v, session_next_seq());
	}
}

/* Something of it runs: its image is worth keeping. */
static void take_out_of(struct module *m)
{
	if (m->record.missing != TT_MISSING_UNUSED)
		return;
	m->record.missing = TT_MISSING_NOTHING;
	if (held_bytes(&m->held))
		note_variables(m);
	write_record(m);
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
	pthread_mutex_lock(&lock);
	if (!f->recorded)
		describe(c, f, handle, ask);
	struct module *m = modules;
	while (m && m->id != f->module)
		m = m->next;
	if (m) {
		take_out_of(m);
		find_variables(c, m, ask);
	}
	atomic_fetch_or_explicit(&f->known, context_bit(c), memory_order_release);
	pthread_mutex_unlock(&lock);
}

uint32_t module_loaded(const struct context *c, void *handle, bool library, const struct loading *l, uint64_t seq)
{
	struct module *m = module_new(handle, library);

	if (!m)
		return TT_NO_ID;
	if (l->path)
		held_from_file(&m->held, l->path, options.replayable ? FILE_MAX : IMAGE_MAX);
	else
		held_from_memory(&m->held, l->image);
	if (!is_put_off(m) && !is_too_large(m))
		note_variables(m);
	else if (m->held.image.kind == TT_MODULE_FATBIN)
		image_prepare();
	if (l->setting_count && !(m->settings = malloc(l->setting_count * sizeof(*m->settings)))) {
		session_fail(NO_MEMORY "module");
	} else if (l->setting_count) {
		memcpy(m->settings, l->settings, l->setting_count * sizeof(*m->settings));
		m->record.setting_count = l->setting_count;
	}
	pthread_mutex_lock(&lock);
	module_add(m, c, l->path, seq);
	pthread_mutex_unlock(&lock);
	return m->id;
}

void module_unloaded(void *handle, uint64_t seq)
{
	struct module **link = &modules;

	pthread_mutex_lock(&lock);
	while (*link && (*link)->handle != handle)
		link = &(*link)->next;
	struct module *m = *link;
	if (m) {
		*link = m->next;
		regions_died_of_module(m->id, &(struct region_origin){
						      .seq = seq, .time_ns = clock_ns(), .call = TT_NO_ID, .label = TT_NO_ID});
		functions_forget(m->id);
		held_let_go(&m->held);
		free(m->settings);
		free(m->path);
		free(m->variables);
		free(m->aliases);
		free(m);
	}
	pthread_mutex_unlock(&lock);
}

void module_function(void *module, void *function, const char *name, bool kernel)
{
	pthread_mutex_lock(&lock);
	struct module *m = module_of(module);
	struct lookup *l = handle_find(&lookups, function);
	struct function *f = l ? NULL : function_named(m ? m->id : TT_NO_ID, name);
	if (f)
		lookup_add(function, f, kernel);
	pthread_mutex_unlock(&lock);
}

void module_alias(const struct context *c, void *library, void *module, uint64_t seq)
{
	pthread_mutex_lock(&lock);
	struct module *m = module_of_or_new(c, library, true, seq);
	if (m && !goes_by(m, module)) {
		if (make_room(&m->aliases, &m->alias_room, m->alias_count, 1, sizeof(*m->aliases)))
			m->aliases[m->alias_count++] = module;
		else
			session_fail(NO_MEMORY "module");
	}
	pthread_mutex_unlock(&lock);
}

void module_variable(struct context *c, void *module, bool library, const char *name, struct variable v, uint64_t seq)
{
	pthread_mutex_lock(&lock);
	struct module *m = module_of_or_new(c, module, library, seq);
	if (m)
		variable_born(c, m, name, v, seq);
	pthread_mutex_unlock(&lock);
}

void module_reference(void *module)
{
	pthread_mutex_lock(&lock);
	struct module *m = module_of(module);
	if (m)
		m->references = true;
	pthread_mutex_unlock(&lock);
}

bool module_has_references(uint32_t id)
{
	pthread_mutex_lock(&lock);
	struct module *m = modules;
	while (m && m->id != id)
		m = m->next;
	bool has = m && m->references;
	pthread_mutex_unlock(&lock);
	return has;
}

void function_cache(CUfunction handle, CUfunc_cache config)
{
	struct lookup *l = handle_find(&lookups, handle);

	if (l)
		atomic_store(&l->function->cache, (uint32_t)config);
}
