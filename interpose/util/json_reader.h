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
	char *why; /* empty: no error */
	size_t why_size;
};

/* Called with each member's name, before its value, which it must read. */
typedef bool reader_member(struct reader *r, const char *key, void *user);

/* Returns false, for callers to return. */
bool reader_fail(struct reader *r, const char *why);
bool reader_object(struct reader *r, reader_member *member, void *user);
/* UTF-8, which the caller frees; NULL: not a string. */
char *reader_string(struct reader *r);
bool reader_number(struct reader *r, uint64_t most, uint64_t *value); /* a whole number from 0 */
bool reader_bool(struct reader *r, bool *value);
/* Fails if anything follows the value. */
bool reader_end(struct reader *r);

#endif
