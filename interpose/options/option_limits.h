/*
 * Limits and choices of options from option_table.h, for code that reads such values elsewhere or
 * writes them: LIMIT_DELAY, LIMIT_TIMELINE and so on.
 */
#ifndef TT_OPTIONS_OPTION_LIMITS_H
#define TT_OPTIONS_OPTION_LIMITS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "util/json_writer.h"

/* clang-format off */
#define OPTION(name, field, kind, limit, ...) __attribute__((unused)) static const char LIMIT_##name[] = limit;
#include "options/option_table.h"
/* clang-format on */

/* The word number `number` of a|b|c; NULL: none. */
static inline const char *choice_word(const char *choices, uint32_t number, size_t *length)
{
	while (number && (choices = strchr(choices, '|'))) {
		choices++;
		number--;
	}
	*length = choices ? strcspn(choices, "|") : 0;
	return choices;
}

static inline bool choice_parse(const char *text, const char *choices, uint32_t *out)
{
	const char *word;
	size_t n;

	for (uint32_t i = 0; (word = choice_word(choices, i, &n)); i++)
		if (n == strlen(text) && !memcmp(word, text, n)) {
			*out = i;
			return true;
		}
	return false;
}

/* Words separated by commas; *out has a bit for each. */
static inline bool words_parse(const char *text, const char *choices, uint32_t *out)
{
	char word[32];
	uint32_t number;

	for (*out = 0;; text++) {
		size_t n = strcspn(text, ",");
		if (n >= sizeof(word))
			return false;
		memcpy(word, text, n);
		word[n] = 0;
		if (!choice_parse(word, choices, &number))
			return false;
		*out |= 1u << number;
		text += n;
		if (!*text)
			return true;
	}
}

/* "expected a, b or c" */
static inline void choice_expect(const char *choices, char *why, size_t size)
{
	size_t used = (size_t)snprintf(why, size, "expected ");

	for (const char *at = choices; *at && used < size; at++)
		used += (size_t)(*at != '|' ? snprintf(why + used, size - used, "%c", *at)
					    : snprintf(why + used, size - used, strchr(at + 1, '|') ? ", " : " or "));
}

static inline void choice_json(struct json *j, const char *key, const char *choices, uint32_t number)
{
	size_t n;
	const char *word = choice_word(choices, number, &n);

	json_key(j, key);
	json_string_n(j, word, n);
}

#endif
