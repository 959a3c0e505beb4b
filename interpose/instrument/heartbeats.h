/*
 * What the warps of an unfinished launch do: heartbeats, which its kernel keeps in device memory.
 *
 * Invariant: they are read without stopping the kernel, and by one thread.
 */
#ifndef TT_INSTRUMENT_HEARTBEATS_H
#define TT_INSTRUMENT_HEARTBEATS_H

#include <stdbool.h>
#include <stdint.h>

#include "instrument/ring.h"
#include "trace_ring.h"

struct heartbeats {
	struct memory memory; /* struct tt_heartbeat for each warp; none: size 0 */
	uint64_t warps;
	uint32_t threads, warps_per_block; /* of a block */
	struct tt_heartbeat *before, *now; /* the last two readings; NULL: none */
	unsigned readings;
	bool begun; /* at the last reading, a warp had started */
	uint64_t read_ns, still_ns; /* when they were read last, and since when nothing has moved in readings */
};

/* Blocks that have not begun do so when others have run for long, as on the simulator, not only when these end. */
extern bool heartbeats_late_blocks;

/* Whether the options ask for them. */
bool heartbeats_wanted(void);
/* Returns the bytes of their memory, of zeros, which the caller makes and frees. 0: there are too many warps, or none. */
uint64_t heartbeats_make(struct heartbeats *h, const uint32_t grid[3], const uint32_t block[3]);
void heartbeats_free(struct heartbeats *h);
/*
 * Reads them. The launch moves if since the reading before a warp did something that was not a repetition, or was silent, so
 * that it may do something.
 */
void heartbeats_read(struct heartbeats *h, struct ring *r);
/* Whether a warp did nothing between the last two readings that says what it does. */
bool heartbeats_silent(const struct heartbeats *h);

struct json;
/*
 * What the warps did between the last two readings, as members of a JSON object: "warps", "warps_per_block", "groups".
 */
void heartbeats_json(const struct heartbeats *h, struct json *j);

#endif
