/*
 * TT_SIM_… variables.
 *
 * Invariant: they are read once, before anything depends on them. cuInit fails on an invalid one, with a
 * message that names it; no default replaces it.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "sim/driver/driver.h"

struct sim_settings sim_settings = {
	.devices = 1, .memory = 1ull << 30, .driver_version = SIM_DRIVER_VERSION, .granularity = SIM_GRANULARITY};

static bool settings_good;
static pthread_once_t settings_once = PTHREAD_ONCE_INIT;

static bool parse_number(const char *text, uint64_t *value, const char **end)
{
	char *stop;

	if (!isdigit((unsigned char)*text))
		return false;
	errno = 0;
	*value = strtoull(text, &stop, 0);
	*end = stop;
	return errno == 0;
}

static bool parse_whole(const char *text, uint64_t *value)
{
	const char *end;

	return parse_number(text, value, &end) && *end == '\0';
}

static bool parse_size(const char *text, uint64_t *value)
{
	static const char suffixes[] = "KMGT";
	const char *end, *suffix;

	if (!parse_number(text, value, &end))
		return false;
	if (*end != '\0') {
		suffix = strchr(suffixes, toupper((unsigned char)*end));
		if (!suffix || end[1] != '\0')
			return false;
		unsigned shift = 10 * (unsigned)(suffix - suffixes + 1);
		if (*value > UINT64_MAX >> shift)
			return false;
		*value <<= shift;
	}
	return *value > 0 && *value <= 1ull << 46;
}

static bool parse_fault(const char *fault)
{
	uint64_t number = 0;
	const char *colon = strchr(fault, ':');

	if (!colon || colon[1] == '\0')
		return false;
	size_t length = (size_t)(colon - fault);
	const char *value = colon + 1;
	if (length == 3 && !strncmp(fault, "ptx", 3)) {
		free(sim_settings.refused_name);
		sim_settings.refused_name = strdup(value);
		return sim_settings.refused_name != NULL;
	}
	if (!parse_whole(value, &number))
		return false;
	if (length == 3 && !strncmp(fault, "oom", 3))
		sim_settings.fail_allocation = number;
	else if (length == 6 && !strncmp(fault, "launch", 6))
		sim_settings.fail_launch = number;
	else if (length == 9 && !strncmp(fault, "slow-copy", 9))
		sim_settings.slow_copy_us = number;
	else if (length == 6 && !strncmp(fault, "pinned", 6) && number)
		sim_settings.pinned = number;
	else if (length == 4 && !strncmp(fault, "lazy", 4) && number <= 1)
		sim_settings.lazy = number;
	else if (length == 5 && !strncmp(fault, "keeps", 5) && number <= 1)
		sim_settings.keeps = number;
	else if (length == 9 && !strncmp(fault, "elsewhere", 9) && number <= 1)
		sim_settings.elsewhere = number;
	else if (length == 11 && !strncmp(fault, "granularity", 11) && number % SIM_GRANULARITY == 0 && number &&
		 !(number & (number - 1)))
		sim_settings.granularity = number;
	else if (length == 3 && !strncmp(fault, "ipc", 3) && number <= 1)
		sim_settings.ipc = number;
	else if (length == 5 && !strncmp(fault, "apart", 5) && number <= 1)
		sim_settings.apart = number;
	else if (length == 9 && !strncmp(fault, "one-queue", 9) && number <= 1)
		sim_settings.one_queue = number;
	else if (length == 8 && !strncmp(fault, "deadlock", 8) && number <= 1)
		sim_settings.deadlocks = number;
	else if (length == 7 && !strncmp(fault, "version", 7) && number >= 11000 && number <= 99990)
		sim_settings.driver_version = (int)number;
	else
		return false;
	return true;
}

static bool parse_faults(const char *text)
{
	char *copy = strdup(text), *rest = copy, *fault;
	bool good = copy != NULL;

	while (good && (fault = strsep(&rest, ",")))
		good = parse_fault(fault);
	free(copy);
	return good;
}

static bool take(const char *name, bool (*parse)(const char *))
{
	const char *text = getenv(name);

	if (!text || parse(text))
		return true;
	sim_note("%s=%s makes no sense", name, text);
	return false;
}

static bool take_devices(const char *text)
{
	uint64_t number;

	if (!parse_whole(text, &number) || number > SIM_MAX_DEVICES)
		return false;
	sim_settings.devices = (unsigned)number;
	return true;
}

static bool take_memory(const char *text)
{
	return parse_size(text, &sim_settings.memory);
}

static bool take_seed(const char *text)
{
	sim_settings.seeded = true;
	return parse_whole(text, &sim_settings.seed);
}

static bool take_schedule(const char *text)
{
	sim_settings.random_order = !strcmp(text, "random");
	return sim_settings.random_order || !strcmp(text, "fifo");
}

static bool take_bounds(const char *text)
{
	sim_settings.lenient_bounds = !strcmp(text, "lenient");
	return sim_settings.lenient_bounds || !strcmp(text, "strict");
}

static void load(void)
{
	const char *blocking = getenv("CUDA_LAUNCH_BLOCKING");

	sim_settings.blocking = blocking && !strcmp(blocking, "1");
	settings_good = take("TT_SIM_DEVICES", take_devices);
	settings_good &= take("TT_SIM_MEMORY", take_memory);
	settings_good &= take("TT_SIM_SEED", take_seed);
	settings_good &= take("TT_SIM_SCHEDULE", take_schedule);
	settings_good &= take("TT_SIM_BOUNDS", take_bounds);
	settings_good &= take("TT_SIM_FAULT", parse_faults);
}

bool settings_load(void)
{
	pthread_once(&settings_once, load);
	return settings_good;
}
