/*
 * A JSON writer: into memory, or through a buffer into a function that takes the text.
 *
 * Invariant: the output is valid JSON in ASCII and UTF-8, whatever bytes the strings have: bytes
 * that are no UTF-8 become U+FFFD. The writer adds commas. A failure persists, and is checked once
 * at the end.
 */
#ifndef TT_UTIL_JSON_WRITER_H
#define TT_UTIL_JSON_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef bool json_sink(void *to, const char *text, size_t size);

struct json {
	char *text;
	size_t used, capacity;
	bool failed;
	bool comma; /* the next value or key is not the first one */
	json_sink *sink; /* NULL: the text stays in memory */
	void *to;
};

void json_begin(struct json *j, json_sink *sink, void *to);
/* Passes buffered text to the sink. Returns whether all writes succeeded. */
bool json_flush(struct json *j);
/* The text with a NUL; NULL: no memory. Valid until json_free. */
const char *json_text(struct json *j);
void json_free(struct json *j);

void json_open(struct json *j, char bracket); /* { or [ */
void json_close(struct json *j, char bracket);
void json_line(struct json *j); /* a line break before the next value */
void json_key(struct json *j, const char *key); /* key: plain ASCII without quotes */
void json_string(struct json *j, const char *value); /* NULL: null */
void json_string_n(struct json *j, const char *value, size_t length);
void json_u64(struct json *j, uint64_t value);
void json_hex16(struct json *j, uint64_t value); /* a string of 16 hexadecimal digits */
void json_bool(struct json *j, bool value);
void json_null(struct json *j);
void json_raw(struct json *j, const char *value); /* a value that is JSON already */

/* A key with its value, or with what follows up to json_close. */
static inline void json_member_u64(struct json *j, const char *key, uint64_t value)
{
	json_key(j, key);
	json_u64(j, value);
}

static inline void json_member_string(struct json *j, const char *key, const char *value)
{
	json_key(j, key);
	json_string(j, value);
}

static inline void json_member_bool(struct json *j, const char *key, bool value)
{
	json_key(j, key);
	json_bool(j, value);
}

static inline void json_member_open(struct json *j, const char *key, char bracket)
{
	json_key(j, key);
	json_open(j, bracket);
}

/* The length of the valid UTF-8 sequence at p, of n > 0 bytes; 0: invalid. */
unsigned json_utf8_length(const char *p, size_t n);

#endif
