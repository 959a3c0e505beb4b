/*
 * Reads the TT_ environment variables that option_table.h lists. A variable with a wrong value
 * stops the recording before it starts, because a run with other settings would mislead.
 */
#define _GNU_SOURCE
#include "options/options.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "options/control_text.h"
#include "options/option_limits.h"
#include "options/times.h"
#include "store/disk.h"
#include "util/json_writer.h"

_Alignas(64) struct options options;
char options_unknown[UNKNOWN_VARIABLES + 1][160];

enum number {
#define OPTION(name, ...) NUMBER_##name,
#include "options/option_table.h"
	OPTIONS
};

enum kind {
	SWITCH,
	COUNT,
	RANK,
	SEED,
	CHOICE,
	WORDS,
	RANGE,
	PERCENT,
	SIZE,
	DISK,
	COMPRESS,
	FILL,
	TIME_NS, /* the unit of a number alone, and of the limit */
	TIME_MS,
	TIME_S,
	LIMITS,
	REGEX,
	TRIGGERS,
	CONTENTS,
	CONTROL,
	PATTERNS,
	NUMBERS,
	NAMES,
	PATH
};

static const struct option {
	const char *name;
	enum kind kind;
	const char *limit, *normal;
	void *field;
	size_t size;
} table[] = {
#define OPTION(name, field, kind, limit, normal, ...) {"TT_" #name, kind, limit, normal, &options.field, sizeof(options.field)},
#include "options/option_table.h"
};

struct rule {
	enum number number;
	const char *value;
	enum number other;
	const char *other_value, *why;
};

static const struct rule implied[] = {
#define IMPLIES(a, value, b, other) {NUMBER_##a, value, NUMBER_##b, other, ""},
#include "options/option_table.h"
};

static const struct rule needed[] = {
#define NEEDS(a, value, b, other, why) {NUMBER_##a, value, NUMBER_##b, other, why},
#include "options/option_table.h"
};

static const struct {
	enum number number, by, or_by;
	const char *done;
} tuning[] = {
#define TUNES(a, b, c, done) {NUMBER_##a, NUMBER_##b, NUMBER_##c, done},
#include "options/option_table.h"
};

#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

static char *given[OPTIONS]; /* copies, because a program may change its environment */

/* ---- unknown names ---- */

/* The edit distance of two names. */
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

/* The variable with the nearest name, itself if it is known; NULL: none is alike in half of the letters after TT_. */
static const char *nearest_variable(const char *name)
{
	unsigned least = ~0u, nearest = 0;

	for (unsigned i = 0; i < OPTIONS; i++) {
		unsigned d = distance(name, table[i].name);
		nearest = d < least ? i : nearest;
		least = d < least ? d : least;
	}
	return 2 * least <= strlen(name) - 3 ? table[nearest].name : NULL;
}

static void find_unknown(char *const *environment)
{
	static const char *const others[] = {"TT_SIM_",
					     "TT_LIB=", "TT_SANITIZE="}; /* of the simulator, the toolkit, the build */
	char name[64];
	unsigned found = 0;

	for (char *const *at = environment; *at && found < UNKNOWN_VARIABLES; at++) {
		size_t length = strcspn(*at, "=");
		bool is_option = !strncmp(*at, "TT_", 3) && length < sizeof(name) && (*at)[length] && (*at)[length + 1];
		for (size_t i = 0; i < LENGTH(others); i++)
			is_option &= strncmp(*at, others[i], strlen(others[i])) != 0;
		for (size_t i = 0; is_option && i < length; i++)
			is_option = isalnum((unsigned char)(*at)[i]) || (*at)[i] == '_';
		if (!is_option)
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)length, *at);
		const char *nearest = nearest_variable(name);
		if (nearest && !strcmp(name, nearest))
			continue;
		snprintf(options_unknown[found++], sizeof(*options_unknown), "unknown variable %s%s%s%s", name,
			 nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
	}
	*options_unknown[found] = 0;
}

/* ---- values ---- */

static bool parse_number(const char *text, uint64_t max, uint64_t *out)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	unsigned long long n = strtoull(text, &end, text[0] == '0' && text[1] == 'x' ? 16 : 10);
	if (errno || *end || n > max)
		return false;
	*out = n;
	return true;
}

static bool parse_range(const char *text, struct number_range *out)
{
	const char *colon = strchr(text, ':');
	char first[24];

	snprintf(first, sizeof(first), "%.*s", colon ? (int)(colon - text) : 23, text);
	if ((colon && colon - text >= 23) || !parse_number(first, UINT64_MAX - 1, &out->first) ||
	    !parse_number(colon ? colon + 1 : first, UINT64_MAX - 1, &out->end) || out->first > out->end)
		return false;
	out->end++;
	return true;
}

static bool parse_size(const char *text, uint64_t *out)
{
	const char *units = "kmgt", *unit;
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	unsigned long long n = strtoull(text, &end, 10);
	unit = *end ? strchr(units, tolower((unsigned char)*end)) : NULL;
	unsigned shift = unit ? 10 * (unsigned)(unit + 1 - units) : 0;
	if (shift && *++end == 'i')
		end++;
	if (shift && (*end == 'B' || *end == 'b'))
		end++;
	if (errno || *end || n > (UINT64_MAX >> 1 >> shift))
		return false;
	*out = (uint64_t)n << shift;
	return true;
}

/* A share such as 5% or 0.5, in thousandths of a percent. */
static bool parse_percent(const char *text, uint64_t limit, uint32_t *out)
{
	size_t digits = strspn(text, "0123456789"),
	       decimals = text[digits] == '.' ? strspn(text + digits + 1, "0123456789") : 0;
	const char *end = text + digits + (decimals ? decimals + 1 : 0);
	uint64_t whole;
	char number[8];

	snprintf(number, sizeof(number), "%.*s", (int)(digits < 7 ? digits : 7), text);
	if (digits >= 7 || decimals > 3 || strcmp(*end == '%' ? end + 1 : end, "") != 0 || !parse_number(number, limit, &whole))
		return false;
	whole *= 1000;
	for (size_t i = 1, unit = 100; i <= decimals; i++, unit /= 10)
		whole += (uint64_t)(text[digits + i] - '0') * unit;
	*out = (uint32_t)whole;
	return whole && whole <= limit * 1000;
}

/* A time of at most `limit`, both in units of `unit`. */
static bool take_time(const struct option *o, const char *text, uint64_t unit, uint64_t *out, char *why, size_t size)
{
	uint64_t limit = 0;
	bool good = parse_number(o->limit, UINT32_MAX, &limit);

	time_expect(limit, unit, why, size);
	return good && time_parse(text, strlen(text), unit, out) && *out / unit <= limit;
}

static bool parse_fill(const char *text)
{
	static const char *const words[] = {
		[FILL_OFF] = "off", [FILL_KEEP] = "keep", [FILL_ZERO] = "zero", [FILL_ONES] = "ones"};
	static const char pattern[] = "pattern:";

	for (enum fill i = FILL_OFF; i < FILL_PATTERN; i++)
		if (!strcmp(text, words[i])) {
			options.fill.kind = i;
			return true;
		}
	options.fill.kind = FILL_PATTERN;
	return !strncmp(text, pattern, strlen(pattern)) && parse_number(text + strlen(pattern), UINT64_MAX, &options.fill.seed);
}

/* Mnemonics or asterisks, separated by commas. */
static bool are_patterns(const char *text)
{
	for (;;) {
		size_t n = *text == '*' ? 1 : strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.");
		if (!n || !text[n])
			return n;
		if (text[n] != ',')
			return false;
		text += n + 1;
	}
}

bool numbers_read(const char *text, uint64_t n, bool *holds)
{
	char list[256], *rest = NULL;

	*holds = false;
	if (!*text || text[strlen(text) - 1] == ',' || (size_t)snprintf(list, sizeof(list), "%s", text) >= sizeof(list))
		return false;
	for (char *part = strtok_r(list, ",", &rest); part; part = strtok_r(NULL, ",", &rest)) {
		char *dash = strchr(part, '-');
		uint64_t first, last;
		if (dash)
			*dash = 0;
		if (!parse_number(part, UINT32_MAX, &first) || !parse_number(dash ? dash + 1 : part, UINT32_MAX, &last) ||
		    first > last)
			return false;
		*holds |= first <= n && n <= last;
	}
	return true;
}

static bool take_text(const struct option *o, const char *text, char *why, size_t size)
{
	if ((size_t)snprintf(o->field, o->size, "%s", text) < o->size)
		return true;
	snprintf(why, size, "too long");
	return false;
}

/* Makes a path absolute, because a program may change its working directory. */
static bool take_path(const struct option *o, const char *text, char *why, size_t size)
{
	char path[6200] = "";

	if (*text != '/' && !getcwd(path, 2048)) {
		snprintf(why, size, "the working directory has no path");
		return false;
	}
	size_t here = strlen(path);
	snprintf(path + here, sizeof(path) - here, "%s%s", here ? "/" : "", text);
	return take_text(o, path, why, size);
}

static bool parse(const struct option *o, const char *text, char *why, size_t size)
{
	uint64_t n = 0, limit = 0;
	bool good;

	switch (o->kind) {
	case SWITCH:
		snprintf(why, size, "expected 0 or 1");
		*(bool *)o->field = *text == '1';
		return !strcmp(text, "0") || !strcmp(text, "1");
	case COUNT:
	case RANK:
		parse_number(o->limit, UINT32_MAX, &limit);
		snprintf(why, size, limit < UINT32_MAX ? "expected a whole number, at most %s" : "expected a whole number",
			 o->limit);
		good = parse_number(text, limit, &n);
		*(uint32_t *)o->field = (uint32_t)n + (o->kind == RANK);
		return good;
	case COMPRESS:
		snprintf(why, size, "expected off, device, or a whole number, at most %s", o->limit);
		n = !strcmp(text, "device") ? COMPRESS_DEVICE : 0;
		good = n || !strcmp(text, "off") ||
		       (parse_number(o->limit, UINT32_MAX, &limit) && parse_number(text, limit, &n));
		*(uint32_t *)o->field = (uint32_t)n;
		return good;
	case SEED:
		snprintf(why, size, "expected a whole number");
		return parse_number(text, UINT64_MAX, o->field);
	case CHOICE:
		choice_expect(o->limit, why, size);
		return choice_parse(text, o->limit, o->field);
	case WORDS:
		snprintf(why, size, "words are separated by commas; ");
		choice_expect(o->limit, why + strlen(why), size - strlen(why));
		return words_parse(text, o->limit, o->field);
	case RANGE:
		snprintf(why, size, "expected a number, or a range such as 10:20");
		return parse_range(text, o->field);
	case PERCENT:
		snprintf(why, size, "expected a share above 0%%, at most %s%%, such as 5%% or 0.5%% (without a unit: %%)",
			 o->limit);
		return parse_number(o->limit, UINT32_MAX, &limit) && parse_percent(text, limit, o->field);
	case DISK:
		*(uint64_t *)o->field = *text == 'a' ? DISK_KEEP_FREE : 0;
		if (!strcmp(text, "auto") || !strcmp(text, "off"))
			return true;
		__attribute__((fallthrough));
	case SIZE:
		snprintf(why, size, "expected %sa size of at least %s, such as 256M or 2G (without a unit: bytes)",
			 o->kind == DISK ? "auto, off or " : "", o->limit);
		return parse_size(o->limit, &limit) && parse_size(text, o->field) && *(uint64_t *)o->field >= limit;
	case FILL:
		snprintf(why, size, "expected off, zero, ones or pattern:N, such as pattern:1");
		return parse_fill(text);
	case TIME_NS:
	case TIME_MS:
		good = take_time(o, text, o->kind == TIME_NS ? NS : MS, &n, why, size);
		*(uint32_t *)o->field = (uint32_t)(n / (o->kind == TIME_NS ? NS : MS));
		return good;
	case TIME_S:
		good = take_time(o, text, SECOND, &n, why, size);
		*(uint64_t *)o->field = n / MS;
		return good;
	case LIMITS:
		return time_limits_read(o->field, text, why, size);
	case REGEX:
		return expressions_add(o->field, "", text, strlen(text), why, size);
	case TRIGGERS:
		return triggers_read(o->field, text, why, size);
	case CONTENTS:
		return contents_read(o->field, text, why, size);
	case CONTROL:
		return control_check(text, why, size) && take_text(o, text, why, size);
	case PATTERNS:
		snprintf(why, size, "expected mnemonics with commas between them, such as UTMALDG,SYNCS, or *");
		return are_patterns(text) && take_text(o, text, why, size);
	case NUMBERS:
		snprintf(why, size, "expected numbers and ranges with commas between them, such as 0,3-5");
		return numbers_read(text, 0, &good) && take_text(o, text, why, size);
	case NAMES:
		snprintf(why, size, "expected texts with commas between them, such as gemm,reduce");
		return *text != ',' && !strstr(text, ",,") && text[strlen(text) - 1] != ',' && take_text(o, text, why, size);
	case PATH:
		return take_path(o, text, why, size);
	}
	return false;
}

/* ---- rules ---- */

static bool matches(const char *text, const char *value)
{
	return !*value || (*value == '!' ? strcmp(text, value + 1) != 0 : !strcmp(text, value));
}

static bool holds(const struct rule *r)
{
	return given[r->number] && matches(given[r->number], r->value);
}

/* The value of an option, given or default. */
static const char *text_of(unsigned number)
{
	const char *normal = table[number].normal;

	for (size_t i = 0; i < LENGTH(implied); i++)
		if (implied[i].other == number && holds(&implied[i]))
			normal = implied[i].other_value;
	return given[number] ? given[number] : normal;
}

/* An option with a value, or without one (""), spelled as a variable or as a command-line option. */
static const char *spelled(unsigned number, const char *value, bool as_option, char *out, size_t size)
{
	char name[40];

	snprintf(name, sizeof(name), "%s", table[number].name + strlen("TT_"));
	for (char *c = name; as_option && *c; c++)
		*c = *c == '_' ? '-' : (char)tolower((unsigned char)*c);
	if (as_option && table[number].kind == SWITCH)
		snprintf(out, size, "--%s%s", strcmp(value, "0") ? "" : "no-", name);
	else
		snprintf(out, size, "%s%s%s%.80s", as_option ? "--" : "TT_", name, !*value ? "" : as_option ? " " : "=", value);
	return out;
}

static bool complain(const struct rule *r, bool as_option, char *error, size_t size)
{
	bool any = !strcmp(r->other_value, "!"), another = *r->other_value == '!' && !any;
	char a[160], b[160];

	spelled(r->number, *r->value ? given[r->number] : "", as_option, a, sizeof(a));
	spelled(r->other, another || any ? "" : r->other_value, as_option, b, sizeof(b));
	snprintf(error, size, "%s needs %s%s%s%s%s%s", a, another ? "another " : "", b, another ? " than " : "",
		 another ? r->other_value + 1 : "", *r->why ? ": " : "", r->why);
	return false;
}

static bool keep_rules(const unsigned char *as_option, char *error, size_t size)
{
	char a[80], b[80], c[80];

	for (size_t i = 0; i < LENGTH(needed); i++)
		if (holds(&needed[i]) && !matches(text_of(needed[i].other), needed[i].other_value))
			return complain(&needed[i], as_option, error, size);
	for (size_t i = 0; as_option && i < LENGTH(tuning); i++) {
		unsigned by = tuning[i].by, or_by = tuning[i].or_by;
		if (!as_option[tuning[i].number] || given[by] || given[or_by])
			continue;
		snprintf(error, size, "%s needs %s%s%s: nothing would be %s", spelled(tuning[i].number, "", true, a, sizeof(a)),
			 spelled(by, "", true, b, sizeof(b)), by == or_by ? "" : " or ",
			 by == or_by ? "" : spelled(or_by, "", true, c, sizeof(c)), tuning[i].done);
		return false;
	}
	if (options.delay_min_ns > options.delay_ns && !*options.delay_load) {
		snprintf(error, size, "%s can't be more than %s", spelled(NUMBER_DELAY_MIN, "", as_option, a, sizeof(a)),
			 spelled(NUMBER_DELAY, "", as_option, b, sizeof(b)));
		return false;
	}
	if (options.replayable && !options.contents.always)
		return complain(&(struct rule){NUMBER_REPLAYABLE, "1", NUMBER_CONTENTS, "changed", "all contents are needed"},
				as_option, error, size);
	if (options.epoch.inside.count && options.entry == ENTRY_CUPTI)
		return complain(&(struct rule){NUMBER_EPOCH, "graph-node", NUMBER_ENTRY, "!cupti", "CUPTI can't change graphs"},
				as_option, error, size);
	if (options.epoch.inside.count && options.contents.every)
		return complain(&(struct rule){NUMBER_CONTENTS, "every", NUMBER_EPOCH, "!graph-node",
					       "epochs inside graphs are no snapshots"},
				as_option, error, size);
	if (options.max_overhead && options.epoch.inside.count)
		return complain(&(struct rule){NUMBER_MAX_OVERHEAD, "", NUMBER_EPOCH, "!graph-node",
					       "the cost of epochs inside graphs is not measured"},
				as_option, error, size);
	if (options.epoch.inside.count && options.overwrite == OVERWRITE_DROP_OLDEST)
		return complain(&(struct rule){NUMBER_EPOCH, "graph-node", NUMBER_OVERWRITE, "!drop-oldest",
					       "epochs inside graphs can't be dropped"},
				as_option, error, size);
	return true;
}

/* ---- all options ---- */

static void forget(void)
{
	for (unsigned i = 0; i < OPTIONS; i++) {
		free(given[i]);
		given[i] = NULL;
		if (table[i].kind == REGEX)
			expressions_free(table[i].field);
		if (table[i].kind == LIMITS)
			time_limits_free(table[i].field);
	}
	triggers_free(&options.epoch);
	expressions_free(&options.contents.nvtx);
	memset(&options, 0, sizeof(options));
}

static bool take_environment(char *const *environment)
{
	for (char *const *at = environment; *at; at++)
		for (unsigned i = 0; i < OPTIONS; i++) {
			size_t n = strlen(table[i].name);
			if (!strncmp(*at, table[i].name, n) && (*at)[n] == '=' && (*at)[n + 1] && !given[i] &&
			    !(given[i] = strdup(*at + n + 1)))
				return false;
		}
	return true;
}

bool options_read_from(char *const *environment, const unsigned char *as_option, char *error, size_t size)
{
	char name[160], why[240];

	forget();
	find_unknown(environment);
	if (!take_environment(environment)) {
		snprintf(error, size, "no host memory for the options");
		return false;
	}
	for (unsigned i = 0; i < OPTIONS; i++) {
		const char *text = text_of(i);
		if (*text && !parse(&table[i], text, why, sizeof(why))) {
			snprintf(error, size, "%s: %s", spelled(i, text, as_option && as_option[i], name, sizeof(name)), why);
			return false;
		}
	}
	if (options.callstacks > CALLSTACKS_PYTORCH) /* names of other tools; the last one is 0 */
		options.callstacks = options.callstacks == CALLSTACKS_0 ? CALLSTACKS_OFF : CALLSTACKS_AUTO;
	options.launch_stacks = options.callstacks && options.kernel_events < KERNEL_EVENTS_NOSTACK;
	options.launch_events = options.events && options.kernel_events != KERNEL_EVENTS_OFF;
	options.launch_extras = options.launch_stacks || options.params;
	options.plain_launches = !options.epoch.window;
	options.deps_of_regions = options.deps == DEPS_REGION;
	return keep_rules(as_option, error, size);
}

bool options_read(char *error, size_t size)
{
	const char *out = secure_getenv("TT_OUT"); /* a set-user-ID program must not write where its user says */

	return !out || !*out || options_read_from(environ, NULL, error, size);
}

bool options_enter_by_cupti(char *error, size_t size)
{
	free(given[NUMBER_ENTRY]);
	options.entry = ENTRY_CUPTI;
	return (given[NUMBER_ENTRY] = strdup("cupti")) && keep_rules(NULL, error, size);
}

bool options_check(const char *name, const char *value, char *why, size_t size)
{
	unsigned i = 0;

	forget();
	while (i < OPTIONS && strcmp(table[i].name, name))
		i++;
	return i < OPTIONS && parse(&table[i], value, why, size);
}

void options_json(struct json *j)
{
	json_open(j, '{');
	for (unsigned i = 0; i < OPTIONS; i++) {
		json_key(j, table[i].name);
		json_string(j, text_of(i));
	}
	json_close(j, '}');
}
