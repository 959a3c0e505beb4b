/*
 * Digests of manifests. See manifest_digests.h.
 *
 * Invariant: without escapes, the key of an object of digests cannot look otherwise and nothing else can look like it.
 */
#define _GNU_SOURCE
#include "load/manifest_digests.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define DIGITS 10 /* of the largest region id */
#define HEX 16

static const char KEY[] = "\"digests\"";

/* The value of a lower-case hexadecimal digit; of any other character at least 16. */
static unsigned value_of(char c)
{
	unsigned digit = (unsigned char)c - '0', letter = (unsigned char)c - 'a';

	return digit < 10 ? digit : letter < 6 ? letter + 10 : 16;
}

/* Reads `"REGION":"DIGEST"`. Returns the end, or NULL. */
static const char *pair(const char *at, const char *end, uint64_t *region, uint64_t *digest)
{
	unsigned digits = 0, wrong = 0;

	*region = *digest = 0;
	if (at == end || *at++ != '"')
		return NULL;
	for (; at < end && *at >= '0' && *at <= '9' && digits <= DIGITS; digits++)
		*region = *region * 10 + (uint64_t)(*at++ - '0');
	if (!digits || digits > DIGITS || end - at < HEX + 4 || memcmp(at, "\":\"", 3) != 0)
		return NULL;
	at += 3;
	for (unsigned i = 0; i < HEX; i++) {
		unsigned value = value_of(at[i]);
		wrong |= value;
		*digest = *digest << 4 | (value & 15);
	}
	return wrong & 16 || at[HEX] != '"' ? NULL : at + HEX + 1;
}

/* Reads the pairs of an object up to its closing brace. Returns the end, or NULL. */
static const char *object(const char *at, const char *end, const struct tt_manifest_digests *found, uint64_t *total)
{
	uint64_t last = 0, first = *total;

	do {
		uint64_t region, digest;
		at = pair(at, end, &region, &digest);
		if (!at || at == end || region >= UINT32_MAX || (*total > first && region <= last))
			return NULL;
		found->regions[*total] = (uint32_t)region;
		found->digests[*total] = digest;
		last = region;
		++*total;
	} while (*at++ == ',');
	return at[-1] == '}' ? at : NULL;
}

/* Finds all objects with digests. Returns false if one is not as expected. */
static bool find(const char *text, uint64_t size, struct tt_manifest_digests *found)
{
	const char *at = text, *end = text + size;
	uint64_t total = 0;

	found->objects = 0;
	if (memchr(text, '\\', size))
		return false;
	while ((at = memmem(at, (size_t)(end - at), KEY, sizeof(KEY) - 1))) {
		uint64_t before = total;
		at += sizeof(KEY) - 1;
		if (end - at < 3 || at[0] != ':' || at[1] != '{')
			return false;
		if (at[2] == '}')
			continue;
		found->begins[found->objects] = (uint64_t)(++at - text);
		at = object(at + 1, end, found, &total);
		if (!at)
			return false;
		found->ends[found->objects] = (uint64_t)(at - text);
		found->counts[found->objects++] = (uint32_t)(total - before);
	}
	return true;
}

EXPORT uint64_t tt_manifest_digests(char *text, uint64_t size, struct tt_manifest_digests *found)
{
	uint64_t to = 0, from = 0;

	if (!find(text, size, found))
		return 0;
	for (uint64_t i = 0; i < found->objects; i++) {
		char number[24];
		int length = snprintf(number, sizeof(number), "%llu", (unsigned long long)i);
		memmove(text + to, text + from, found->begins[i] - from);
		to += found->begins[i] - from;
		memcpy(text + to, number, (size_t)length);
		to += (uint64_t)length;
		from = found->ends[i];
	}
	memmove(text + to, text + from, size - from);
	return to + size - from;
}
