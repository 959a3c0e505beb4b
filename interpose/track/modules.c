/*
 * Modules. See modules.h for the invariant.
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
#include "track/image_retention.h"
#include "track/image.h"
#include "track/modules_internal.h"
#include "track/regions.h"
#include "util/vector.h"

/*
 * Frameworks load libraries of hundreds of megabytes and use a few of their kernels. Permanent images are stored,
 * and searched for variables, only at the first launch from them; larger ones than this only if launches are
 * replayable. Names that the program uses are always found.
 */
#define IMAGE_MAX ((size_t)8 << 20)
#define FILE_MAX ((size_t)1 << 30) /* limit for replayable launches */

struct module {
	void *handle, **aliases; /* of a library: the modules that the program got for contexts */
	size_t alias_count, alias_room;
	bool library;
	bool references;   /* the program got a texture or surface reference from it */
	bool awaited;      /* loaded before recording began: its record is not written yet */
	struct retained_image retained;  /* its image, while it is needed */
	struct tt_setting *settings; /* of its loading, until its record is written; so is path */
	char *path;
	struct tt_module record;
	uint32_t id;
	uint64_t searched; /* context_bit of the contexts in which its variables were looked up */
	char *variables;   /* names, each with a NUL; the last is empty */
	size_t variables_size, variables_room;
	struct module *next;
};

static struct {
	struct module *list;
	uint32_t count;
} modules;
pthread_mutex_t modules_lock = PTHREAD_MUTEX_INITIALIZER;

static void no_memory(void)
{
	session_fail("no host memory for a module");
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
	struct module *m = modules.list;

	while (m && !goes_by(m, handle))
		m = m->next;
	return m;
}

static struct module *module_by_id(uint32_t id)
{
	struct module *m = modules.list;

	while (m && m->id != id)
		m = m->next;
	return m;
}

uint32_t module_id_of(const void *handle)
{
	const struct module *m = module_of(handle);

	return m ? m->id : TT_NO_ID;
}

bool module_is_library(uint32_t id)
{
	const struct module *m = module_by_id(id);

	return m && m->library;
}

static struct module *module_new(void *handle, bool library)
{
	struct module *m = calloc(1, sizeof(*m));

	if (!m) {
		no_memory();
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
		no_memory();
		return;
	}
	memcpy(m->variables + m->variables_size, name, n);
	m->variables_size += n;
	m->variables[m->variables_size] = 0;
	m->record.globals++;
}

static void note_variables(struct module *m)
{
	if (!image_variables(&m->retained.image, note_variable, m))
		no_memory();
}

static bool is_too_large(const struct module *m)
{
	return m->retained.image.size > IMAGE_MAX && !options.replayable;
}

/* Whether the image is stored only at the first launch. */
static bool is_put_off(const struct module *m)
{
	return m->retained.object && !is_too_large(m);
}

static void write_record(struct module *m)
{
	const void *bytes = NULL;
	uint8_t *to;
	size_t size = m->record.setting_count * sizeof(*m->settings);

	m->awaited = false;
	if (m->record.missing == TT_MISSING_NOTHING && !(bytes = retained_bytes(&m->retained)))
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
		retained_release(&m->retained);
}

static void module_add(struct module *m, const struct context *c, const char *path, uint64_t seq)
{
	const struct image *i = &m->retained.image;

	m->id = modules.count++;
	m->next = modules.list;
	modules.list = m;
	m->record.id = m->id;
	m->record.kind = i->kind;
	m->record.size = i->size;
	m->record.seq = seq;
	m->record.path = TT_NO_ID;
	if (path && !(m->path = strdup(path)))
		no_memory();
	m->record.context = c ? c->index : TT_NO_ID;
	m->record.missing = m->retained.missing;
	if (is_too_large(m) || is_put_off(m))
		m->record.missing = is_too_large(m) ? TT_MISSING_LARGE : TT_MISSING_UNUSED;
	if (atomic_load(&session_state) == SESSION_ON) {
		write_record(m);
	} else {
		m->awaited = true;
		if (m->record.missing == TT_MISSING_NOTHING && !retained_keep(&m->retained))
			m->record.missing = TT_MISSING_GONE;
	}
}

void modules_begin(void)
{
	pthread_mutex_lock(&modules_lock);
	functions_begin();
	for (;;) { /* in loading order */
		struct module *first = NULL;
		for (struct module *m = modules.list; m; m = m->next)
			first = m->awaited ? m : first;
		if (!first)
			break;
		write_record(first);
	}
	pthread_mutex_unlock(&modules_lock);
}

/* The module; new if its loading was not seen. */
static struct module *module_of_or_new(const struct context *c, void *handle, bool library, uint64_t seq)
{
	struct module *m = module_of(handle);

	if (m || !(m = module_new(handle, library)))
		return m;
	m->retained.missing = TT_MISSING_UNSEEN;
	module_add(m, c, NULL, seq);
	return m;
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

/*
 * A module's variables become regions at the first launch from it in a context. Then it is loaded there; an earlier
 * query would make the driver load modules that the program may never use.
 */
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

/* One of its functions was launched: store its image. */
static void take_out_of(struct module *m)
{
	if (m->record.missing != TT_MISSING_UNUSED)
		return;
	m->record.missing = TT_MISSING_NOTHING;
	if (retained_bytes(&m->retained))
		note_variables(m);
	write_record(m);
}

void module_launched(struct context *c, uint32_t id, const struct code_answers *ask)
{
	struct module *m = module_by_id(id);

	if (!m)
		return;
	take_out_of(m);
	find_variables(c, m, ask);
}

uint32_t module_loaded(const struct context *c, void *handle, bool library, const struct loading *l, uint64_t seq)
{
	struct module *m = module_new(handle, library);

	if (!m)
		return TT_NO_ID;
	if (l->path)
		retained_from_file(&m->retained, l->path, options.replayable ? FILE_MAX : IMAGE_MAX);
	else
		retained_from_memory(&m->retained, l->image);
	if (!is_put_off(m) && !is_too_large(m))
		note_variables(m);
	else if (m->retained.image.kind == TT_MODULE_FATBIN)
		image_prepare();
	if (l->setting_count && !(m->settings = malloc(l->setting_count * sizeof(*m->settings)))) {
		no_memory();
	} else if (l->setting_count) {
		memcpy(m->settings, l->settings, l->setting_count * sizeof(*m->settings));
		m->record.setting_count = l->setting_count;
	}
	pthread_mutex_lock(&modules_lock);
	module_add(m, c, l->path, seq);
	pthread_mutex_unlock(&modules_lock);
	return m->id;
}

uint64_t module_unloaded(void *handle, uint64_t seq, uint32_t *id)
{
	uint64_t contexts = 0;
	struct module **link = &modules.list;

	pthread_mutex_lock(&modules_lock);
	while (*link && (*link)->handle != handle)
		link = &(*link)->next;
	struct module *m = *link;
	*id = m ? m->id : TT_NO_ID;
	if (m) {
		*link = m->next;
		contexts = regions_died_of_module(m->id, &(struct region_origin){.seq = seq,
										 .time_ns = clock_ns(),
										 .call = TT_NO_ID,
										 .label = TT_NO_ID});
		functions_forget(m->id);
		retained_release(&m->retained);
		free(m->settings);
		free(m->path);
		free(m->variables);
		free(m->aliases);
		free(m);
	}
	pthread_mutex_unlock(&modules_lock);
	return contexts;
}

void module_alias(const struct context *c, void *library, void *module, uint64_t seq)
{
	pthread_mutex_lock(&modules_lock);
	struct module *m = module_of_or_new(c, library, true, seq);
	if (m && !goes_by(m, module)) {
		if (make_room(&m->aliases, &m->alias_room, m->alias_count, 1, sizeof(*m->aliases)))
			m->aliases[m->alias_count++] = module;
		else
			no_memory();
	}
	pthread_mutex_unlock(&modules_lock);
}

void module_variable(struct context *c, void *module, bool library, const char *name, struct variable v, uint64_t seq)
{
	pthread_mutex_lock(&modules_lock);
	struct module *m = module_of_or_new(c, module, library, seq);
	if (m)
		variable_born(c, m, name, v, seq);
	pthread_mutex_unlock(&modules_lock);
}

void module_reference(void *module)
{
	pthread_mutex_lock(&modules_lock);
	struct module *m = module_of(module);
	if (m)
		m->references = true;
	pthread_mutex_unlock(&modules_lock);
}

bool module_has_references(uint32_t id)
{
	pthread_mutex_lock(&modules_lock);
	const struct module *m = module_by_id(id);
	bool has = m && m->references;
	pthread_mutex_unlock(&modules_lock);
	return has;
}
