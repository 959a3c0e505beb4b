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
#include "util/compiler.h"
#include "options/control_text.h"
#include "options/options.h"
#include "session/session.h"
#include "util/clock.h"
#include "track/regions.h"
#include "track/streams.h"

HOT_DATA struct controls controls;

#define FREED " (freed)" /* the end of the names of memory that is unused: see ttanalyze/integrations/memory_names.py */

static struct {
	char *text;         /* as the program gave it */
	regex_t expression; /* of names, if the text is an expression */
	bool has_expression;
	bool named;        /* all with a name of memory in use */
	bool asked, found; /* then: there was a region, there was one with a name */
} wanted; /* regions */

/* copy: of the text, which it takes; NULL: no host memory. */
static void take_regions(const char *text, char *copy)
{
	static uint32_t last;
	bool touched = !strcmp(text, "touched");

	if (wanted.has_expression)
		regfree(&wanted.expression);
	wanted.has_expression = control_is_expression(text) && !regcomp(&wanted.expression, text, REG_EXTENDED | REG_NOSUB);
	free(wanted.text);
	wanted.text = copy;
	wanted.named = !strcmp(text, "named");
	controls.choice = touched || !strcmp(text, "all") ? 0 : ++last;
	if (touched && !atomic_exchange(&controls.touched, true)) /* earlier writes were not noted */
		for (struct context *c = context_first(); c; c = c->next)
			regions_touch_all(c);
	atomic_store(&controls.touched, touched);
}

bool controls_set(const char *text, char *why, size_t size)
{
	struct control_settings w = {.points = atomic_load(&controls.points),
				     .stamps = atomic_load(&controls.stamps),
				     .snapshot_every = controls.snapshot_every};
	char all[512];

	if (!control_read(&w, text, why, size)) {
		free(w.regions);
		return false;
	}
	if (w.regions)
		take_regions(w.regions, w.regions);
	controls.snapshot_every = w.snapshot_every;
	atomic_store(&controls.points, w.points);
	atomic_store(&controls.stamps, w.stamps);
	snprintf(all, sizeof(all), "points=%s;stamps=%s;snapshot=%u;regions=%s", w.points ? "on" : "off",
		 w.stamps ? "on" : "off", w.snapshot_every, wanted.text);
	uint32_t string = store_string(session_store(), all);
	controls.text = string == TT_NO_ID ? 0 : string;
	return true;
}

void controls_begin(void)
{
	static const char *const initial[] = {"all", "touched", "named", "all"};
	char why[200];

	atomic_store(&controls.points, true);
	atomic_store(&controls.stamps, true);
	controls.snapshot_every = options.snapshot_every;
	take_regions(initial[options.regions], strdup(initial[options.regions]));
	if (*options.control)
		controls_set(options.control, why, sizeof(why));
}

void controls_note(void)
{
	struct tt_event *e = options.events ? events_next() : NULL;

	if (!e)
		return;
	e->seq = session_next_seq();
	e->time_ns = clock_ns();
	e->thread = thread_current()->tid;
	e->call = TT_NO_CALL; /* for all contexts */
	e->id = controls.text;
	events_publish(e, TT_EVENT_CONTROL);
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

static bool is_called(const char *name, void *unused)
{
	(void)unused;
	return !regexec(&wanted.expression, name, 0, NULL, 0);
}

static bool is_in_use(const char *name, void *unused)
{
	size_t length = strlen(name), end = strlen(FREED);

	(void)unused;
	return length < end || strcmp(name + length - end, FREED) != 0;
}

bool controls_want(struct region *r)
{
	if (!controls.choice)
		return true;
	if (wanted.named) {
		bool has_name = region_is_called(r, is_in_use, NULL, controls.choice);
		wanted.asked = true;
		wanted.found |= has_name;
		return has_name;
	}
	return wanted.has_expression ? region_is_called(r, is_called, NULL, controls.choice) : has_id(wanted.text, r->id);
}

bool controls_lack_names(void)
{
	return wanted.named && wanted.asked && !wanted.found;
}
