/*
 * What all fuzz targets share: the entry that libFuzzer calls, and inputs as files.
 */
#ifndef TT_TESTS_FUZZ_H
#define TT_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A copy of exact size, so that a read past its end is found. The caller frees it. */
static inline void *fuzz_copy(const void *data, size_t size)
{
	void *copy = malloc(size ? size : 1);

	if (!copy)
		abort();
	return memcpy(copy, data, size);
}

static inline char *fuzz_text(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	if (!text)
		abort();
	memcpy(text, data, size);
	text[size] = 0;
	return text;
}

#endif
