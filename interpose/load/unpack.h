/*
 * Decodes contents of blocks that were stored as bit planes (TT_ENCODING_PLANES).
 *
 * The toolkit reads this file too. It ignores preprocessor directives.
 */
#ifndef TT_LOAD_UNPACK_H
#define TT_LOAD_UNPACK_H

#include <stdint.h>

/* Fills out with the `length` bytes that the code stands for. NULL: done; else what is wrong with the code. */
const char *tt_unpack(const uint8_t *code, uint32_t size, uint8_t *out, uint32_t length);

#endif
