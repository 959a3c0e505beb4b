/*
 * Parses TT_EPOCH and TT_CONTENTS. See triggers.h.
 */
#define _GNU_SOURCE
#include "options/triggers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/vector.h"

#define KNOWN \
	"sync, launch, launch:N, graph, memcpy, api, none, kernel:REGEX, graph-node:REGEX or nvtx:REGEX, or a window @FROM-TO"

/* A word of the list, or a form with its expression; not terminated. */
struct word {
	const char *text;
	size_t length;
};

/* A word that begins an expression. */
struct form {
	const char *name;
	struct expressions *expressions;
};

static bool word_is(struct word w, const char *text)
{
	return w.length == strlen(text) && !memcmp(w.text, text, w.length);
}

static bool word_begins(struct word w, const char *text)
{
	return w.length >= strlen(text) && !memcmp(w.text, text, strlen(text));
}

static struct word word_after(struct word w, size_t length)
{
	return (struct word){w.text + length, w.length - length};
}

bool expressions_match(const struct expressions *e, const char *text)
{
	for (size_t i = 0; i < e->count; i++)
		if (!regexec(&e->list[i], text, 0, NULL, 0))
			return true;
	return false;
}

bool expressions_add(struct expressions *e, const char *form, const char *expression, size_t length, char *why, size_t size)
{
	char *text = strndup(expression, length);
	char reason[120] = "";

	if (!text || !make_room(&e->list, &e->room, e->count, 1, sizeof(*e->list))) {
		snprintf(why, size, "no host memory for an expression");
	} else if (!*text) {
		snprintf(why, size, "%sREGEX needs an expression", form);
	} else {
		int code = regcomp(&e->list[e->count], text, REG_EXTENDED | REG_NOSUB);
		if (!code)
			e->count++;
		else
			regerror(code, &e->list[e->count], reason, sizeof(reason));
		snprintf(why, size, "%s%.80s: %s", form, text, reason);
		free(text);
		return !code;
	}
	free(text);
	return false;
}

void expressions_free(struct expressions *e)
{
	while (e->count)
		regfree(&e->list[--e->count]);
	free(e->list);
	*e = (struct expressions){0};
}

static bool read_count(struct word w, uint64_t *n, uint64_t limit)
{
	*n = 0;
	for (size_t i = 0; i < w.length; i++) {
		if (w.text[i] < '0' || w.text[i] > '9' || (*n = *n * 10 + (uint64_t)(w.text[i] - '0')) > limit)
			return false;
	}
	return w.length;
}

static bool add_window(struct triggers *o, struct word w, char *why, size_t size)
{
	const char *dash = memchr(w.text, '-', w.length);
	size_t first = dash ? (size_t)(dash - w.text) : w.length;
	uint64_t limit = UINT64_MAX / 100;

	snprintf(why, size, "'@%.*s': expected one window @FROM-TO of launch numbers", w.length < 80 ? (int)w.length : 80,
		 w.text);
	if (o->window || !dash || !read_count((struct word){w.text, first}, &o->first, limit) ||
	    !read_count(word_after(w, first + 1), &o->last, limit) || o->first > o->last)
		return false;
	o->window = true;
	return true;
}

static bool read_every(struct word w, const char *form, uint32_t *every, char *why, size_t size)
{
	uint64_t count;

	snprintf(why, size, "%sN needs a count from 1", form);
	bool good = read_count(word_after(w, strlen(form)), &count, UINT32_MAX);
	*every = good ? (uint32_t)count : 0;
	return *every;
}

static bool add_word(void *to, struct word w, char *why, size_t size)
{
	struct triggers *o = to;

	if (word_is(w, "sync")) {
		o->sync = true;
	} else if (word_is(w, "memcpy")) {
		o->copy = true;
	} else if (word_is(w, "graph")) {
		o->graph = true;
	} else if (word_is(w, "launch")) {
		o->launch = 1;
	} else if (word_begins(w, "launch:")) {
		return read_every(w, "launch:", &o->launch, why, size);
	} else if (word_begins(w, "@")) {
		return add_window(o, word_after(w, 1), why, size);
	} else if (w.length && !word_is(w, "api") && !word_is(w, "none")) { /* accepted, because tt_epoch always cuts */
		snprintf(why, size, "'%.*s': expected " KNOWN, w.length < 80 ? (int)w.length : 80, w.text);
		return false;
	}
	return true;
}

static bool add_contents(void *to, struct word w, char *why, size_t size)
{
	struct stored_contents *c = to;
	bool none = word_is(w, "none"), always = word_is(w, "changed") || word_is(w, "all");

	if (word_begins(w, "every:") && !c->every)
		return read_every(w, "every:", &c->every, why, size);
	snprintf(why, size, "'%.*s': expected none, changed or all, or every:N, nvtx:REGEX or both",
		 w.length < 80 ? (int)w.length : 80, w.text);
	if ((!none && !always) || c->none || c->always)
		return false;
	c->none = none;
	c->always = always;
	return true;
}

/* Calls `add` for each word of a list, and adds the expressions. */
static bool read_list(const char *text, const struct form *forms, size_t count,
		      bool (*add)(void *to, struct word w, char *why, size_t size), void *to, char *why, size_t size)
{
	for (const char *at = text; *at; at += *at != 0) {
		struct word rest = {at, strcspn(at, ";")};
		size_t i = 0;
		while (i < count && !word_begins(rest, forms[i].name))
			i++;
		bool expression = i < count;
		struct word w = {at, expression ? rest.length : strcspn(at, ",;")};
		struct word said = expression ? word_after(w, strlen(forms[i].name)) : w;
		if (expression ? !expressions_add(forms[i].expressions, forms[i].name, said.text, said.length, why, size)
			       : !add(to, w, why, size))
			return false;
		at += w.length;
	}
	return true;
}

bool triggers_read(struct triggers *o, const char *text, char *why, size_t size)
{
	const struct form forms[] = {{"kernel:", &o->kernel}, {"graph-node:", &o->inside}, {"nvtx:", &o->nvtx}};

	return read_list(text, forms, sizeof(forms) / sizeof(*forms), add_word, o, why, size);
}

bool contents_read(struct stored_contents *c, const char *text, char *why, size_t size)
{
	const struct form nvtx = {"nvtx:", &c->nvtx};

	if (!read_list(text, &nvtx, 1, add_contents, c, why, size))
		return false;
	snprintf(why, size, "none, changed and all can't be combined with others");
	return !(c->none || c->always) || (!c->every && !c->nvtx.count);
}

void triggers_free(struct triggers *o)
{
	expressions_free(&o->kernel);
	expressions_free(&o->inside);
	expressions_free(&o->nvtx);
}
