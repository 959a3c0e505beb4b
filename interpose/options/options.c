/*
 * Reads the TT_ environment variables. A variable that can't be understood stops the
 * recording before it began: a run that silently meant something else would be worse.
 */
#define _GNU_SOURCE
#include "options/options.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "options/control_text.h"
#include "store/disk.h"
#include "util/json_writer.h"

#define LEAST_DISK (8 << 20)
#define COMPRESS_MOST 19 /* levels above need memory that is not ours to take */

_Alignas(64) struct options options;

static const struct {
	const char *name, *normally;
} variables[] = {
	{"TT_OUT", ""},
	{"TT_EPOCH", NULL},
	{"TT_REGIONS", "all"},
	{"TT_SNAPSHOT_EVERY", "64"},
	{"TT_RETAIN", "0"},
	{"TT_OVERWRITE", "backpressure"},
	{"TT_RING_BYTES", ""},
	{"TT_DETERMINISTIC", NULL},
	{"TT_DEPS", NULL},
	{"TT_EVENTS", "1"},
	{"TT_STALL_MS", "10000"},
	{"TT_VERBOSE", "0"},
	{"TT_COMPRESS", "0"},
	{"TT_PARAMS", NULL},
	{"TT_CPU_CALLSTACK", NULL},
	{"TT_KERNEL_EVENTS", "dedup"},
	{"TT_NVTX", "1"},
	{"TT_TIMELINE", NULL},
	{"TT_TIMEOUT", "0"},
	{"TT_LAUNCH_DELAY", "0"},
	{"TT_LAUNCH_DELAY_MODE", "both"},
	{"TT_DELAY_SEED", "0"},
	{"TT_REPLAYABLE", "0"},
	{"TT_KERNEL", ""},
	{"TT_MAX_PER_KERNEL", NULL},
	{"TT_CRASH_SAFE", "0"},
	{"TT_DELAY", "0"},
	{"TT_DELAY_MIN", "0"},
	{"TT_DELAY_MODE", "random"},
	{"TT_DELAY_PATTERNS", ""},
	{"TT_DELAY_KERNEL", ""},
	{"TT_DELAY_LOAD", ""},
	{"TT_GRAPH_STAMPS", ""},
	{"TT_CONTROL", ""},
	{"TT_MAX_DISK", "auto"},
};
#define VARIABLES (sizeof(variables) / sizeof(*variables))
const char *const timeline_names[] = {"off", "events", "cupti", NULL};
static const char *const orders[] = {"off", "device", "region", NULL}; /* by enum deps */
static char *texts[VARIABLES]; /* a program may change its environment */
struct unknown_variable options_unknown[UNKNOWN_VARIABLES + 1];

static const char *value_of(const char *name)
{
	const char *v = secure_getenv(name); /* whoever sets the environment must not use rights that the program gains */

	return v && *v ? v : NULL;
}

/* How many letters have to be changed, added or left out to make one name the other. */
static unsigned distance(const char *a, const char *b)
{
	unsigned row[32], width = (unsigned)strlen(b); /* b is one of variables, which are shorter */

	for (unsigned k = 0; k <= width; k++)
		row[k] = k;
	for (unsigned i = 0; a[i]; i++) {
		unsigned corner = row[0]++;
		for (unsigned k = 1; k <= width; k++) {
			unsigned above = row[k], best = corner + (toupper((unsigned char)a[i]) != b[k - 1]);
			best = best <= above ? best : above + 1;
			row[k] = best <= row[k - 1] ? best : row[k - 1] + 1;
			corner = above;
		}
	}
	return row[width];
}

/* The variable with the nearest name, itself if it is known. */
static const char *nearest_variable(const char *name)
{
	unsigned least = ~0u, nearest = 0;

	for (unsigned i = 0; i < VARIABLES; i++) {
		unsigned d = distance(name, variables[i].name);
		nearest = d < least ? i : nearest;
		least = d < least ? d : least;
	}
	return variables[nearest].name;
}

/* Not those of the simulator, the toolkit and the build. */
static void find_unknown(void)
{
	static const char *const others[] = {"TT_SIM_", "TT_LIB=", "TT_SANITIZE="};
	struct unknown_variable *u = options_unknown;

	for (char **at = environ; at && *at && u < options_unknown + UNKNOWN_VARIABLES; at++) {
		size_t length = strcspn(*at, "=");
		bool ours = !strncmp(*at, "TT_", 3) && length < sizeof(u->name) && (*at)[length] && (*at)[length + 1];
		for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
			ours &= strncmp(*at, others[i], strlen(others[i])) != 0;
		for (size_t i = 0; ours && i < length; i++)
			ours = isalnum((unsigned char)(*at)[i]) || (*at)[i] == '_';
		if (!ours)
			continue;
		memcpy(u->name, *at, length);
		u->name[length] = 0;
		u->nearest = nearest_variable(u->name);
		u += strcmp(u->name, u->nearest) != 0;
	}
	*u = (struct unknown_variable){0};
}

static bool bad(char *error, size_t size, const char *name, const char *value, const char *want)
{
	snprintf(error, size, "%s=%.80s: %s", name, value, want);
	return false;
}

static bool parse_number(const char *text, uint64_t max, uint64_t *out)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	unsigned long long n = strtoull(text, &end, 10);
	if (errno || *end || n > max)
		return false;
	*out = n;
	return true;
}

static bool parse_size(const char *text, uint64_t *out)
{
	char *end;
	unsigned shift = 0;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	unsigned long long n = strtoull(text, &end, 10);
	switch (*end) {
	case 'k':
	case 'K':
		shift = 10;
		break;
	case 'm':
	case 'M':
		shift = 20;
		break;
	case 'g':
	case 'G':
		shift = 30;
		break;
	case 't':
	case 'T':
		shift = 40;
		break;
	}
	if (shift && *++end == 'i')
		end++;
	if (shift && (*end == 'B' || *end == 'b'))
		end++;
	if (errno || *end || n > (UINT64_MAX >> 1 >> shift))
		return false;
	*out = (uint64_t)n << shift;
	return true;
}

static bool parse_bool(const char *text, bool *out)
{
	if (strcmp(text, "0") && strcmp(text, "1"))
		return false;
	*out = *text == '1';
	return true;
}

static bool read_bool(const char *name, bool *out, char *error, size_t size)
{
	const char *v = value_of(name);

	return !v || parse_bool(v, out) || bad(error, size, name, v, "expected 0 or 1");
}

static bool read_number(const char *name, uint32_t *out, char *error, size_t size)
{
	const char *v = value_of(name);
	uint64_t n = *out;

	if (v && !parse_number(v, UINT32_MAX, &n))
		return bad(error, size, name, v, "expected a whole number");
	*out = (uint32_t)n;
	return true;
}

static bool read_wide_number(const char *name, uint64_t *out, char *error, size_t size)
{
	const char *v = value_of(name);

	return !v || parse_number(v, UINT64_MAX, out) || bad(error, size, name, v, "expected a whole number");
}

/* Seconds, with decimals if need be. */
static bool read_seconds(const char *name, uint64_t *ms, char *error, size_t size)
{
	const char *v = value_of(name), *point = v ? strchr(v, '.') : NULL;
	char whole[16];
	uint64_t n = 0, unit = 1000;

	if (!v)
		return true;
	snprintf(whole, sizeof(whole), "%.*s", point ? (int)(point - v) : 15, v);
	bool good = (point || strlen(v) < 15) && parse_number(whole, 1000000000, &n) && (!point || point[1]);
	*ms = n * 1000;
	for (const char *p = point ? point + 1 : ""; good && *p; p++) {
		good = *p >= '0' && *p <= '9';
		*ms += (uint64_t)(*p - '0') * (unit /= 10);
	}
	return good || bad(error, size, name, v, "expected seconds, such as 60 or 0.5");
}

static bool read_choice(const char *name, const char *const *choices, const char *want, int *out, char *error, size_t size)
{
	const char *v = value_of(name);

	for (int i = 0; v && choices[i]; i++)
		if (!strcmp(v, choices[i])) {
			*out = i;
			return true;
		}
	return !v || bad(error, size, name, v, want);
}

/* To run launches again takes all that they may read, before and after, where it was. */
static bool read_replayable(char *error, size_t size)
{
	static const struct {
		const char *name, *wanted;
	} needs[] = {
		{"TT_EVENTS", "1"}, {"TT_PARAMS", "1"}, {"TT_DETERMINISTIC", "1"}, {"TT_REGIONS", "all"}, {"TT_RETAIN", "0"}};
	static const char *const parts[] = {"TT_KERNEL", "TT_MAX_PER_KERNEL", "TT_CRASH_SAFE"};
	const char *v;
	char why[240];

	options.max_per_kernel = 3;
	if (!read_bool("TT_REPLAYABLE", &options.replayable, error, size) ||
	    !read_number("TT_MAX_PER_KERNEL", &options.max_per_kernel, error, size) ||
	    !read_bool("TT_CRASH_SAFE", &options.crash_safe, error, size))
		return false;
	for (size_t i = 0; !options.replayable && i < sizeof(parts) / sizeof(*parts); i++)
		if (value_of(parts[i])) {
			snprintf(error, size, "%s needs TT_REPLAYABLE=1", parts[i]);
			return false;
		}
	for (size_t i = 0; options.replayable && i < sizeof(needs) / sizeof(*needs); i++)
		if ((v = value_of(needs[i].name)) && strcmp(v, needs[i].wanted)) {
			snprintf(error, size, "TT_REPLAYABLE=1 needs %s=%s", needs[i].name, needs[i].wanted);
			return false;
		}
	if ((v = value_of("TT_DEPS")) && options.replayable && !strcmp(v, "off")) {
		snprintf(error, size, "TT_REPLAYABLE=1 can't be had with TT_DEPS=off");
		return false;
	}
	options.params |= options.replayable;
	options.deterministic |= options.replayable;
	v = value_of("TT_KERNEL");
	return !v || expressions_add(&options.kernel, "", v, strlen(v), why, sizeof(why)) ||
	       bad(error, size, "TT_KERNEL", v, why);
}

static bool read_delay(const char *name, uint32_t most, uint32_t *ns, char *error, size_t size)
{
	char want[60];

	if (!read_number(name, ns, error, size))
		return false;
	snprintf(want, sizeof(want), "expected nanoseconds, at most %u", most);
	return *ns <= most || bad(error, size, name, value_of(name), want);
}

/* here: the working directory with a slash. */
static bool read_delays(const char *here, char *error, size_t size)
{
	static const char *const late[] = {"both", "stream", "host", NULL}; /* by enum launch_delays */
	const char *load = value_of("TT_DELAY_LOAD"), *patterns = value_of("TT_DELAY_PATTERNS");
	const char *kernel = value_of("TT_DELAY_KERNEL");
	int calls = LAUNCH_DELAYS_BOTH, mode = CONFIG_RANDOM;
	char why[240];

	if (!read_delay("TT_LAUNCH_DELAY", CALL_MOST_NS, &options.launch_delay_ns, error, size) ||
	    !read_choice("TT_LAUNCH_DELAY_MODE", late, "expected both, stream or host", &calls, error, size) ||
	    !read_wide_number("TT_DELAY_SEED", &options.delay_seed, error, size) ||
	    !read_delay("TT_DELAY", POINT_MOST_NS, &options.delay_ns, error, size) ||
	    !read_delay("TT_DELAY_MIN", POINT_MOST_NS, &options.delay_min_ns, error, size) ||
	    !read_choice("TT_DELAY_MODE", config_modes, "expected random, fixed or cluster", &mode, error, size))
		return false;
	options.launch_delays = (enum launch_delays)calls;
	options.delay_mode = (enum config_mode)mode;
	if (patterns && strlen(patterns) >= sizeof(options.delay_patterns))
		return bad(error, size, "TT_DELAY_PATTERNS", patterns, "too long");
	strcpy(options.delay_patterns, patterns ? patterns : "");
	if (kernel && !expressions_add(&options.delay_kernel, "", kernel, strlen(kernel), why, sizeof(why)))
		return bad(error, size, "TT_DELAY_KERNEL", kernel, why);
	if (options.delay_min_ns > options.delay_ns)
		return bad(error, size, "TT_DELAY_MIN", value_of("TT_DELAY_MIN"), "expected at most TT_DELAY");
	if (load && (options.delay_ns || options.launch_delay_ns))
		return bad(error, size, "TT_DELAY_LOAD", load,
			   "the file says what is late: not with TT_DELAY or TT_LAUNCH_DELAY");
	if (load && (size_t)snprintf(options.delay_load, sizeof(options.delay_load), "%s%s", *load == '/' ? "" : here, load) >=
			    sizeof(options.delay_load))
		return bad(error, size, "TT_DELAY_LOAD", load, "path too long");
	return true;
}

static bool read_controls(int *timeline, char *error, size_t size)
{
	const char *stamps = value_of("TT_GRAPH_STAMPS"), *control = value_of("TT_CONTROL");
	char why[240];

	if (stamps && !expressions_add(&options.stamps, "", stamps, strlen(stamps), why, sizeof(why)))
		return bad(error, size, "TT_GRAPH_STAMPS", stamps, why);
	if (stamps) /* who asks for stamps wants times */
		*timeline = TIMELINE_EVENTS;
	if (control && !control_check(control, why, sizeof(why)))
		return bad(error, size, "TT_CONTROL", control, why);
	if (control && (size_t)snprintf(options.control, sizeof(options.control), "%s", control) >= sizeof(options.control))
		return bad(error, size, "TT_CONTROL", control, "it is too long");
	return true;
}

bool options_read(char *error, size_t error_size)
{
	static const char *const regions[] = {"all", "touched", NULL};
	static const char *const policies[] = {"backpressure", "drop-oldest", "fail", NULL};
	const char *v;
	char why[240];
	static const char *const launches[] = {"dedup", "full", "nostack", "off", NULL}; /* by enum kernel_events */
	/* By enum callstacks, then names that scripts for other tools use for what auto does. */
	static const char *const callers[] = {"off", "auto", "python", "backtrace", "mixed", "pytorch", "auto-gil", NULL};
	int choice = 0, policy = OVERWRITE_BACKPRESSURE, deps = -1, caller = -1, timeline = TIMELINE_OFF, launch = -1;

	options = (struct options){
		.snapshot_every = 64, .events = true, .nvtx = true, .stall_ms = 10000, .max_disk = DISK_KEEP_FREE};
	v = value_of("TT_OUT");
	if (!v)
		return true;
	for (unsigned i = 0; i < VARIABLES; i++)
		texts[i] = value_of(variables[i].name) ? strdup(value_of(variables[i].name)) : NULL;
	find_unknown();
	char here[2048] = "";
	if (getcwd(here, sizeof(here) - 1))
		strcat(here, "/");
	else if (*v != '/')
		return bad(error, error_size, "TT_OUT", v, "the working directory has no path");
	if ((size_t)snprintf(options.out, sizeof(options.out), "%s%s", *v == '/' ? "" : here, v) >= sizeof(options.out))
		return bad(error, error_size, "TT_OUT", v, "path too long");
	v = value_of("TT_RING_BYTES");
	if (v && (!parse_size(v, &options.ring_bytes) || options.ring_bytes < (256 << 10)))
		return bad(error, error_size, "TT_RING_BYTES", v, "expected a size of at least 256K, such as 256M or 2G");
	v = value_of("TT_MAX_DISK");
	if (v && !strcmp(v, "off"))
		options.max_disk = 0;
	else if (v && strcmp(v, "auto") && (!parse_size(v, &options.max_disk) || options.max_disk < LEAST_DISK))
		return bad(error, error_size, "TT_MAX_DISK", v, "expected auto, off or a size of at least 8M");
	if (!read_controls(&timeline, error, error_size) ||
	    !read_choice("TT_REGIONS", regions, "expected all or touched", &choice, error, error_size) ||
	    !read_choice("TT_OVERWRITE", policies, "expected backpressure, drop-oldest or fail", &policy, error, error_size) ||
	    !read_number("TT_SNAPSHOT_EVERY", &options.snapshot_every, error, error_size) ||
	    !read_number("TT_RETAIN", &options.retain, error, error_size) ||
	    !read_number("TT_COMPRESS", &options.compress, error, error_size) ||
	    !read_number("TT_STALL_MS", &options.stall_ms, error, error_size) ||
	    !read_seconds("TT_TIMEOUT", &options.timeout_ms, error, error_size) ||
	    !read_bool("TT_DETERMINISTIC", &options.deterministic, error, error_size) ||
	    !read_choice("TT_DEPS", orders, "expected off, device or region", &deps, error, error_size) ||
	    !read_bool("TT_EVENTS", &options.events, error, error_size) ||
	    !read_choice("TT_CPU_CALLSTACK", callers, "expected auto, python, backtrace, mixed or off", &caller, error,
			 error_size) ||
	    !read_choice("TT_KERNEL_EVENTS", launches, "expected dedup, full, nostack or off", &launch, error, error_size) ||
	    !read_choice("TT_TIMELINE", timeline_names, "expected cupti, events or off", &timeline, error, error_size) ||
	    !read_delays(here, error, error_size) || !read_bool("TT_PARAMS", &options.params, error, error_size) ||
	    !read_bool("TT_NVTX", &options.nvtx, error, error_size) ||
	    !read_bool("TT_VERBOSE", &options.verbose, error, error_size) || !read_replayable(error, error_size))
		return false;
	v = value_of("TT_EPOCH");
	if (!occasions_read(&options.epoch, v ? v : options.replayable ? "none" : "sync", why, sizeof(why)))
		return bad(error, error_size, "TT_EPOCH", v, why);
	if (options.compress > COMPRESS_MOST)
		return bad(error, error_size, "TT_COMPRESS", value_of("TT_COMPRESS"), "expected a level from 0 to 19");
	options.touched = choice == 1;
	if (caller < 0) /* who asks for launches with stacks wants stacks */
		caller = launch == KERNEL_EVENTS_DEDUP || launch == KERNEL_EVENTS_FULL ? CALLSTACKS_AUTO : CALLSTACKS_OFF;
	options.callstacks = caller > CALLSTACKS_MIXED ? CALLSTACKS_AUTO : (enum callstacks)caller;
	options.launch_stacks = options.callstacks && launch < KERNEL_EVENTS_NOSTACK;
	options.launch_events = options.events && launch != KERNEL_EVENTS_OFF;
	options.timeline = (enum timeline)timeline;
	options.deps = deps >= 0 ? (enum deps)deps : options.touched ? DEPS_REGION : DEPS_DEVICE;
	options.overwrite = (enum overwrite_policy)policy;
	if (options.stamps.count && !options.timeline) {
		snprintf(error, error_size, "TT_GRAPH_STAMPS needs a TT_TIMELINE: stamps are part of it");
		return false;
	}
	if (options.timeline && !options.events) {
		snprintf(error, error_size, "TT_TIMELINE needs TT_EVENTS=1: times are those of recorded calls");
		return false;
	}
	if (launch >= 0 && launch != KERNEL_EVENTS_OFF && !options.events) {
		snprintf(error, error_size, "TT_KERNEL_EVENTS=%s needs TT_EVENTS=1: launches are events", launches[launch]);
		return false;
	}
	if (options.params && launch == KERNEL_EVENTS_OFF) {
		snprintf(error, error_size,
			 "TT_PARAMS=1 needs another TT_KERNEL_EVENTS: parameters are those of recorded launches");
		return false;
	}
	if (options.params && !options.events) {
		snprintf(error, error_size, "TT_PARAMS=1 needs TT_EVENTS=1: parameters are those of recorded launches");
		return false;
	}
	if (options.epoch.inside.count && options.overwrite == OVERWRITE_DROP_OLDEST) {
		snprintf(error, error_size, "TT_EPOCH=graph-node:… can't be had with TT_OVERWRITE=drop-oldest");
		return false;
	}
	if (options.deterministic && options.overwrite != OVERWRITE_BACKPRESSURE) {
		snprintf(error, error_size,
			 "TT_DETERMINISTIC=1 needs TT_OVERWRITE=backpressure: a dropped epoch depends on timing");
		return false;
	}
	return true;
}

/* What an option is where it is not given. */
static const char *normally(unsigned i)
{
	const char *name = variables[i].name;

	if (variables[i].normally)
		return variables[i].normally;
	if (!strcmp(name, "TT_DEPS"))
		return orders[options.deps];
	if (!strcmp(name, "TT_EPOCH"))
		return options.replayable ? "none" : "sync";
	if (!strcmp(name, "TT_PARAMS") || !strcmp(name, "TT_DETERMINISTIC"))
		return options.replayable ? "1" : "0";
	if (!strcmp(name, "TT_MAX_PER_KERNEL"))
		return options.replayable ? "3" : "";
	if (!strcmp(name, "TT_TIMELINE"))
		return timeline_names[options.timeline];
	return options.callstacks ? "auto" : "off";
}

void options_json(struct json *j)
{
	json_open(j, '{');
	for (unsigned i = 0; i < VARIABLES; i++) {
		json_key(j, variables[i].name);
		json_string(j, texts[i] ? texts[i] : normally(i));
	}
	json_close(j, '}');
}
