/*
 * strings.bin: texts. Each of the first STRINGS_KNOWN is stored once.
 *
 * Invariant: an offset that was returned is that of a complete record in the file, counted from the
 * beginning of the file. Its text is valid UTF-8.
 */
#ifndef TT_STORE_STRINGS_H
#define TT_STORE_STRINGS_H

#include "store/file.h"

#define STRINGS_KNOWN ((size_t)1 << 18)
#define STRINGS_LONGEST (1u << 20) /* longer texts are cut */

struct strings {
	struct file file;
	struct strings_slot *slots; /* their number is a power of two */
	size_t count, used;
	struct strings_recent *recent; /* NULL: no host memory for them */
};

bool strings_create(struct strings *t, const struct folder *folder);
/* False with errno; EOVERFLOW: the file has its limit of 4 GiB. */
bool strings_add(struct strings *t, const char *text, uint32_t *offset);
/* The text at offset; the caller frees it. NULL: none. */
char *strings_get(struct strings *t, uint32_t offset, uint32_t *length);
void strings_close(struct strings *t);

#endif
