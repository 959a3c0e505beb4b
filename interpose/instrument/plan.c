/*
 * Chooses instructions by their opcodes. See plan.h.
 */
#include "instrument/plan.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "format.h"
#include "options/categories.h"
#include "options/options.h"

/* Parameters and constants have no addresses that other instructions could name. */
static bool has_addresses(enum language language, enum category category, const char *opcode)
{
	if (language != LANGUAGE_PTX)
		return category == CATEGORY_MEMORY;
	return strstr(opcode, "mbarrier") ||
	       (category == CATEGORY_MEMORY && !strstr(opcode, ".param") && !strstr(opcode, ".const"));
}

uint32_t plan_asked(void)
{
	return options.instrument << TT_TRACE_OPCODE & ((1u << TT_TRACE_END) - 1);
}

/* The Sanitizer API has no counts and no registers. */
#define ONLY_OURS (1u << TT_TRACE_COUNT | 1u << TT_TRACE_REGISTERS)

bool plan_patches(void)
{
	bool only_ours = plan_asked() & ONLY_OURS || !*options.instrument_library;

	return options.instrument_way == WAY_PATCHER || (options.instrument_way == WAY_AUTO && only_ours);
}

uint8_t plan_kinds(enum language language, const char *opcode, uint64_t number)
{
	enum category category = category_of(language, opcode);
	uint32_t kinds = plan_asked();

	if (!in_range(options.instrument_instructions, number) ||
	    (options.instrument_category && !(options.instrument_category >> category & 1)))
		return 0;
	if (!has_addresses(language, category, opcode))
		kinds &= ~(1u << TT_TRACE_ADDRESSES | 1u << TT_TRACE_VALUES);
	if (category != CATEGORY_TMA)
		kinds &= ~(1u << TT_TRACE_TMA);
	if (kinds & 1u << TT_TRACE_VALUES)
		kinds &= ~(1u << TT_TRACE_ADDRESSES); /* they have the addresses */
	return (uint8_t)kinds;
}

/* Bytes of the word at text, in which :: does not end it, as the : of a label does. */
static size_t word_length(const char *text, size_t length)
{
	size_t n = 0;

	while (n < length && !strchr(" \t;\r", text[n])) {
		if (text[n] != ':')
			n++;
		else if (n + 1 < length && text[n + 1] == ':')
			n += 2;
		else
			break;
	}
	return n;
}

static size_t statement_end(const char *line, size_t length, size_t at)
{
	const char *end = memchr(line + at, ';', length - at);

	return end ? (size_t)(end - line) : length;
}

/* The opcode of the first statement at or behind *at, which is set to its end; false: there is none. */
static bool next_opcode(const char *line, size_t length, size_t *at, char *out, size_t size)
{
	size_t n;

	for (;;) {
		while (*at < length && strchr(" \t{};\r", line[*at]))
			++*at;
		n = word_length(line + *at, length - *at);
		if (*at + n < length && line[*at + n] == ':')
			*at += n + 1; /* a label */
		else if (n && line[*at] == '@')
			*at += n; /* the guard */
		else if (n && line[*at] == '.')
			*at = statement_end(line, length, *at); /* a directive */
		else
			break;
	}
	if (!n || n >= size || strchr("/$%_", line[*at]))
		return false;
	memcpy(out, line + *at, n);
	out[n] = 0;
	*at = statement_end(line, length, *at);
	return true;
}

uint8_t *plan_lines(const char *text, size_t size, uint32_t *count)
{
	uint32_t lines = 2, number = 1;
	char opcode[128];

	for (size_t i = 0; i < size; i++)
		lines += text[i] == '\n';
	uint8_t *kinds = calloc(lines, 1);
	for (size_t at = 0; kinds && at < size; number++) {
		const char *end = memchr(text + at, '\n', size - at);
		size_t length = end ? (size_t)(end - text) - at : size - at;
		for (size_t in = 0; next_opcode(text + at, length, &in, opcode, sizeof(opcode));)
			kinds[number] |= plan_kinds(LANGUAGE_PTX, opcode, number);
		at += length + 1;
	}
	*count = lines;
	return kinds;
}
