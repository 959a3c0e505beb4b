/*
 * Messages and domains. See texts.h for the invariant.
 *
 * Messages are found by hash in a table in which new ones replace the oldest. A message that was replaced is looked
 * up in the strings of the run. An entry has two words: the first is stored as its difference from the second, so a
 * mix of two writes is never found.
 *
 * The recorder's handle for a registered message is a number with all data for its use. Handles of another attached
 * tool have their own table.
 */
#define _GNU_SOURCE
#include "nvtx/texts.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/visit.h"
#include "util/xxh3.h"
#include "options/options.h"
#include "session/session.h"

#define WAYS 4
#define MESSAGES ((size_t)16384)
#define DOMAINS 4096
#define EARLY ((size_t)65536) /* bytes of messages registered before recording began */
#define FOREIGN ((size_t)65536)
#define FOREIGN_TRIES 64

struct pair {
	_Atomic uint64_t key; /* xor of the key and the value */
	_Atomic uint64_t value;
};

static struct {
	struct pair messages[MESSAGES], foreign[FOREIGN];
	_Atomic uint32_t next_way;
	struct {
		char *_Atomic name;
		_Atomic uint32_t string;
	} domains[DOMAINS]; /* domains from 1 on */
	struct {
		char *_Atomic text;
		unsigned domain;
	} early[EARLY];
	_Atomic size_t early_count;
} texts;

/* ---- messages ---- */

static bool is_chosen(const struct expressions *e, unsigned domain, const char *message)
{
	char *both = NULL;
	bool chosen = expressions_match(e, message);

	if (chosen || !e->count || !domain || domain > DOMAINS)
		return chosen;
	if (asprintf(&both, "%s/%s", atomic_load(&texts.domains[domain - 1].name), message) < 0) {
		session_lost("NVTX ranges were not recognised: no host memory");
		return false;
	}
	chosen = expressions_match(e, both);
	free(both);
	return chosen;
}

static __attribute__((noinline, cold)) struct text add(unsigned domain, const char *message, struct pair *set, uint64_t hash)
{
	struct visit v = visit_begin();
	struct text t;

	t.chosen = is_chosen(&options.epoch.nvtx, domain, message);
	t.stores = is_chosen(&options.contents.nvtx, domain, message);
	t.offset = store_string(session_store(), message);
	visit_end(v);
	struct pair *p = &set[atomic_fetch_add(&texts.next_way, 1) % WAYS];
	atomic_store_explicit(&p->value, text_pack(t), memory_order_relaxed);
	atomic_store_explicit(&p->key, hash ^ text_pack(t), memory_order_relaxed);
	return t;
}

struct text texts_find(unsigned domain, const char *message)
{
	if (!message || !*message)
		return NO_TEXT;
	uint64_t hash = xxh3_64(message, strlen(message)) + domain * 0x9e3779b97f4a7c15u;
	struct pair *set = &texts.messages[hash % (MESSAGES / WAYS) * WAYS];
	for (struct pair *p = set; p < set + WAYS; p++) {
		uint64_t value = atomic_load_explicit(&p->value, memory_order_relaxed);
		if (value && (atomic_load_explicit(&p->key, memory_order_relaxed) ^ value) == hash)
			return text_unpack(value);
	}
	return add(domain, message, set, hash);
}

/* ---- handles ---- */

#define OURS ((uint64_t)0x7474 << 48) /* not an address: those of programs end below */
#define OURS_MASK ((uint64_t)0xffff << 48)
#define IS_DOMAIN ((uint64_t)1 << 47)
#define IS_EARLY ((uint64_t)1 << 46)

static struct pair *foreign_slot(nvtx_handle handle, bool claim)
{
	size_t h = (size_t)((handle * 0x9e3779b97f4a7c15u) >> 32);

	for (size_t i = 0; i < FOREIGN_TRIES; i++) {
		struct pair *p = &texts.foreign[(h + i) % FOREIGN];
		uint64_t key = atomic_load(&p->key);
		if (key == handle)
			return p;
		if (!key && (!claim || atomic_compare_exchange_strong(&p->key, &key, handle)))
			return claim ? p : NULL;
		if (key == handle) /* another thread was first */
			return p;
	}
	return NULL;
}

void texts_also(nvtx_handle theirs, nvtx_handle ours)
{
	struct pair *p = theirs ? foreign_slot(theirs, true) : NULL;

	if (p)
		atomic_store(&p->value, ours);
	else if (theirs)
		session_warn("NVTX: too many domains and registered messages: some names are lost");
}

/* 0: unknown. */
static nvtx_handle known(nvtx_handle handle)
{
	struct pair *p;

	if ((handle & OURS_MASK) == OURS)
		return handle;
	return handle && (p = foreign_slot(handle, false)) ? atomic_load(&p->value) : 0;
}

/* ---- domains ---- */

#define UNKNOWN (DOMAINS + 1) /* too many domains, or an unknown handle */

unsigned texts_domain(nvtx_handle handle)
{
	nvtx_handle ours = known(handle);
	uint32_t number = (uint32_t)ours;

	if (!handle)
		return 0;
	return ours & IS_DOMAIN && number && number <= DOMAINS && atomic_load(&texts.domains[number - 1].name) ? number
													       : UNKNOWN;
}

static unsigned number_of(const char *name)
{
	char *copy = NULL, *there;
	unsigned i = 0;

	for (; i < DOMAINS; i++) {
		if (!(there = atomic_load(&texts.domains[i].name))) {
			if (!copy && !(copy = strdup(name))) {
				session_lost(NAMES_LOST);
				return UNKNOWN;
			}
			atomic_store(&texts.domains[i].string, TT_NO_ID);
			if (atomic_compare_exchange_strong(&texts.domains[i].name, &there, copy))
				return i + 1;
		}
		if (!strcmp(there, name))
			break;
	}
	free(copy);
	return i + 1; /* UNKNOWN: the table is full */
}

nvtx_handle texts_create_domain(const char *name)
{
	int error = errno;
	unsigned number = number_of(name ? name : "");

	errno = error;
	return OURS | IS_DOMAIN | number;
}

uint32_t texts_domain_name(unsigned domain)
{
	if (!domain || domain > DOMAINS)
		return TT_NO_ID;
	uint32_t string = atomic_load_explicit(&texts.domains[domain - 1].string, memory_order_relaxed);
	if (string == TT_NO_ID) {
		string = texts_find(0, atomic_load(&texts.domains[domain - 1].name)).offset;
		atomic_store_explicit(&texts.domains[domain - 1].string, string, memory_order_relaxed);
	}
	return string;
}

/* ---- registered messages ---- */

nvtx_handle texts_register(unsigned domain, const char *message, bool recording)
{
	int error = errno;
	size_t i;
	char *copy;

	if (recording)
		return OURS | text_pack(texts_find(domain, message));
	if (session_state != SESSION_UNDECIDED || !message || atomic_load(&texts.early_count) >= EARLY ||
	    (i = atomic_fetch_add(&texts.early_count, 1)) >= EARLY)
		return OURS | TT_NO_ID;
	if (!(copy = strdup(message)))
		session_lost(NAMES_LOST);
	errno = error;
	texts.early[i].domain = domain;
	atomic_store(&texts.early[i].text, copy);
	return OURS | IS_EARLY | i;
}

const char *texts_registered_early(nvtx_handle handle)
{
	nvtx_handle ours = known(handle);

	return ours & IS_EARLY && (uint32_t)ours < EARLY ? atomic_load(&texts.early[(uint32_t)ours].text) : NULL;
}

struct text texts_registered(nvtx_handle handle)
{
	nvtx_handle ours = known(handle);

	if (ours & IS_EARLY && (uint32_t)ours < EARLY)
		return texts_find(texts.early[(uint32_t)ours].domain, texts_registered_early(ours));
	return ours && !(ours & IS_DOMAIN) ? text_unpack(ours & (((uint64_t)1 << TEXT_BITS) - 1)) : NO_TEXT;
}

/* ---- wide characters ---- */

const char *texts_narrow(const wchar_t *wide, char to[TEXTS_WIDE])
{
	size_t n = 0;

	if (!wide)
		return NULL;
	for (; *wide && n + 5 < TEXTS_WIDE; wide++) {
		uint32_t c = (uint32_t)*wide;
		if (c < 0x80) {
			to[n++] = (char)c;
			continue;
		}
		unsigned more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
		if (c > 0x10ffff) {
			c = 0xfffd;
			more = 2;
		}
		to[n++] = (char)((0xff00 >> (more + 1) & 0xff) | c >> 6 * more);
		while (more--)
			to[n++] = (char)(0x80 | (c >> 6 * more & 0x3f));
	}
	to[n] = 0;
	return to;
}
