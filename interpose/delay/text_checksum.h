/*
 * CUTracer's checksum of a kernel: of its mangled name, and of the text and the offset of each instruction. The text
 * is nvdisasm's (TT_NVDISASM), of the code alone: without it, or of code that it can't read, there is none.
 *
 * Invariant: nvdisasm shares nothing with the program. It is a child whose end no handler and no wait of the program
 * sees, and it gets neither the program's files nor its variables.
 */
#ifndef TT_DELAY_TEXT_CHECKSUM_H
#define TT_DELAY_TEXT_CHECKSUM_H

#include "sass/cubin.h"

struct text_checksum {
	bool asked, known;
	uint64_t padded, bare; /* with and without the empty instructions behind the last other one */
};

struct text_checksum text_checksum(const struct cubin *c, const struct cubin_kernel *k);

#endif
