/*
 * Parses settings that change while the program runs. See control_text.h.
 */
#include "options/control_text.h"

#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REGIONS_MOST 400 /* characters */
#define KNOWN "points=on|off, stamps=on|off, regions=all|touched|named|IDS|REGEX or snapshot=N"

static bool refuse(char *why, size_t size, const char *setting, const char *want)
{
	snprintf(why, size, "'%.80s': expected %s", setting, want);
	return false;
}

static bool read_switch(const char *value, bool *to)
{
	*to = !strcmp(value, "on");
	return *to || !strcmp(value, "off");
}

static bool read_count(const char *value, uint32_t *to)
{
	char *end;
	unsigned long n = *value >= '0' && *value <= '9' ? strtoul(value, &end, 10) : UINT32_MAX;

	*to = (uint32_t)n;
	return n < UINT32_MAX && !*end;
}

/* A list such as 0,4-6. */
static bool are_ids(const char *text)
{
	return text[strspn(text, "0123456789,-")] == 0;
}

/* Whether all numbers and ranges are valid. */
static bool ids_good(const char *at)
{
	for (;; at++) {
		const char *from = at, *to;
		at += strspn(at, "0123456789");
		if (at == from)
			return false;
		if (*at == '-') {
			to = ++at;
			at += strspn(at, "0123456789");
			if (at == to || strtoul(to, NULL, 10) < strtoul(from, NULL, 10))
				return false;
		}
		if (*at != ',')
			return !*at;
	}
}

bool control_is_expression(const char *text)
{
	return strcmp(text, "all") && strcmp(text, "touched") && strcmp(text, "named") && !are_ids(text);
}

static bool compiles(const char *text, char *why, size_t size)
{
	char reason[120];
	regex_t e;
	int code = regcomp(&e, text, REG_EXTENDED | REG_NOSUB);

	if (code) {
		regerror(code, &e, reason, sizeof(reason));
		snprintf(why, size, "regions=%.80s: %s", text, reason);
		return false;
	}
	regfree(&e);
	return true;
}

static bool read_setting(struct control_settings *w, char *setting, char *why, size_t size)
{
	char *value = strchr(setting, '=');

	if (!value || !value[1])
		return refuse(why, size, setting, KNOWN);
	*value++ = 0;
	if (!strcmp(setting, "points"))
		return read_switch(value, &w->points) || refuse(why, size, value, "on or off");
	if (!strcmp(setting, "stamps"))
		return read_switch(value, &w->stamps) || refuse(why, size, value, "on or off");
	if (!strcmp(setting, "snapshot"))
		return read_count(value, &w->snapshot_every) || refuse(why, size, value, "a whole number");
	if (strcmp(setting, "regions")) {
		value[-1] = '=';
		return refuse(why, size, setting, KNOWN);
	}
	if (strlen(value) > REGIONS_MOST)
		return refuse(why, size, value, "at most 400 characters");
	if (are_ids(value) && !ids_good(value))
		return refuse(why, size, value, "region ids such as 0,4-6");
	if (control_is_expression(value) && !compiles(value, why, size))
		return false;
	free(w->regions);
	w->regions = strdup(value);
	return w->regions || (snprintf(why, size, "no host memory"), false);
}

/* Removes spaces and line ends after the text. */
static char *trimmed(char *text)
{
	text += strspn(text, " \t\n");
	for (size_t n = strlen(text); n && strchr(" \t\n", text[n - 1]); n--)
		text[n - 1] = 0;
	return text;
}

bool control_read(struct control_settings *w, const char *text, char *why, size_t size)
{
	char *copy = strdup(text), *rest = copy, *setting;
	bool ok = copy || (snprintf(why, size, "no host memory"), false);

	while (ok && (setting = strsep(&rest, ";"))) {
		setting = trimmed(setting);
		ok = !*setting || read_setting(w, setting, why, size);
	}
	free(copy);
	return ok;
}

bool control_check(const char *text, char *why, size_t size)
{
	struct control_settings w = {0};
	bool ok = control_read(&w, text, why, size);

	free(w.regions);
	return ok;
}
