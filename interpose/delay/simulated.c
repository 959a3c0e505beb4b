/*
 * Chooses the delayed statements of kernels for the simulator. See simulated.h.
 */
#define _GNU_SOURCE
#include "delay/simulated.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "delay/points.h"
#include "driver/driver.h"
#include "sim_delay.h"

static bool simulated;

static void *kernel(const char *name, uint64_t checksum)
{
	bool own = !strncmp(name, "tt_", 3); /* the recorder's */

	return own || delays_are_empty() ? NULL : delay_kernel(name, checksum, NULL);
}

/* Whether a statement is delayed without --delay-patterns: it moves memory or synchronises. */
static bool is_built_in(const char *mnemonic, const char *opcode)
{
	static const char *const built_in[] = {"atom",     "bar",    "barrier",  "cp",  "fence", "ld",
					       "mbarrier", "membar", "multimem", "red", "st"};

	if (strstr(opcode, ".param"))
		return false;
	for (size_t i = 0; i < sizeof(built_in) / sizeof(*built_in); i++)
		if (!strcmp(mnemonic, built_in[i]))
			return true;
	return false;
}

static bool statement(void *k, uint64_t number, const char *mnemonic, const char *opcode, struct tt_sim_delay *delay)
{
	struct delay_choice c;
	bool on = delay_point(k, number, mnemonic, is_built_in(mnemonic, opcode), &c);
	bool random = c.mode == CONFIG_RANDOM || c.mode == CONFIG_CLUSTER;

	*delay = (struct tt_sim_delay){.ns = c.max_ns,
				       .min_ns = random ? c.min_ns : c.max_ns,
				       .seed = c.seed,
				       .cluster = c.mode == CONFIG_CLUSTER || c.mode == CONFIG_CLUSTER_FIXED,
				       .block = c.block};
	return on;
}

static void done(void *k)
{
	delay_kernel_done(k, NULL);
}

static void find(void)
{
	static const struct tt_sim_delays choose = {kernel, statement, done};
	tt_sim_delays_set *set = NULL;
	Dl_info loads, delays;
	void *library = NULL;

	if (dladdr((void *)(uintptr_t)real.cuModuleLoadData, &loads) && loads.dli_fname)
		library = dlopen(loads.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	if (!library)
		return;
	set = (tt_sim_delays_set *)(uintptr_t)dlsym(library, "ttSimDelays");
	dlclose(library);
	if (!dladdr((void *)(uintptr_t)set, &delays) || delays.dli_fbase != loads.dli_fbase)
		set = NULL; /* of a simulator behind the driver that loads modules */
	simulated = set != NULL;
	if (set)
		set(&choose);
}

bool delays_simulated(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, find);
	return simulated;
}
