/*
 * Attaches the recorder to modules that use NVTX, by putting its functions into their tables.
 *
 * At its first call a module reads an environment variable with the name of a library, whose function fills the
 * module's tables. If the variable names another tool, that tool stays: it fills the tables, and the recorder's
 * functions run before its functions.
 */
#define _GNU_SOURCE
#include "nvtx/nvtx.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "entry/entry.h"
#include "options/options.h"
#include "session/session.h"
#include "nvtx/functions.h"

static struct {
	nvtx_initialize *_Atomic another;                       /* of the other tool */
	nvtx_initialize_extension *_Atomic anothers_extensions; /* of it; NULL: it has none */
	char own_path[PATH_MAX];          /* path of the recorder's library; empty: do not announce it */
} attach;

/* The contents of a module's tables before the other tool filled them. */
struct slots {
	nvtx_function *held[NVTX_PARTS][NVTX_FUNCTIONS];
};

static bool wanted(void)
{
	return *options.out && options.nvtx && (options.events || options.epoch.nvtx.count || options.contents.nvtx.count) &&
	       (session_state == SESSION_UNDECIDED || session_state == SESSION_ON);
}

static nvtx_slot *table_of(nvtx_get_export *get, int part, unsigned *entries)
{
	const struct nvtx_callbacks *c = get(NVTX_EXPORT_CALLBACKS);
	nvtx_slot *table = NULL;

	*entries = 0;
	if (!c || c->size < sizeof(*c) || !c->table_of(part, &table, entries) || !table)
		*entries = 0;
	if (*entries > NVTX_FUNCTIONS)
		*entries = NVTX_FUNCTIONS;
	return table;
}

typedef void with_slot(nvtx_slot slot, int part, unsigned number, struct slots *s);

/* Calls f for each variable of the module for which the recorder has a function. */
static void each_slot(nvtx_get_export *get, struct slots *s, with_slot f)
{
	for (int part = NVTX_CORE; part < NVTX_PARTS; part++) {
		unsigned entries;
		nvtx_slot *table = table_of(get, part, &entries);
		for (unsigned i = 1; i < entries; i++)
			if (table[i] && nvtx_ours[part][i])
				f(table[i], part, i, s);
	}
}

static bool with_payloads(const struct nvtx_extension *e)
{
	return e->size >= sizeof(*e) && e->module == NVTX_PAYLOADS_MODULE && e->compatible >> 8 == NVTX_PAYLOADS_MAJOR &&
	       e->segment_count;
}

static void each_extended(const struct nvtx_extension *e, struct slots *s, with_slot f)
{
	for (unsigned i = 0; i < e->segments->count && i < NVTX_FUNCTIONS; i++)
		if (nvtx_ours[NVTX_PAYLOADS][i])
			f(&e->segments->functions[i], NVTX_PAYLOADS, i, s);
}

static void take(nvtx_slot slot, int part, unsigned number, struct slots *unused)
{
	(void)unused;
	*slot = nvtx_ours[part][number];
}

static void look(nvtx_slot slot, int part, unsigned number, struct slots *before)
{
	before->held[part][number] = *slot;
}

/* Unchanged if the other tool has no function, or not the same as in other modules. */
static void go_before(nvtx_slot slot, int part, unsigned number, struct slots *before)
{
	nvtx_function *theirs = *slot, *known = NULL;

	if (!theirs || theirs == before->held[part][number] || theirs == nvtx_ours[part][number])
		return;
	if (atomic_compare_exchange_strong(&nvtx_theirs[part][number], &known, theirs) || known == theirs)
		*slot = nvtx_ours[part][number];
}

/* A range that the other tool does not see end must end here. */
static void go_beside(nvtx_slot slot, int part, unsigned number, struct slots *before)
{
	(*slot == before->held[part][number] ? take : go_before)(slot, part, number, before);
}

/* 0: the module gets no tool. */
EXPORT int InitializeInjectionNvtx2(nvtx_get_export *get)
{
	if (!wanted())
		return 0;
	each_slot(get, NULL, take);
	return 1;
}

static int initialize_after_another(nvtx_get_export *get)
{
	nvtx_initialize *theirs = atomic_load(&attach.another);
	struct slots before = {0};

	each_slot(get, &before, look);
	int result = theirs(get);
	if (result && wanted())
		each_slot(get, &before, go_before);
	return result;
}

/* 0: the module's extension gets no tool. */
EXPORT int InitializeInjectionNvtxExtension(struct nvtx_extension *e)
{
	nvtx_initialize_extension *theirs = atomic_load(&attach.anothers_extensions);
	struct slots before = {0};
	bool ours = wanted() && with_payloads(e);
	int result = 0;

	if (ours)
		each_extended(e, &before, look);
	if (theirs)
		result = theirs(e);
	if (ours)
		each_extended(e, &before, go_beside);
	return result || ours;
}

static void *extension_tool(void *theirs)
{
	nvtx_initialize_extension *known = NULL, *given = (nvtx_initialize_extension *)theirs;

	if (given == InitializeInjectionNvtxExtension || !wanted() || !atomic_load(&attach.another))
		return theirs;
	return !given || atomic_compare_exchange_strong(&attach.anothers_extensions, &known, given) || known == given
		       ? (void *)InitializeInjectionNvtxExtension
		       : theirs;
}

void *entry_nvtx_tool(const char *name, void *theirs)
{
	nvtx_initialize *known = NULL, *given = (nvtx_initialize *)theirs;

	if (!strcmp(name, NVTX_INITIALIZE_EXTENSION))
		return extension_tool(theirs);
	if (!theirs || given == InitializeInjectionNvtx2 || !wanted())
		return theirs;
	return atomic_compare_exchange_strong(&attach.another, &known, given) || known == given
		       ? (void *)initialize_after_another
		       : theirs;
}

void nvtx_announce(void)
{
	Dl_info us;

	if (wanted() && dladdr(attach.own_path, &us) && us.dli_fname && !realpath(us.dli_fname, attach.own_path))
		*attach.own_path = 0;
}

/*
 * Announces the recorder in the one variable, and does not change the environment. Programs may call it very early,
 * when a lookup of the C library is not possible.
 */
__attribute__((no_sanitize("address", "undefined", "thread"))) EXPORT char *getenv(const char *name)
{
	char *value = secure_getenv(name); /* the same result in a process that preloads the recorder */

	if (likely(value || name[0] != 'N' || strcmp(name, NVTX_VARIABLE)))
		return value;
	return *attach.own_path && wanted() ? attach.own_path : NULL;
}
