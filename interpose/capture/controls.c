/*
 * Settings that change while the program runs. See controls.h for the invariant.
 */
#define _GNU_SOURCE
#include "capture/controls.h"

#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/events.h"
#include "util/hot.h"
#include "options/options.h"
#include "lifecycle/recorder.h"
#include "util/clock.h"
#include "track/regions.h"
#include "track/streams.h"

#define REGIONS_MOST 400 /* characters */
#define KNOWN "points=on|off, stamps=on|off, regions=all|touched|IDS|REGEX or snapshot=N"

HOT_DATA struct controls controls;

/* What is asked for, as it is read; regions: what was said of them, NULL: nothing. */
struct wish {
	bool points, stamps;
	uint32_t snapshot_every;
	char *regions;
};

static char *regions_text; /* as it was given */
static regex_t expression; /* of names, if regions_text is one */
static bool has_expression;

/* ---- reading ---- */

static bool refuse(char *why, size_t size, const char *setting, const char *want)
{
	snprintf(why, size, "'%.80s' is not %s", setting, want);
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

/* Such as 0,4-6. */
static bool are_ids(const char *text)
{
	return text[strspn(text, "0123456789,-")] == 0;
}

static bool has_id(const char *ids, uint32_t id)
{
	for (const char *at = ids; *at;) {
		char *end;
		unsigned long first = strtoul(at, &end, 10), last = first;
		if (*end == '-')
			last = strtoul(end + 1, &end, 10);
		if (id >= first && id <= last)
			return true;
		at = end + (*end == ',' || end == at);
	}
	return false;
}

/* Numbers and spans of them. */
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

static bool is_expression(const char *text)
{
	return strcmp(text, "all") && strcmp(text, "touched") && !are_ids(text);
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

static bool read_setting(struct wish *w, char *setting, char *why, size_t size)
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
	if (strcmp(setting, "regions"))
		return refuse(why, size, setting, KNOWN);
	if (strlen(value) > REGIONS_MOST)
		return refuse(why, size, value, "short enough");
	if (are_ids(value) && !ids_good(value))
		return refuse(why, size, value, "ids of regions, as 0,4-6");
	if (is_expression(value) && !compiles(value, why, size))
		return false;
	free(w->regions);
	w->regions = strdup(value);
	return w->regions || (snprintf(why, size, "no host memory"), false);
}

/* What it is followed by spaces and line ends is none of a setting. */
static char *trimmed(char *text)
{
	text += strspn(text, " \t\n");
	for (size_t n = strlen(text); n && strchr(" \t\n", text[n - 1]); n--)
		text[n - 1] = 0;
	return text;
}

/* On top of what w has. */
static bool read(struct wish *w, const char *text, char *why, size_t size)
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

bool controls_check(const char *text, char *why, size_t size)
{
	struct wish w = {0};
	bool ok = read(&w, text, why, size);

	free(w.regions);
	return ok;
}

/* ---- taking ---- */

static void take_regions(char *text)
{
	static uint32_t last;
	bool touched = !strcmp(text, "touched");

	if (has_expression)
		regfree(&expression);
	has_expression = is_expression(text) && !regcomp(&expression, text, REG_EXTENDED | REG_NOSUB);
	free(regions_text);
	regions_text = text;
	controls.choice = touched || !strcmp(text, "all") ? 0 : ++last;
	if (touched && !atomic_exchange(&controls.touched, true)) /* what was touched before was not noted */
		for (struct context *c = context_first(); c; c = c->next)
			regions_touch_all(c);
	atomic_store(&controls.touched, touched);
}

bool controls_set(const char *text, char *why, size_t size)
{
	struct wish w = {.points = atomic_load(&controls.points), .stamps = atomic_load(&controls.stamps),
			 .snapshot_every = controls.snapshot_every};
	char all[512];

	if (!read(&w, text, why, size)) {
		free(w.regions);
		return false;
	}
	if (w.regions)
		take_regions(w.regions);
	controls.snapshot_every = w.snapshot_every;
	atomic_store(&controls.points, w.points);
	atomic_store(&controls.stamps, w.stamps);
	snprintf(all, sizeof(all), "points=%s;stamps=%s;snapshot=%u;regions=%s", w.points ? "on" : "off",
		 w.stamps ? "on" : "off", w.snapshot_every, regions_text);
	uint32_t string = store_string(recorder_store(), all);
	controls.text = string == TT_NO_ID ? 0 : string;
	return true;
}

void controls_begin(void)
{
	char why[200];

	atomic_store(&controls.points, true);
	atomic_store(&controls.stamps, true);
	atomic_store(&controls.touched, options.touched);
	controls.snapshot_every = options.snapshot_every;
	regions_text = strdup(options.touched ? "touched" : "all");
	if (*options.control)
		controls_set(options.control, why, sizeof(why));
}

void controls_note(void)
{
	struct tt_event *e = options.events ? events_next() : NULL;

	if (!e)
		return;
	e->seq = recorder_next_seq();
	e->time_ns = clock_ns();
	e->thread = thread_current()->tid;
	e->call = TT_NO_CALL; /* and of all contexts */
	e->id = controls.text;
	events_publish(e, TT_EVENT_CONTROL);
}

static bool is_called(const char *name, void *unused)
{
	(void)unused;
	return !regexec(&expression, name, 0, NULL, 0);
}

bool controls_want(struct region *r)
{
	if (!controls.choice)
		return true;
	return has_expression ? region_is_called(r, is_called, NULL, controls.choice) : has_id(regions_text, r->id);
}
