/*
 * Contents that the device codes on their way to the host (TT_ENCODING_PLANES).
 *
 * Invariant: a block takes the same place in a buffer whatever its code's size, so one launch codes all blocks of a
 * buffer, and the order of blocks does not depend on their contents.
 */
#ifndef TT_CAPTURE_PACKED_H
#define TT_CAPTURE_PACKED_H

#include "capture/drain.h"
#include "capture/kernels.h"

#define PACKED_BLOCKS 1024 /* most blocks in a buffer */
#define PACKED_LIST_AT (DRAIN_BUFFER + PACKED_BLOCKS * TT_CHUNK_ALIGN) /* after the room of all blocks */
#define PACKED_BUFFER (PACKED_LIST_AT + PACKED_BLOCKS * sizeof(struct tt_pack_block))

/* Bytes of a block's place in a buffer. */
static inline uint64_t packed_room(uint32_t length)
{
	return tt_payload_size(TT_PACK_PREFIX + length);
}

/* The blocks that a buffer will hold, in the order in which they were added. */
struct packed {
	unsigned char *buffer;
	uint64_t size;
	uint32_t count;
};

/* Adds a block whose contents are at a device address. */
static inline void packed_add(struct packed *k, uint64_t from, uint32_t length)
{
	struct tt_pack_block *list = (struct tt_pack_block *)(k->buffer + PACKED_LIST_AT);

	list[k->count++] = (struct tt_pack_block){from, (uintptr_t)k->buffer + k->size, length, 0};
	k->size += packed_room(length);
}

#endif
