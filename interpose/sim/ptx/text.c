/*
 * PTX tokens, and the memory of a module.
 *
 * Invariant: everything of a module is in its arena, so a rejected module (ptx_reject) leaves nothing
 * behind once the arena is freed. No token extends past the terminating NUL.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* strtod_l */
#endif
#include "sim/ptx/internal.h"

#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 65536

struct ptx_arena_block {
	struct ptx_arena_block *next;
	size_t used, size;
	_Alignas(16) uint8_t data[];
};

void *ptx_arena_take(struct ptx_source *s, size_t size)
{
	struct ptx_arena_block *b = s->arena->blocks;

	if (size > SIZE_MAX / 2)
		ptx_reject(s, s->line, "out of memory");
	size = (size + 15) & ~(size_t)15;
	if (!b || b->size - b->used < size) {
		size_t room = size > BLOCK ? size : BLOCK;
		b = calloc(1, sizeof(*b) + room);
		if (!b)
			ptx_reject(s, s->line, "out of memory");
		b->size = room;
		b->next = s->arena->blocks;
		s->arena->blocks = b;
	}
	b->used += size;
	return b->data + b->used - size;
}

void ptx_arena_release(struct ptx_arena *arena)
{
	for (struct ptx_arena_block *b = arena->blocks, *next; b; b = next) {
		next = b->next;
		free(b);
	}
	arena->blocks = NULL;
}

void *ptx_arena_grow(struct ptx_source *s, void *array, size_t count, size_t *capacity, size_t element)
{
	if (count < *capacity)
		return array;
	size_t n = *capacity ? *capacity * 2 : 4;
	void *bigger = ptx_arena_take(s, n * element);
	if (count)
		memcpy(bigger, array, count * element);
	*capacity = n;
	return bigger;
}

const char *ptx_arena_string(struct ptx_source *s, const char *text, size_t length)
{
	char *copy = ptx_arena_take(s, length + 1);

	memcpy(copy, text, length);
	return copy;
}

static size_t hash(const char *key)
{
	uint64_t h = 0xcbf29ce484222325ull;

	for (; *key; key++)
		h = (h ^ (uint8_t)*key) * 0x100000001b3ull;
	return (size_t)(h ^ h >> 32);
}

static size_t slot_of(const struct ptx_map *m, const char *key)
{
	size_t i = hash(key) & (m->capacity - 1);

	while (m->keys[i] && strcmp(m->keys[i], key))
		i = (i + 1) & (m->capacity - 1);
	return i;
}

void ptx_map_put(struct ptx_source *s, struct ptx_map *m, const char *key, void *value)
{
	if (m->count * 2 >= m->capacity) {
		struct ptx_map bigger = {.capacity = m->capacity ? m->capacity * 2 : 32, .count = m->count};
		bigger.keys = ptx_arena_take(s, bigger.capacity * sizeof(*bigger.keys));
		bigger.values = ptx_arena_take(s, bigger.capacity * sizeof(*bigger.values));
		for (size_t i = 0; i < m->capacity; i++)
			if (m->keys[i]) {
				size_t j = slot_of(&bigger, m->keys[i]);
				bigger.keys[j] = m->keys[i];
				bigger.values[j] = m->values[i];
			}
		*m = bigger;
	}
	size_t i = slot_of(m, key);
	if (!m->keys[i]) {
		m->keys[i] = key;
		m->count++;
	}
	m->values[i] = value;
}

void *ptx_map_get(const struct ptx_map *m, const char *key)
{
	return m->capacity ? m->values[slot_of(m, key)] : NULL;
}

void ptx_reject(struct ptx_source *s, unsigned line, const char *format, ...)
{
	int n = snprintf(s->error, s->error_size, "line %u: ", line);
	va_list args;

	va_start(args, format);
	if (n >= 0 && (size_t)n < s->error_size)
		vsnprintf(s->error + n, s->error_size - (size_t)n, format, args);
	va_end(args);
	for (char *c = s->error; s->error_size && *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
	longjmp(s->escape, 1);
}

static bool begins_word(char c)
{
	return isalpha((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.';
}

static bool in_word(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '$';
}

static void skip_blank(struct ptx_source *s)
{
	for (;; s->at++) {
		if (*s->at == '\n') {
			s->line++;
		} else if (s->at[0] == '/' && s->at[1] == '/') {
			while (*s->at && *s->at != '\n')
				s->at++;
			s->at--;
		} else if (s->at[0] == '/' && s->at[1] == '*') {
			unsigned line = s->line;
			for (s->at += 2; s->at[0] != '*' || s->at[1] != '/'; s->at++) {
				if (!*s->at)
					ptx_reject(s, line, "unterminated comment");
				s->line += *s->at == '\n';
			}
			s->at++;
		} else if (!isspace((unsigned char)*s->at)) {
			return;
		}
	}
}

static void hex_float(struct ptx_source *s, struct ptx_token *t, unsigned digits)
{
	s->at += 2;
	for (unsigned i = 0; i < digits; i++, s->at++) {
		if (!isxdigit((unsigned char)*s->at))
			ptx_reject(s, s->line, "malformed floating-point number");
		unsigned c = (unsigned)tolower((unsigned char)*s->at);
		t->bits = t->bits << 4 | (c <= '9' ? c - '0' : c - 'a' + 10);
	}
	t->kind = digits == 8 ? PTX_FLOAT32 : PTX_FLOAT64;
}

static void decimal_float(struct ptx_source *s, struct ptx_token *t)
{
	char *end;
	locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
	double value = c ? strtod_l(s->at, &end, c) : strtod(s->at, &end);

	if (c)
		freelocale(c);
	memcpy(&t->bits, &value, sizeof(value));
	t->kind = PTX_FLOAT64;
	s->at = end;
}

static void number(struct ptx_source *s, struct ptx_token *t)
{
	const char *p = s->at;
	char kind = (char)tolower((unsigned char)p[1]);

	if (*p == '0' && (kind == 'f' || kind == 'd')) {
		hex_float(s, t, kind == 'f' ? 8 : 16);
	} else {
		bool hex = *p == '0' && kind == 'x', binary = *p == '0' && kind == 'b';
		while (isdigit((unsigned char)*p))
			p++;
		if (!hex && !binary && (*p == '.' || *p == 'e' || *p == 'E')) {
			decimal_float(s, t);
		} else {
			char *end;
			const char *digits = hex || binary ? s->at + 2 : s->at;
			if (!isxdigit((unsigned char)*digits))
				ptx_reject(s, s->line, "malformed number");
			errno = 0;
			t->bits = strtoull(digits, &end, hex ? 16 : binary ? 2 : *digits == '0' ? 8 : 10);
			if (errno || end == digits)
				ptx_reject(s, s->line, "malformed number");
			t->kind = PTX_INTEGER;
			s->at = end;
			if (*s->at == 'U' || *s->at == 'u')
				s->at++;
		}
	}
	if (in_word(*s->at))
		ptx_reject(s, s->line, "malformed number");
}

void ptx_advance(struct ptx_source *s)
{
	struct ptx_token t = {0};

	skip_blank(s);
	t.line = s->line;
	t.text = s->at;
	if (!*s->at) {
		t.kind = PTX_END;
	} else if (begins_word(*s->at)) {
		/* A directive ends at the next dot; an opcode or special register does not. */
		bool directive = *s->at == '.';
		t.kind = PTX_WORD;
		s->at++;
		for (;;) {
			if (in_word(*s->at) || (*s->at == '.' && !directive))
				s->at++;
			else if (s->at[0] == ':' && s->at[1] == ':' && in_word(s->at[2]))
				s->at += 2;
			else
				break;
		}
	} else if (isdigit((unsigned char)*s->at)) {
		number(s, &t);
	} else if (*s->at == '"') {
		t.kind = PTX_STRING;
		for (s->at++; *s->at != '"'; s->at++)
			if (!*s->at || *s->at == '\n')
				ptx_reject(s, s->line, "unterminated string");
		s->at++;
	} else {
		t.kind = PTX_PUNCTUATION;
		t.punctuation = *s->at++;
	}
	t.length = (size_t)(s->at - t.text);
	s->token = t;
}

void ptx_skip_line(struct ptx_source *s)
{
	while (*s->at && *s->at != '\n')
		s->at++;
	ptx_advance(s);
}
