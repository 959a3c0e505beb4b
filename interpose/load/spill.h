/*
 * Large arrays of the toolkit in a temporary file, so that they need not fit into memory.
 *
 * The toolkit reads this file too. It ignores preprocessor directives.
 */
#ifndef TT_LOAD_SPILL_H
#define TT_LOAD_SPILL_H

#include <stdint.h>

/*
 * A memory handler for numpy. Arrays of 1 MiB and more together take at most `bytes` bytes of memory; the others lie
 * in the file. Later threads get small stacks. NULL: it was called before.
 */
const void *tt_spill(int descriptor, uint64_t bytes);

#endif
