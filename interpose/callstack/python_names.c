/*
 * Names of memory from the program's Python interpreter. See python_names.h.
 *
 * Invariant: a thread that cuts an epoch waits only if it does not have the interpreter's lock, for WAIT_MS at most,
 * and not again until the answer is there.
 */
#define _GNU_SOURCE
#include "callstack/python_names.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "util/compiler.h"

#define WAIT_MS 100

/* Loads the package of this recorder, unless the program has one already, without a change of sys.path. */
static const char load[] = "exec('''\n"
			   "import importlib.util, os, sys, warnings\n"
			   "try:\n"
			   "    folder = os.fsdecode(bytes.fromhex(\"%s\"))\n"
			   "    if sys.version_info < (3, 10):\n"
			   "        raise ImportError(\"needs Python 3.10\")\n"
			   "    if \"ttanalyze\" not in sys.modules:\n"
			   "        spec = importlib.util.spec_from_file_location(\n"
			   "            \"ttanalyze\", folder + \"/__init__.py\", submodule_search_locations=[folder])\n"
			   "        module = importlib.util.module_from_spec(spec)\n"
			   "        sys.modules[\"ttanalyze\"] = module\n"
			   "        spec.loader.exec_module(module)\n"
			   "    import ttanalyze.integrations.names\n"
			   "    ttanalyze.integrations.names.begin()\n"
			   "except Exception as e:\n"
			   "    warnings.warn(\"ttanalyze: --names: \" + repr(e))\n"
			   "''', {})\n";

static struct {
	pthread_mutex_t lock;
	pthread_cond_t asked, answered;
	uint64_t wanted, done;
	bool serving, looks; /* the interpreter's thread: it exists; it was asked */
	int (*has_lock)(void);
	int (*run)(const char *code);
	char *code;
} names = {.lock = PTHREAD_MUTEX_INITIALIZER, .asked = PTHREAD_COND_INITIALIZER};

static int load_module(void *unused)
{
	(void)unused;
	names.run(names.code);
	free(names.code);
	names.code = NULL;
	return 0;
}

/* The code, with the folder of the package: libraries are in its folder lib. */
static char *code_with_folder(void)
{
	char path[PATH_MAX], hex[2 * PATH_MAX + 1] = "", *code, *end;
	Dl_info us;

	if (!dladdr((void *)(uintptr_t)python_names_begin, &us) || !us.dli_fname || !realpath(us.dli_fname, path))
		return NULL;
	for (int i = 0; i < 2; i++)
		if ((end = strrchr(path, '/')))
			*end = 0;
	for (size_t i = 0; path[i]; i++)
		snprintf(hex + 2 * i, 3, "%02x", (unsigned char)path[i]);
	return asprintf(&code, load, hex) < 0 ? NULL : code;
}

const char *python_names_begin(void)
{
	int (*later)(int (*call)(void *), void *with);
	pthread_condattr_t monotonic;

	*(void **)&later = dlsym(RTLD_DEFAULT, "Py_AddPendingCall");
	*(void **)&names.run = dlsym(RTLD_DEFAULT, "PyRun_SimpleString");
	*(void **)&names.has_lock = dlsym(RTLD_DEFAULT, "PyGILState_Check");
	if (!later || !names.run || !names.has_lock)
		return NULL;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&names.answered, &monotonic);
	pthread_condattr_destroy(&monotonic);
	if (!(names.code = code_with_folder()))
		return "--names: the package of the recorder was not found: the run has no names of variables";
	return later(load_module, NULL) ? "--names: the interpreter is busy: the run has no names of variables" : NULL;
}

void python_names_ask(void)
{
	struct timespec until;

	if (!__atomic_load_n(&names.serving, __ATOMIC_ACQUIRE) || names.has_lock())
		return;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += WAIT_MS * 1000000L;
	until.tv_sec += until.tv_nsec / 1000000000L;
	until.tv_nsec %= 1000000000L;
	pthread_mutex_lock(&names.lock);
	if (names.wanted == names.done) {
		uint64_t mine = ++names.wanted;
		int late = 0;
		pthread_cond_signal(&names.asked);
		while (!late && names.done < mine)
			late = pthread_cond_timedwait(&names.answered, &names.lock, &until);
	}
	pthread_mutex_unlock(&names.lock);
}

/* Called before the interpreter's thread starts: it will answer. */
EXPORT void tt_names_begin(void)
{
	__atomic_store_n(&names.serving, true, __ATOMIC_RELEASE);
}

/* Called by that thread: what was asked for is done. Returns when names are asked for again. */
EXPORT void tt_names_wait(void)
{
	pthread_mutex_lock(&names.lock);
	if (names.looks)
		names.done = names.wanted;
	pthread_cond_broadcast(&names.answered);
	while (names.wanted == names.done)
		pthread_cond_wait(&names.asked, &names.lock);
	names.looks = true;
	pthread_mutex_unlock(&names.lock);
}
