/*
 * The JSON writer. See json_writer.h for the invariant.
 */
#include "util/json_writer.h"

#include <stdlib.h>
#include <string.h>

#include "util/vector.h"

#define CHUNK 65536

void json_begin(struct json *j, json_sink *sink, void *to)
{
	*j = (struct json){.sink = sink, .to = to};
}

bool json_flush(struct json *j)
{
	if (j->sink && j->used && !j->failed && !j->sink(j->to, j->text, j->used))
		j->failed = true;
	if (j->sink)
		j->used = 0;
	return !j->failed;
}

void json_free(struct json *j)
{
	free(j->text);
	*j = (struct json){0};
}

/* Makes room for size more bytes and a terminator. */
static bool room(struct json *j, size_t size)
{
	if (j->sink && j->used + size >= CHUNK)
		json_flush(j);
	j->failed = j->failed || !make_room(&j->text, &j->capacity, j->used, size + 1, 1);
	return !j->failed;
}

static void put(struct json *j, const char *text, size_t size)
{
	if (!room(j, size))
		return;
	memcpy(j->text + j->used, text, size);
	j->used += size;
}

const char *json_text(struct json *j)
{
	if (!room(j, 0))
		return NULL;
	j->text[j->used] = 0;
	return j->text;
}

/* Called before every value and key. */
static void separate(struct json *j)
{
	if (j->comma)
		put(j, ",", 1);
	j->comma = false;
}

static void value(struct json *j, const char *text, size_t size)
{
	separate(j);
	put(j, text, size);
	j->comma = true;
}

void json_open(struct json *j, char bracket)
{
	separate(j);
	put(j, &bracket, 1);
}

void json_close(struct json *j, char bracket)
{
	put(j, &bracket, 1);
	j->comma = true;
}

void json_line(struct json *j)
{
	separate(j);
	put(j, "\n", 1);
}

void json_key(struct json *j, const char *key)
{
	separate(j);
	put(j, "\"", 1);
	put(j, key, strlen(key));
	put(j, "\":", 2);
}

/* Whether *p is a continuation byte from low to high. */
static bool continues(const char *p, unsigned low, unsigned high)
{
	return (unsigned char)*p >= low && (unsigned char)*p <= high;
}

unsigned json_utf8_length(const char *p, size_t n)
{
	unsigned c = (unsigned char)*p;
	unsigned low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80; /* no overlong forms */
	unsigned high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf; /* no surrogates, nothing above U+10FFFF */
	unsigned length = c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;

	if (length > n || (length > 1 && !continues(p + 1, low, high)))
		return 0;
	for (unsigned i = 2; i < length; i++)
		if (!continues(p + i, 0x80, 0xbf))
			return 0;
	return length;
}

static void put_escape(struct json *j, unsigned char c)
{
	static const char digits[] = "0123456789abcdef";
	static const char names[] = "\"\"\\\\\bb\ff\nn\rr\tt";
	char text[6] = {'\\', 'u', '0', '0', digits[c >> 4], digits[c & 15]};

	for (size_t i = 0; i + 1 < sizeof(names); i += 2)
		if (names[i] == (char)c) {
			text[1] = names[i + 1];
			put(j, text, 2);
			return;
		}
	put(j, text, 6);
}

void json_string_n(struct json *j, const char *text, size_t length)
{
	size_t start = 0, i = 0;

	separate(j);
	put(j, "\"", 1);
	while (i < length) {
		unsigned char c = (unsigned char)text[i];
		unsigned n = json_utf8_length(text + i, length - i);
		if (n && c >= 0x20 && c != '"' && c != '\\' && c != 0x7f) {
			i += n;
			continue;
		}
		put(j, text + start, i - start);
		if (n)
			put_escape(j, c);
		else
			put(j, "\\ufffd", 6);
		start = ++i;
	}
	put(j, text + start, i - start);
	put(j, "\"", 1);
	j->comma = true;
}

void json_string(struct json *j, const char *text)
{
	if (text)
		json_string_n(j, text, strlen(text));
	else
		json_null(j);
}

void json_u64(struct json *j, uint64_t n)
{
	char digits[20];
	size_t at = sizeof(digits);

	do
		digits[--at] = (char)('0' + n % 10);
	while (n /= 10);
	value(j, digits + at, sizeof(digits) - at);
}

void json_hex16(struct json *j, uint64_t n)
{
	char text[18];

	text[0] = text[17] = '"';
	for (unsigned i = 16; i; i--, n >>= 4)
		text[i] = "0123456789abcdef"[n & 15];
	value(j, text, sizeof(text));
}

void json_bool(struct json *j, bool b)
{
	value(j, b ? "true" : "false", b ? 4 : 5);
}

void json_null(struct json *j)
{
	value(j, "null", 4);
}

void json_raw(struct json *j, const char *text)
{
	value(j, text, strlen(text));
}
