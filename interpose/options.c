/*
 * Reads the TT_ environment variables. A variable that can't be understood stops the
 * recording before it began: a run that silently meant something else would be worse.
 */
#include "options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "drain/json.h"

#define COMPRESS_MOST 19 /* levels above need memory that is not ours to take */

_Alignas(64) struct options options;

static const char *const names[] = {
	"TT_OUT", "TT_EPOCH", "TT_REGIONS", "TT_SNAPSHOT_EVERY", "TT_RETAIN", "TT_OVERWRITE",
	"TT_RING_BYTES", "TT_DETERMINISTIC", "TT_DEPS", "TT_EVENTS", "TT_STALL_MS", "TT_VERBOSE", "TT_COMPRESS",
	"TT_PARAMS", "TT_CPU_CALLSTACK",
};
#define NAMES (sizeof(names) / sizeof(*names))
static const char *const orders[] = {"off", "device", "region", NULL}; /* by enum deps */
static char *texts[NAMES]; /* a program may change its environment */

static const char *value_of(const char *name)
{
	const char *v = getenv(name);

	return v && *v ? v : NULL;
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
	case 'k': case 'K': shift = 10; break;
	case 'm': case 'M': shift = 20; break;
	case 'g': case 'G': shift = 30; break;
	case 't': case 'T': shift = 40; break;
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

/* kernel:REGEX takes the rest of the text, commas included, since expressions hold commas. */
static bool parse_epoch(const char *text, char *error, size_t size)
{
	while (*text) {
		size_t n = strcspn(text, ",");

		if (!strncmp(text, "kernel:", 7)) {
			int rc = regcomp(&options.kernel, text + 7, REG_EXTENDED | REG_NOSUB);
			if (rc || !text[7]) {
				char why[120] = "empty expression";
				if (rc)
					regerror(rc, &options.kernel, why, sizeof(why));
				snprintf(error, size, "TT_EPOCH=kernel:%.80s: %s", text + 7, why);
				return false;
			}
			options.epoch_kernel = true;
			return true;
		}
		if (n == 4 && !strncmp(text, "sync", 4)) {
			options.epoch_sync = true;
		} else if (n == 6 && !strncmp(text, "memcpy", 6)) {
			options.epoch_copy = true;
		} else if (n == 3 && !strncmp(text, "api", 3)) {
			options.epoch_api = true;
		} else if (n >= 6 && !strncmp(text, "launch", 6)) {
			uint64_t every = 1;
			char number[24] = "1";
			if (n > 6 && (text[6] != ':' || n - 7 >= sizeof(number)))
				return bad(error, size, "TT_EPOCH", text, "expected launch or launch:N");
			if (n > 6)
				snprintf(number, sizeof(number), "%.*s", (int)(n - 7), text + 7);
			if (!parse_number(number, UINT32_MAX, &every) || !every)
				return bad(error, size, "TT_EPOCH", text, "launch:N needs a count from 1");
			options.epoch_launch = (uint32_t)every;
		} else if (!(n == 4 && !strncmp(text, "none", 4))) {
			return bad(error, size, "TT_EPOCH", text,
				   "expected sync, launch[:N], memcpy, api, none or kernel:REGEX (last)");
		}
		text += n;
		if (*text == ',')
			text++;
	}
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

static bool read_choice(const char *name, const char *const *choices, const char *want, int *out,
			char *error, size_t size)
{
	const char *v = value_of(name);

	for (int i = 0; v && choices[i]; i++)
		if (!strcmp(v, choices[i])) {
			*out = i;
			return true;
		}
	return !v || bad(error, size, name, v, want);
}

bool options_read(char *error, size_t error_size)
{
	static const char *const regions[] = {"all", "touched", NULL};
	static const char *const policies[] = {"backpressure", "drop-oldest", "fail", NULL};
	const char *v;
	static const char *const callers[] = {"off", "auto", "python", "backtrace", NULL};
	int choice = 0, policy = OVERWRITE_BACKPRESSURE, deps = -1, caller = 0;

	options = (struct options){.snapshot_every = 64, .events = true, .stall_ms = 10000};
	v = value_of("TT_OUT");
	if (!v)
		return true;
	for (unsigned i = 0; i < NAMES; i++)
		texts[i] = value_of(names[i]) ? strdup(value_of(names[i])) : NULL;
	char here[2048] = "";
	if (*v != '/' && !getcwd(here, sizeof(here) - 1))
		return bad(error, error_size, "TT_OUT", v, "the working directory has no path");
	if (*here)
		strcat(here, "/");
	if ((size_t)snprintf(options.out, sizeof(options.out), "%s%s", here, v) >= sizeof(options.out))
		return bad(error, error_size, "TT_OUT", v, "path too long");
	v = value_of("TT_EPOCH");
	if (!parse_epoch(v ? v : "sync", error, error_size))
		return false;
	v = value_of("TT_RING_BYTES");
	if (v && (!parse_size(v, &options.ring_bytes) || options.ring_bytes < (256 << 10)))
		return bad(error, error_size, "TT_RING_BYTES", v,
			   "expected a size of at least 256K, such as 256M or 2G");
	if (!read_choice("TT_REGIONS", regions, "expected all or touched", &choice, error, error_size) ||
	    !read_choice("TT_OVERWRITE", policies, "expected backpressure, drop-oldest or fail", &policy,
			 error, error_size) ||
	    !read_number("TT_SNAPSHOT_EVERY", &options.snapshot_every, error, error_size) ||
	    !read_number("TT_RETAIN", &options.retain, error, error_size) ||
	    !read_number("TT_COMPRESS", &options.compress, error, error_size) ||
	    !read_number("TT_STALL_MS", &options.stall_ms, error, error_size) ||
	    !read_bool("TT_DETERMINISTIC", &options.deterministic, error, error_size) ||
	    !read_choice("TT_DEPS", orders, "expected off, device or region", &deps, error, error_size) ||
	    !read_bool("TT_EVENTS", &options.events, error, error_size) ||
	    !read_choice("TT_CPU_CALLSTACK", callers, "expected auto, python, backtrace or off", &caller, error, error_size) ||
	    !read_bool("TT_PARAMS", &options.params, error, error_size) ||
	    !read_bool("TT_VERBOSE", &options.verbose, error, error_size))
		return false;
	if (options.compress > COMPRESS_MOST)
		return bad(error, error_size, "TT_COMPRESS", value_of("TT_COMPRESS"), "expected a level from 0 to 19");
	options.touched = choice == 1;
	options.callstacks = (enum callstacks)caller;
	options.deps = deps >= 0 ? (enum deps)deps : options.touched ? DEPS_REGION : DEPS_DEVICE;
	options.overwrite = (enum overwrite_policy)policy;
	if (options.params && !options.events) {
		snprintf(error, error_size, "TT_PARAMS=1 needs TT_EVENTS=1: parameters are those of recorded launches");
		return false;
	}
	if (options.deterministic && options.overwrite != OVERWRITE_BACKPRESSURE) {
		snprintf(error, error_size,
			 "TT_DETERMINISTIC=1 needs TT_OVERWRITE=backpressure: a dropped epoch depends on timing");
		return false;
	}
	return true;
}

void options_json(struct json *j)
{
	const char *const defaults[] = {
		"", "sync", "all", "64", "0", "backpressure", "", "0", orders[options.deps], "1", "10000", "0", "0", "0", "off",
	};

	json_open(j, '{');
	for (unsigned i = 0; i < NAMES; i++) {
		json_key(j, names[i]);
		json_string(j, texts[i] ? texts[i] : defaults[i]);
	}
	json_close(j, '}');
}
