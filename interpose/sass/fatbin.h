/*
 * Makes fatbins with other machine code.
 *
 * Invariant: an image comes from the program and may contain anything; nothing outside of it is
 * read. The driver chooses from the new fatbin as it would have from the original.
 */
#ifndef TT_SASS_FATBIN_H
#define TT_SASS_FATBIN_H

#include "track/image.h"

/* Returns the replacement for a cubin, which the fatbin frees, or NULL. */
typedef uint8_t *fatbin_replace_fn(const void *cubin, size_t size, size_t *new_size);

/* Whether it has machine code for a device; if not, the driver compiles its PTX. */
bool fatbin_has_code(const struct image *fatbin, unsigned capability);
/*
 * The machine code that a device may run, and that is wanted: a cubin, which the caller frees. NULL: none.
 */
uint8_t *fatbin_code(const struct image *fatbin, unsigned capability,
		     bool (*wanted)(void *user, const void *cubin, size_t size), void *user, size_t *size);
/*
 * Replaces the code that devices of these capabilities may run, and drops code that none of them can. Returns a
 * fatbin that the caller frees, or NULL: nothing was replaced.
 */
uint8_t *fatbin_replace(const struct image *fatbin, const unsigned *capabilities, size_t count, fatbin_replace_fn *replace);

#endif
