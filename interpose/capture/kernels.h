/*
 * What the host and the capture kernels share: launch parameters, region descriptors, the
 * control block and the status record.
 *
 * Once per context: load the PTX; allocate the ring (a multiple of TT_RING_ALIGN, aligned to
 * it), the control block (zeroed), the scratch list (32 bytes per block of the largest epoch)
 * and, per region, its digest array (8 bytes per block; contents before the first full epoch
 * do not matter). Each of these may be device memory or mapped pinned host memory.
 *
 * A delta epoch, on one stream ordered after all work of the cut:
 *   1. regions[] to the device, sorted by first_block; status->sequence = 0.
 *   2. launch TT_KERNEL_DIGEST: lists the blocks whose digest differs from the stored one, and
 *      every block of a region with TT_CAPTURE_REGION_ALL (in a region's first epoch).
 *   3. launch TT_KERNEL_GATHER with first 0, last TT_CAPTURE_LAST, part 0, the same params. It does
 *      nothing if the digest listed no block and has ended the epoch.
 *   4. record an event; once it is complete, read the status record.
 * A full epoch: flags |= TT_CAPTURE_FULL, each region's payload and params.payload filled in,
 * and TT_KERNEL_DIGEST alone: it hashes, copies and writes the chunk in one pass.
 *
 * If status.flags has TT_CAPTURE_OVERFLOW, nothing went into the ring, and the list of count
 * entries (payload bytes in total) is kept. Then either
 *   - launch TT_KERNEL_GATHER (TT_CAPTURE_FULL cleared) for parts 0, 1, … over consecutive
 *     ranges [first, last) of that list, in order. Give each the current tail, and read its status
 *     before the next. Retry a part that overflows, smaller or later. n entries take at most
 *     tt_chunk_size(n, n * TT_BLOCK_SIZE), and an empty ring has room for a chunk of half its
 *     size. The part whose range ends the list ends the epoch. The captured memory must not
 *     change until then.
 *   - or launch it once with TT_CAPTURE_DISCARD: the list is dropped and no stored digest has
 *     changed, so the same changes show in the next epoch.
 * While no epoch is running and the ring is empty, head and head_at may be set to 0.
 * A write to control->cancelled cancels epochs that wait too long for earlier work: their kernels
 * then read no memory, and their status says TT_CAPTURE_DISCARDED. The next epoch must be a full one.
 * No other epoch may be launched with this control block while it has a list. Read the status of one
 * epoch before you launch the next, unless the ring has room for the largest chunks of both. The kernels
 * of one epoch run after those of the epoch before, or after the host has read its status: kernels that wrote it
 * do nothing more, in any CTA, and a gather that comes later finds that the list is not its own. A delta's digest is
 * always followed by its gather. The kernel that ends an epoch makes the control block ready for the next. If a launch
 * fails, copy head and head_at, zero the rest, and treat the epoch as refused.
 *
 * A block's stored digest changes only with the chunk that has its contents, and is their digest:
 * a block that was written between digest and gather is hashed again, and its entry says so.
 * The order of entries in a delta chunk differs from run to run; a full chunk has block order.
 */
#ifndef TT_CAPTURE_KERNELS_H
#define TT_CAPTURE_KERNELS_H

#include <stdint.h>

#include "format.h"
#include "chunk.h"

#define TT_KERNELS "tt_capture_" /* prefix of all names */
/* void NAME(struct tt_capture_params) */
#define TT_KERNEL_DIGEST "tt_capture_digest"
#define TT_KERNEL_GATHER "tt_capture_gather"
/*
 * TT_KERNEL_DIGEST with a warp for each block. It is faster where tt_digest_small says so.
 */
#define TT_KERNEL_DIGEST_SMALL "tt_capture_digest_small"
/*
 * The same as graph nodes: void NAME(const struct tt_replay_launch *, uint32_t which). Digest and gather do nothing at a
 * point that is taken. Taken says that it is. Stamp writes the time; turn ends the launch and is the last node. Front, one CTA of TT_FRONT_THREADS, is the first: void NAME(const struct
 * tt_replay *, struct tt_replay_launch *).
 */
#define TT_KERNEL_FRONT_AT "tt_capture_front_at"
#define TT_KERNEL_DIGEST_AT "tt_capture_digest_at"
#define TT_KERNEL_GATHER_AT "tt_capture_gather_at"
#define TT_KERNEL_TAKEN_AT "tt_capture_taken_at"
#define TT_KERNEL_STAMP_AT "tt_capture_stamp_at"
#define TT_KERNEL_TURN_AT "tt_capture_turn_at"
/* void NAME(uint64_t *): writes the time to it */
#define TT_KERNEL_STAMP "tt_capture_stamp"
/* label: a string of the store */
#define TT_KERNEL_MARK "tt_capture_mark"
/* void NAME(struct tt_pack_params) */
#define TT_KERNEL_PACK "tt_pack"

/* Threads per CTA, and CTAs that fill a multiprocessor; a grid of any size works. */
#define TT_DIGEST_WARPS 4
#define TT_DIGEST_THREADS (TT_DIGEST_WARPS * 32)
#define TT_DIGEST_CTAS_PER_SM (32 / TT_DIGEST_WARPS)
#define TT_DIGEST_SMALL_CTAS_PER_SM 5
#define TT_DIGEST_SMALL 8192 /* bytes; with blocks of 16 KiB both kernels take as long */
#define TT_PACK_THREADS 256
#define TT_PACK_CTAS_PER_SM 3
#define TT_PACK_PREFIX 4 /* bytes of the size before the contents */
#define TT_FRONT_THREADS 256

#define TT_CAPTURE_MAX_BLOCKS 0xffffff /* of one epoch: the list's length has 24 bits */
#define TT_CAPTURE_LAST TT_CAPTURE_MAX_BLOCKS

/* tt_capture_params.flags */
#define TT_CAPTURE_FULL 1
#define TT_CAPTURE_DISCARD 2 /* gather only */
#define TT_CAPTURE_DIGESTS 4 /* chunks have no payload: params.payload is 0, those of regions are not read */

/* tt_capture_region.flags */
#define TT_CAPTURE_REGION_ALL 1 /* list all blocks, changed or not */

/* tt_capture_status.flags */
#define TT_CAPTURE_OVERFLOW 1
#define TT_CAPTURE_DISCARDED 2
#define TT_CAPTURE_FINAL 4 /* the epoch is complete and its list is empty */

struct tt_capture_region {
	uint64_t base;        /* any alignment */
	uint64_t size;        /* at least 1 */
	uint64_t digests;     /* address of u64[blocks], the digests last stored */
	uint64_t payload;     /* full epochs: sum of tt_payload_size over the blocks of earlier regions */
	uint32_t first_block; /* number of blocks in earlier regions */
	uint32_t region;      /* the value for tt_chunk_entry.region */
	uint32_t flags;       /* TT_CAPTURE_REGION_… */
	uint32_t reserved;
};

/* Whether TT_KERNEL_DIGEST_SMALL is faster: there are more blocks than CTAs, and they are small on average. */
static inline int tt_digest_small(uint64_t blocks, uint64_t payload, uint64_t processors)
{
	return blocks > processors * TT_DIGEST_CTAS_PER_SM && payload <= blocks * TT_DIGEST_SMALL;
}

/* All addresses are device addresses; both capture kernels get the same struct. */
struct tt_capture_params {
	uint64_t regions; /* struct tt_capture_region[region_count] */
	uint64_t control; /* struct tt_capture_control */
	uint64_t scratch; /* struct tt_chunk_entry[], at least blocks of them */
	uint64_t ring;
	uint64_t ring_size; /* 0: no ring, everything overflows */
	uint64_t tail;      /* ring position up to which the ring is free */
	uint64_t status;    /* struct tt_capture_status */
	uint64_t sequence;  /* value for status.sequence, not 0 */
	uint64_t payload;   /* full epochs: sum of tt_payload_size over all blocks */
	uint64_t released;  /* u32 that becomes `number` when the epoch reads no more memory; 0: none */
	uint32_t region_count;
	uint32_t blocks; /* over all regions */
	uint32_t first;  /* gather: range of the list */
	uint32_t last;
	uint32_t flags; /* TT_CAPTURE_… */
	uint32_t epoch;
	uint32_t part;
	uint32_t taken; /* of a point in a graph: its epoch was captured in this launch */
	uint32_t number;
	uint32_t reserved;
};

/* The kernels keep it between launches. */
struct tt_capture_control {
	uint64_t head;          /* ring position of the next chunk */
	uint64_t head_at;       /* its offset in the ring */
	uint64_t cursor;        /* the list: count << 40 | payload bytes / 32 */
	uint64_t entries_check; /* of the chunk being written */
	uint32_t next;          /* blocks assigned after each CTA's first */
	uint32_t done;          /* CTAs that have finished */
	uint32_t cancelled;     /* the host writes it: epochs before this number must read nothing */
	uint32_t listed;        /* 1 + the epoch of the list; 0: there is none */
	uint64_t reserved[2];
};

/* Written by the last CTA of a gather, or of a digest that ends its epoch; sequence comes last. */
struct tt_capture_status {
	uint64_t sequence;
	uint32_t epoch;
	uint32_t part;
	uint64_t position; /* of the chunk's header (where it would go on overflow) */
	uint64_t size;     /* of the chunk (what it would take on overflow) */
	uint64_t count;    /* entries in the chunk (in the list on overflow) */
	uint64_t payload;  /* their bytes, each block rounded up to 32 */
	uint64_t entries_check;
	uint32_t flags; /* TT_CAPTURE_OVERFLOW, … */
	uint32_t reserved;
};

/* tt_replay_turn.flags: what this launch does */
#define TT_REPLAY_POINTS 1
#define TT_REPLAY_STAMPS 2

/* A launch that the host prepared. */
struct tt_replay_turn {
	uint64_t number; /* 1 + number of earlier launches */
	uint32_t flags;  /* TT_REPLAY_… */
	uint32_t reserved;
};

/* The work of a point in a launch. The kernels find its regions at params.regions. */
struct tt_replay_point {
	struct tt_capture_params params;
	uint64_t table; /* front copies params.region_count of struct tt_capture_region from here */
};

/*
 * The host's data about launches of an executable graph, in pinned host memory. Its launches run one after the
 * other, and the first node of each reads its turn. If the turn was not prepared, the other nodes do nothing.
 */
struct tt_replay {
	uint64_t turn;   /* complete launches of those that were prepared; the device writes it */
	uint64_t turns;  /* struct tt_replay_turn[turn_mask + 1] */
	uint64_t points; /* struct tt_replay_point[point_mask + 1][point_count] */
	uint64_t stamps; /* uint64_t[turn_mask + 1][stamp_count], times of %globaltimer */
	uint32_t turn_mask;
	uint32_t point_mask;
	uint32_t point_count;
	uint32_t stamp_count;
};

/*
 * Copied by front for all other nodes of the running launch. It is in device memory, because thousands of CTAs that
 * each read a word over the bus take milliseconds. A struct tt_replay_point for each point follows, valid with
 * TT_REPLAY_POINTS.
 */
struct tt_replay_launch {
	uint64_t number;  /* of the turn; 0: not prepared */
	uint64_t through; /* address of tt_replay.turn */
	uint64_t stamps;  /* stamps of the turn; 0: none */
	uint32_t flags;   /* TT_REPLAY_… */
	uint32_t reserved;
};

/* A block of a payload that is coded on its way to the host. */
struct tt_pack_block {
	uint64_t from;   /* its contents; a multiple of 8 */
	uint64_t to;     /* room for TT_PACK_PREFIX and length bytes, rounded up to TT_CHUNK_ALIGN; a multiple of 8 */
	uint32_t length; /* at most TT_BLOCK_SIZE */
	uint32_t reserved;
};

/* Codes each block as TT_ENCODING_PLANES says. */
struct tt_pack_params {
	uint64_t blocks; /* struct tt_pack_block[count] */
	uint32_t count;
	uint32_t reserved;
};

#endif
