/*
 * Open ranges. See ranges.h for the invariant.
 */
#include "nvtx/ranges.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "capture/controls.h"
#include "session/session.h"
#include "util/compiler.h"
#include "util/vector.h"

#define OPEN_MOST 16384u /* ranges of a thread */
#define EARLY_MOST 64    /* annotations of a thread */
#define STARTED ((size_t)4096)
#define STARTED_TRIES 64 /* places where a range may be */

static __thread struct {
	struct range *list;
	unsigned count;
	size_t capacity;
	unsigned beyond; /* ranges above OPEN_MOST, or without memory */
	unsigned early;
	struct early *name;
} self __attribute__((tls_model("initial-exec")));

/* A range that may end in any thread. As in texts.c, two words are valid only as written together. */
struct started {
	_Atomic uint64_t key, value; /* value: 0 where there is none */
};

static struct {
	pthread_key_t at_thread_end;
	bool has_key;
	pthread_once_t once;
	struct started started[STARTED];
} ranges = {.once = PTHREAD_ONCE_INIT};

void ranges_entered(struct text text)
{
	if (unlikely(text.stores))
		atomic_fetch_add(&controls.storing, 1);
}

void ranges_left(struct text text)
{
	if (unlikely(text.stores))
		atomic_fetch_sub(&controls.storing, 1);
}

static void thread_ended(void *unused)
{
	(void)unused;
	for (unsigned i = 0; i < self.count; i++) {
		free(self.list[i].early);
		ranges_left(self.list[i].text);
	}
	free(self.list);
	free(self.name);
	memset(&self, 0, sizeof(self));
}

static void make_key(void)
{
	ranges.has_key = !pthread_key_create(&ranges.at_thread_end, thread_ended);
}

static bool enlist(void)
{
	pthread_once(&ranges.once, make_key);
	return ranges.has_key && !pthread_setspecific(ranges.at_thread_end, &self);
}

static __attribute__((noinline, cold)) bool grow(void)
{
	int error = errno;
	bool grown = self.capacity < OPEN_MOST && enlist() &&
		     make_room(&self.list, &self.capacity, self.count, 1, sizeof(*self.list));

	if (!grown)
		errno = error;
	return grown;
}

struct early *ranges_early(const char *message)
{
	size_t size = message ? strlen(message) + 1 : 0;
	int error = errno;
	struct early *e = NULL;

	if (self.early < EARLY_MOST && !(e = calloc(1, sizeof(*e) + size + 1)))
		session_lost(NAMES_LOST);
	else if (e && message)
		memcpy(e->message, message, size);
	errno = error;
	return e;
}

int ranges_push(unsigned domain, struct text text, struct early *early)
{
	int level = 0;

	for (unsigned i = self.count; i-- && !level;)
		if (self.list[i].domain == domain)
			level = self.list[i].level + 1;
	if (self.count == self.capacity && !grow()) {
		free(early);
		return level + (int)self.beyond++;
	}
	self.early += early != NULL;
	ranges_entered(text);
	self.list[self.count++] = (struct range){early, domain, level, text};
	return level;
}

bool ranges_pop(unsigned domain, struct range *r)
{
	unsigned i = self.count;

	if (self.beyond) {
		*r = (struct range){NULL, domain, (int)(OPEN_MOST + --self.beyond), NO_TEXT};
		return true;
	}
	while (i && self.list[i - 1].domain != domain)
		i--;
	if (!i)
		return false;
	*r = self.list[i - 1];
	memmove(&self.list[i - 1], &self.list[i], (self.count - i) * sizeof(*self.list));
	self.count--;
	self.early -= r->early != NULL;
	return true;
}

void ranges_name(struct early *name)
{
	if (!name || !enlist()) {
		free(name);
		return;
	}
	self.early += !self.name;
	free(self.name);
	self.name = name;
}

bool ranges_are_early(void)
{
	return self.early;
}

void ranges_settle(struct text (*write)(const struct early *))
{
	for (unsigned i = 0; i < self.count; i++) {
		struct range *r = &self.list[i];
		if (!r->early)
			continue;
		r->text = write(r->early);
		ranges_entered(r->text);
		free(r->early);
		r->early = NULL;
	}
	if (self.name)
		write(self.name);
	free(self.name);
	self.name = NULL;
	self.early = 0;
}

/* ---- ranges that may end anywhere ---- */

static struct started *place_of(uint64_t id, size_t try)
{
	return &ranges.started[((size_t)((id * 0x9e3779b97f4a7c15u) >> 52) + try) % STARTED];
}

static struct started *place_for(uint64_t id, uint64_t value)
{
	for (size_t i = 0; i < STARTED_TRIES; i++) {
		uint64_t none = 0;
		if (atomic_compare_exchange_strong(&place_of(id, i)->value, &none, value))
			return place_of(id, i);
	}
	ranges_left(text_unpack(atomic_exchange(&place_of(id, 0)->value, value)));
	return place_of(id, 0);
}

void ranges_started(uint64_t id, unsigned domain, struct text text)
{
	uint64_t value = text_pack(text) | (uint64_t)(domain + 1) << TEXT_BITS;

	ranges_entered(text);
	atomic_store_explicit(&place_for(id, value)->key, id ^ value, memory_order_relaxed);
}

bool ranges_ended(uint64_t id, unsigned *domain, struct text *text)
{
	for (size_t i = 0; i < STARTED_TRIES; i++) {
		struct started *p = place_of(id, i);
		uint64_t value = atomic_load_explicit(&p->value, memory_order_relaxed);
		if (!value || (atomic_load_explicit(&p->key, memory_order_relaxed) ^ value) != id ||
		    !atomic_compare_exchange_strong(&p->value, &value, 0))
			continue;
		*text = text_unpack(value);
		*domain = (unsigned)(value >> TEXT_BITS) - 1;
		return true;
	}
	return false;
}
