/*
 * Names of parts of a region, one sorted array per region. See labels.h for the invariant.
 */
#define _GNU_SOURCE
#include "track/labels.h"

#include <stdlib.h>
#include <string.h>

#include "util/xxh3.h"
#include "session/session.h"
#include "util/vector.h"

#define MOST_KNOWN ((size_t)1 << 20)

struct labels {
	size_t count, capacity;
	struct label at[];
};

/* The first part that ends after an offset. */
static size_t lower(const struct labels *of, uint64_t offset)
{
	return lower_bound(of ? of->count : 0, i, of->at[i].end <= offset);
}

static bool same(const struct label *a, const struct label *b)
{
	return a->begin == b->begin && a->end == b->end && a->start == b->start && a->name == b->name && a->type == b->type;
}

static bool grow(struct labels **of)
{
	size_t count = *of ? (*of)->count : 0, capacity = *of ? (*of)->capacity * 2 : 8;
	struct labels *bigger = realloc(*of, sizeof(*bigger) + capacity * sizeof(bigger->at[0]));

	if (!bigger)
		return false;
	bigger->count = count;
	bigger->capacity = capacity;
	*of = bigger;
	return true;
}

int labels_set(struct labels **of, const struct label *l)
{
	size_t first = lower(*of, l->begin), last = first, count = *of ? (*of)->count : 0, n = 0;
	struct label put[3];

	while (last < count && (*of)->at[last].begin < l->end)
		last++;
	if (l->name == TT_NO_ID ? first == last : last == first + 1 && same(&(*of)->at[first], l))
		return 0;
	if (first < last && (*of)->at[first].begin < l->begin) {
		put[n] = (*of)->at[first];
		put[n++].end = l->begin;
	}
	if (l->name != TT_NO_ID)
		put[n++] = *l;
	if (first < last && (*of)->at[last - 1].end > l->end) {
		put[n] = (*of)->at[last - 1];
		put[n].start += l->end - put[n].begin;
		put[n++].begin = l->end;
	}
	while (!*of || count - (last - first) + n > (*of)->capacity)
		if (!grow(of))
			return -1;
	memmove((*of)->at + first + n, (*of)->at + last, (count - last) * sizeof(put[0]));
	memcpy((*of)->at + first, put, n * sizeof(put[0]));
	(*of)->count = count - (last - first) + n;
	return 1;
}

bool labels_any(const struct labels *of, bool (*is)(uint32_t name, void *to), void *to)
{
	for (size_t i = 0; of && i < of->count; i++)
		if (of->at[i].name != TT_NO_ID && (i == 0 || of->at[i].name != of->at[i - 1].name) && is(of->at[i].name, to))
			return true;
	return false;
}

void labels_free(struct labels *of)
{
	free(of);
}

/* The texts of recent names: this avoids reading the store's file. */
static struct known {
	struct name {
		uint64_t hash;
		uint32_t offset;
		char *text; /* NULL: free */
	} *slots;
	size_t count, capacity; /* capacity: a power of two */
} known;

static struct name *slot_of(const struct known *in, uint64_t hash, const char *text)
{
	size_t at = hash & (in->capacity - 1);

	while (in->slots[at].text && (in->slots[at].hash != hash || !text || strcmp(in->slots[at].text, text) != 0))
		at = (at + 1) & (in->capacity - 1);
	return in->slots + at;
}

static bool has_room(void)
{
	struct known bigger = {NULL, known.count, known.capacity ? known.capacity * 2 : 1024};

	if (known.count * 2 < known.capacity)
		return true;
	if (known.count >= MOST_KNOWN || !(bigger.slots = calloc(bigger.capacity, sizeof(*bigger.slots))))
		return false;
	for (size_t i = 0; i < known.capacity; i++)
		if (known.slots[i].text)
			*slot_of(&bigger, known.slots[i].hash, NULL) = known.slots[i];
	free(known.slots);
	known = bigger;
	return true;
}

uint32_t labels_string(const char *text)
{
	if (!text || !*text)
		return TT_NO_ID;
	uint64_t hash = xxh3_64(text, strlen(text));
	struct name *found = known.slots ? slot_of(&known, hash, text) : NULL;
	if (found && found->text)
		return found->offset;
	uint32_t offset = store_string(session_store(), text);
	char *copy = offset != TT_NO_ID && has_room() ? strdup(text) : NULL;
	if (copy) {
		*slot_of(&known, hash, NULL) = (struct name){hash, offset, copy};
		known.count++;
	}
	return offset;
}
