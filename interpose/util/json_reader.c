/*
 * A JSON reader. See json_reader.h for the invariant.
 */
#include "util/json_reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/json_writer.h"

bool reader_fail(struct reader *r, const char *why)
{
	if (!*r->why)
		snprintf(r->why, r->why_size, "offset %zu: %s", (size_t)(r->at - r->begin), why);
	return false;
}

static char peek(struct reader *r)
{
	while (r->at < r->end && strchr(" \t\r\n", *r->at) && *r->at)
		r->at++;
	return r->at < r->end ? *r->at : 0;
}

static bool take(struct reader *r, char c)
{
	bool there = peek(r) == c && r->at < r->end;

	r->at += there;
	return there;
}

bool reader_object(struct reader *r, reader_member *member, void *user)
{
	if (!take(r, '{'))
		return reader_fail(r, "expected an object");
	if (take(r, '}'))
		return true;
	do {
		char *key = reader_string(r);
		bool good = key && (take(r, ':') || reader_fail(r, "expected ':'")) && member(r, key, user);
		free(key);
		if (!good)
			return reader_fail(r, "invalid member");
	} while (take(r, ','));
	return take(r, '}') || reader_fail(r, "expected ',' or '}'");
}

/* The UTF-16 code unit of \uXXXX, after its backslash; 0: invalid. */
static unsigned code_unit(struct reader *r)
{
	unsigned value = 0;

	if (r->end - r->at < 5 || *r->at != 'u')
		return 0;
	for (int i = 1; i < 5; i++) {
		char c = r->at[i];
		int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
		if (digit < 0)
			return 0;
		value = value * 16 + (unsigned)digit;
	}
	r->at += 5;
	return value;
}

/* The code point of one escape, or of a surrogate pair; 0: invalid. */
static unsigned code_point(struct reader *r)
{
	const char *begin = r->at;
	unsigned high = code_unit(r), low = 0;

	if (high < 0xd800 || high > 0xdfff)
		return high;
	if (high < 0xdc00 && r->at < r->end && *r->at == '\\') {
		r->at++;
		low = code_unit(r);
	}
	if (low >= 0xdc00 && low <= 0xdfff)
		return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
	r->at = begin;
	reader_fail(r, "unpaired surrogate");
	return 0;
}

static char *put_utf8(char *out, unsigned code)
{
	static const unsigned char leads[] = {0, 0xc0, 0xe0, 0xf0}; /* by the number of bytes that follow */
	int more = (code >= 0x80) + (code >= 0x800) + (code >= 0x10000);

	*out++ = (char)(leads[more] | code >> 6 * more);
	while (more--)
		*out++ = (char)(0x80 | (code >> 6 * more & 0x3f));
	return out;
}

/* Decodes an escape, after the backslash; NULL: invalid. */
static char *unescape(struct reader *r, char *out)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *found = r->at < r->end && *r->at ? strchr(from, *r->at) : NULL;

	if (found) {
		*out++ = to[found - from];
		r->at++;
		return out;
	}
	unsigned code = code_point(r);
	return code ? put_utf8(out, code) : NULL; /* texts here have no NUL */
}

char *reader_string(struct reader *r)
{
	const char *close;

	if (!take(r, '"')) {
		reader_fail(r, "expected a string");
		return NULL;
	}
	for (close = r->at; close < r->end && *close != '"'; close++)
		close += *close == '\\';
	if (close >= r->end) {
		reader_fail(r, "unterminated string");
		return NULL;
	}
	char *text = malloc((size_t)(close - r->at) + 1), *out = text;
	while (out && *r->at != '"') {
		unsigned n = json_utf8_length(r->at, (size_t)(close - r->at));
		bool plain = n && (unsigned char)*r->at >= ' ' && *r->at != '\\';
		if (plain)
			memcpy(out, r->at, n);
		else if (*r->at++ != '\\' || !(out = unescape(r, out)))
			break;
		out += plain ? n : 0;
		r->at += plain ? n : 0;
	}
	if (!text || !out || r->at != close) {
		reader_fail(r, text ? "invalid character in a string" : "no host memory");
		free(text);
		return NULL;
	}
	*out = 0;
	r->at++;
	return text;
}

bool reader_number(struct reader *r, uint64_t most, uint64_t *value)
{
	char first = peek(r);
	uint64_t n = 0;

	if (first < '0' || first > '9')
		return reader_fail(r, "expected a whole number from 0");
	for (const char *begin = r->at; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++) {
		unsigned digit = (unsigned)(*r->at - '0');
		if (n > (most - digit) / 10 || digit > most || (r->at > begin && first == '0'))
			return reader_fail(r, "the number is too large or begins with 0");
		n = n * 10 + digit;
	}
	if (r->at < r->end && *r->at && strchr(".eE", *r->at))
		return reader_fail(r, "expected a whole number from 0");
	*value = n;
	return true;
}

bool reader_bool(struct reader *r, bool *value)
{
	peek(r);
	size_t left = (size_t)(r->end - r->at);
	*value = left >= 4 && !memcmp(r->at, "true", 4);
	if (!*value && (left < 5 || memcmp(r->at, "false", 5)))
		return reader_fail(r, "expected true or false");
	r->at += *value ? 4 : 5;
	return true;
}

bool reader_end(struct reader *r)
{
	peek(r);
	return r->at == r->end || reader_fail(r, "unexpected text after the object");
}
