/*
 * Compresses contents of blocks with libzstd, if the user asked for it and the system has it.
 *
 * Invariant: the output has the form of data files with TT_ENCODING_ZSTD: for each block its size
 * in 4 bytes, then a zstd frame. If that is not smaller, the contents follow unchanged, and the
 * size is the block's length.
 */
#ifndef TT_STORE_COMPRESS_H
#define TT_STORE_COMPRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format.h"

/* State of one thread's compression; initially zeros. */
struct compressor {
	void *context;
	uint8_t *out;
	size_t room;
};

/* Loads the library. False: there is none. */
bool compress_open(void);
/*
 * Compresses blocks whose offsets are relative to contents. Their offsets become relative to c->out, as multiples
 * of TT_CHUNK_ALIGN. False: no memory.
 */
bool compress_blocks(struct compressor *c, int level, struct tt_block *blocks, size_t count, const uint8_t *contents);
/* Bytes of a block that is not stored plain. */
uint64_t compress_size(const uint8_t *at);
void compress_close(struct compressor *c);

#endif
