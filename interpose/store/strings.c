/*
 * The table of strings. The texts stay in the file; a look-up compares against it, so a text takes
 * 16 bytes of memory. A program may use a new text in each of many steps, so the number of texts in
 * the table is bounded. Recent texts stay in memory as well: reading the file takes twenty times as
 * long. See strings.h for the invariant.
 */
#define _GNU_SOURCE
#include "store/strings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/xxh3.h"
#include "util/json_writer.h"

#define RECENT 2048         /* texts */
#define RECENT_LONGEST 2048 /* bytes */

struct strings_recent {
	uint64_t hash;
	char *text; /* NULL: free */
	uint32_t length, offset;
};

struct strings_slot {
	uint64_t hash;
	uint32_t offset; /* 0: free; the file's header has this offset */
};

bool strings_create(struct strings *t, const struct folder *folder)
{
	*t = (struct strings){.count = 256};
	if (!file_create_records(&t->file, folder, "strings.bin", false, TT_FILE_STRINGS, 1, 0, 0))
		return false;
	t->slots = calloc(t->count, sizeof(*t->slots));
	t->recent = calloc(RECENT, sizeof(*t->recent));
	if (t->slots)
		return true;
	free(t->recent);
	t->recent = NULL; /* strings_close follows */
	file_discard(&t->file);
	errno = ENOMEM;
	return false;
}

void strings_close(struct strings *t)
{
	file_close(&t->file);
	free(t->slots);
	for (size_t i = 0; t->recent && i < RECENT; i++)
		free(t->recent[i].text);
	free(t->recent);
	t->slots = NULL;
	t->recent = NULL;
}

static bool grow(struct strings *t)
{
	size_t count = t->count * 2;
	struct strings_slot *slots = calloc(count, sizeof(*slots));

	if (!slots)
		return false;
	for (size_t i = 0; i < t->count; i++) {
		size_t h = t->slots[i].hash & (count - 1);
		if (!t->slots[i].offset)
			continue;
		while (slots[h].offset)
			h = (h + 1) & (count - 1);
		slots[h] = t->slots[i];
	}
	free(t->slots);
	t->slots = slots;
	t->count = count;
	return true;
}

/* Whether the record at offset is equal. */
static bool same(struct strings *t, uint32_t offset, const uint8_t *record, size_t size)
{
	uint8_t piece[1024];

	if (size > t->file.size - offset)
		return false;
	for (size_t at = 0; at < size; at += sizeof(piece)) {
		size_t n = size - at < sizeof(piece) ? size - at : sizeof(piece);
		if (!file_read(&t->file, piece, n, offset + at) || memcmp(piece, record + at, n))
			return false;
	}
	return true;
}

/* The record of a text: length, check and valid UTF-8. */
static uint8_t *make_record(const char *text, size_t length, size_t *size)
{
	size_t to = TT_TEXT_HEAD;
	uint8_t *record = malloc(TT_TEXT_HEAD + 3 * (length < STRINGS_LONGEST ? length : STRINGS_LONGEST));
	uint32_t bytes, check;

	if (!record)
		return NULL;
	for (size_t i = 0, n; i < length; i += n ? n : 1) {
		n = json_utf8_length(text + i, length - i);
		if (to - TT_TEXT_HEAD + (n ? n : 3) > STRINGS_LONGEST)
			break;
		memcpy(record + to, n ? text + i : "\xef\xbf\xbd", n ? n : 3);
		to += n ? n : 3;
	}
	bytes = (uint32_t)(to - TT_TEXT_HEAD);
	check = (uint32_t)xxh3_64(record + TT_TEXT_HEAD, bytes);
	memcpy(record, &bytes, 4);
	memcpy(record + 4, &check, 4);
	*size = to;
	return record;
}

static bool add(struct strings *t, const uint8_t *record, size_t size, uint32_t *offset)
{
	uint64_t hash = xxh3_64(record, size);
	size_t h;

	if (t->used * 4 >= t->count * 3 && !grow(t)) {
		errno = ENOMEM;
		return false;
	}
	for (h = hash & (t->count - 1); t->slots[h].offset; h = (h + 1) & (t->count - 1))
		if (t->slots[h].hash == hash && same(t, t->slots[h].offset, record, size)) {
			*offset = t->slots[h].offset;
			return true;
		}
	if (t->file.size + size > TT_NO_ID) {
		errno = EOVERFLOW;
		return false;
	}
	*offset = (uint32_t)t->file.size;
	if (!file_append(&t->file, record, size)) {
		file_rollback(&t->file, *offset);
		return false;
	}
	if (t->used < STRINGS_KNOWN) {
		t->slots[h] = (struct strings_slot){hash, *offset};
		t->used++;
	}
	return true;
}

static void remember(struct strings_recent *r, uint64_t hash, const char *text, size_t length, uint32_t offset)
{
	char *copy = length <= RECENT_LONGEST ? malloc(length + 1) : NULL;

	if (!copy)
		return;
	memcpy(copy, text, length + 1);
	free(r->text);
	*r = (struct strings_recent){hash, copy, (uint32_t)length, offset};
}

bool strings_add(struct strings *t, const char *text, uint32_t *offset)
{
	size_t size, length = strlen(text);
	uint64_t hash = xxh3_64(text, length);
	struct strings_recent *r = t->recent ? &t->recent[hash % RECENT] : NULL;

	if (r && r->text && r->hash == hash && r->length == length && !memcmp(r->text, text, length)) {
		*offset = r->offset;
		return true;
	}
	uint8_t *record = make_record(text, length, &size);
	int error = ENOMEM;
	bool added = false;

	if (record) {
		added = add(t, record, size, offset);
		error = errno;
		free(record);
	}
	if (added && r)
		remember(r, hash, text, length, *offset);
	errno = error;
	return added;
}

char *strings_get(struct strings *t, uint32_t offset, uint32_t *length)
{
	char *text;

	if (offset < TT_FILE_HEADER_SIZE || t->file.size < TT_TEXT_HEAD || offset > t->file.size - TT_TEXT_HEAD ||
	    !file_read(&t->file, length, 4, offset) || *length > t->file.size - TT_TEXT_HEAD - offset)
		return NULL;
	text = malloc(*length + 1u);
	if (text && !file_read(&t->file, text, *length, offset + TT_TEXT_HEAD)) {
		free(text);
		return NULL;
	}
	return text;
}
