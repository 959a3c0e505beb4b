/*
 * A JSON reader for files with known members. It passes once over the text.
 *
 * Invariant: nothing outside the text is read. The first error ends the reading and is reported.
 */
#ifndef TT_UTIL_JSON_READER_H
#define TT_UTIL_JSON_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct reader {
	const char *begin, *at, *end;
	char *why; /* empty while all is well */
	size_t why_size;
};

/* Called with each member's name, at its value, which it must read. */
typedef bool reader_member(struct reader *r, const char *key, void *user);

/* Gives false, for callers to return. */
bool reader_fail(struct reader *r, const char *why);
bool reader_object(struct reader *r, reader_member *member, void *user);
/* UTF-8, to be freed; NULL where it is none. */
char *reader_string(struct reader *r);
bool reader_number(struct reader *r, uint64_t most, uint64_t *value); /* a whole one from 0 */
bool reader_bool(struct reader *r, bool *value);
/* There is nothing after the value. */
bool reader_end(struct reader *r);

#endif
