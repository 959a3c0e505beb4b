/*
 * Times in options. See times.h.
 */
#include "options/times.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS 15 /* of a number, before its decimals */
#define LONGEST (UINT64_C(1000000000) * SECOND)

static const struct {
	const char *name;
	uint64_t ns;
} times[] = {{"ns", NS}, {"us", 1000}, {"ms", MS}, {"s", SECOND}, {"m", 60 * SECOND}, {"h", 3600 * SECOND}};

#define TIMES (sizeof(times) / sizeof(*times))

bool time_parse(const char *text, size_t length, uint64_t unit, uint64_t *ns)
{
	size_t digits = strspn(text, "0123456789"),
	       decimals = text[digits] == '.' ? strspn(text + digits + 1, "0123456789") : 0;
	size_t end = digits + (decimals ? decimals + 1 : 0);
	uint64_t n = 0;

	if (!digits || digits >= DIGITS || end > length)
		return false;
	for (size_t i = 0; i < TIMES && end < length; i++)
		if (strlen(times[i].name) == length - end && !strncmp(text + end, times[i].name, length - end)) {
			unit = times[i].ns;
			end = length;
		}
	for (size_t i = 0; i < digits; i++)
		n = n * 10 + (uint64_t)(text[i] - '0');
	if (end < length || n > UINT64_MAX / 2 / unit)
		return false;
	*ns = n * unit;
	for (size_t i = 1; i <= decimals; i++)
		*ns += (uint64_t)(text[digits + i] - '0') * (unit /= 10);
	return true;
}

void time_expect(uint64_t limit, uint64_t unit, char *why, size_t size)
{
	const char *name = unit == NS ? "ns" : unit == MS ? "ms" : "s";
	size_t largest = 0;

	for (size_t i = 0; i < TIMES; i++)
		largest = limit * unit % times[i].ns ? largest : i;
	snprintf(why, size, "expected a time of at most %" PRIu64 "%s, such as 500us, 20ms, 1.5s or 2m (without a unit: %s)",
		 limit * unit / times[largest].ns, times[largest].name, name);
}

/* ---- limits of kernels ---- */

static bool read_one(struct time_limits *limits, const char *text, size_t length, char *why, size_t size)
{
	struct time_limit *l = &limits->list[limits->count];
	size_t at = length;

	while (at && text[at - 1] != '=')
		at--;
	l->every = !at;
	snprintf(why, size, "expected TIME or REGEX=TIME, such as 30s or '^gemm=500ms;5s' (without a unit: s)");
	if (limits->count == TIME_LIMITS || at == 1 || !time_parse(text + at, length - at, SECOND, &l->ns) || l->ns > LONGEST ||
	    !l->ns)
		return false;
	if (!l->every) {
		char *expression = strndup(text, at - 1), reason[120];
		int code = expression ? regcomp(&l->names, expression, REG_EXTENDED | REG_NOSUB) : REG_ESPACE;
		if (code && expression) {
			regerror(code, &l->names, reason, sizeof(reason));
			snprintf(why, size, "%.80s: %s", expression, reason);
		}
		free(expression);
		if (code)
			return false;
	}
	limits->count++;
	return true;
}

bool time_limits_read(struct time_limits *limits, const char *text, char *why, size_t size)
{
	for (;; text++) {
		size_t length = strcspn(text, ";");
		if (!read_one(limits, text, length, why, size))
			return false;
		text += length;
		if (!*text)
			return true;
	}
}

void time_limits_free(struct time_limits *limits)
{
	for (unsigned i = 0; i < limits->count; i++)
		if (!limits->list[i].every)
			regfree(&limits->list[i].names);
	limits->count = 0;
}

uint64_t time_limit_of(const struct time_limits *limits, const char *name)
{
	for (unsigned i = 0; i < limits->count; i++) {
		const struct time_limit *l = &limits->list[i];
		if (l->every || (name && !regexec(&l->names, name, 0, NULL, 0)))
			return l->ns;
	}
	return 0;
}
