/*
 * What traced kernels and the recorder share in device memory. Records are those of format.h.
 *
 * A warp that has a record of `size` bytes: one lane adds size to head, and so gets its position. It waits while
 * position + size - tail > bytes, but not for ever: then it sets `discard`. If discard is set, it counts the record
 * in `lost`. Else it writes the record at base + position % bytes, and after a fence of device scope its tag. The
 * host takes records up to the first without a tag, zeroes their memory, and raises tail.
 *
 * There may be several such rings, because additions to one head come one after the other. Then a warp uses that of its
 * multiprocessor, and warps of different ones have no order.
 */
#ifndef TT_TRACE_RING_H
#define TT_TRACE_RING_H

#include <stdint.h>

/* In device memory: where records go. Positions only grow; the memory at base is mapped twice, one behind the other. */
struct tt_trace_ring {
	uint64_t head;    /* position behind the last reserved byte; warps raise it */
	uint64_t tail;    /* position up to which the host has stored records and zeroed the ring */
	uint64_t lost;    /* records that found no room */
	uint64_t discard; /* not 0: no more records are written */
	uint64_t base;    /* address of the ring's memory */
	uint64_t reserved[11];
};

/* What a traced kernel gets: one more parameter, by value, behind its own; a patch gets its address. */
struct tt_trace_param {
	uint64_t ring;      /* address of struct tt_trace_ring, as many as `rings` */
	uint64_t base;      /* address of the first ring's memory */
	uint64_t bytes;     /* of each ring, a power of two */
	uint64_t counts;    /* address of two u64 for each instruction: executions by warps and by threads; 0: none.
			     * With copies: of copies * slots u64, TT_TRACE_COUNTED each; the sum over copies counts */
	uint64_t heartbeat; /* address of a struct tt_heartbeat for each warp of the launch; 0: none */
	uint32_t launch;    /* index of its tt_traced */
	uint32_t kinds;     /* bits 1 << enum tt_trace_kind, of patches */
	uint64_t first_block, last_block; /* linear numbers of the blocks that are traced */
	uint64_t code;      /* address of the kernel's first instruction, of patches */
	uint32_t first_instruction, last_instruction; /* the instructions that are traced, of patches */
	uint32_t copies, slots; /* a power of two, so that not all warps add to the same counts; 0: no copies */
	uint32_t rings;     /* a power of two */
	uint32_t reserved;
};

/* What a warp adds to a count for an execution by some threads: these, and 1 above. */
#define TT_TRACE_COUNTED_SHIFT 32
#define TT_TRACE_COUNTED(threads) (UINT64_C(1) << TT_TRACE_COUNTED_SHIFT | (threads))
#define TT_TRACE_COUNTED_THREADS UINT32_MAX

/* The low byte of tt_heartbeat.state; the others change whenever who keeps the heartbeat says it again. */
enum tt_heartbeat_state {
	TT_WARP_NOT_STARTED = 0,
	TT_WARP_RUNS = 1,
	TT_WARP_EXITED = 2,
	TT_WARP_AT_BARRIER = 3,
	TT_WARP_AT_SYNC = 4, /* waits for other threads of its warp */
	TT_WARP_AT_NUMBERED = 5, /* as AT_BARRIER; the state has the barrier: see TT_WARP_AT */
	TT_WARP_RUNS_ON = 0xff /* behind a barrier */
};

#define TT_WARP_STATE(state) ((state) & 0xff)

/* The state of a warp at the barrier with this number, for so many threads (0: all). */
#define TT_WARP_NUMBER_SHIFT 8
#define TT_WARP_THREADS_SHIFT 16
#define TT_WARP_COUNT_SHIFT 28 /* above: how many barriers the warp has come to, if that is counted, else 0 */
#define TT_WARP_AT(number, threads) \
	(TT_WARP_AT_NUMBERED | (uint32_t)(number) << TT_WARP_NUMBER_SHIFT | (uint32_t)(threads) << TT_WARP_THREADS_SHIFT)

/* The number of the barrier of a cluster, behind those of a block. Who says that a warp is at it says so while it waits. */
#define TT_CLUSTER_BARRIER 16

/* tt_heartbeat.object: it is unknown */
#define TT_NO_OBJECT UINT64_MAX

/*
 * What a warp does. Whoever keeps it finds loops: a warp that comes to an instruction at or before its last one has
 * passed through one. A pass is repeated if it was like the pass that was looked at before: with the same registers, or,
 * where these are unknown, the same instructions with the same addresses and contents.
 */
struct tt_heartbeat {
	uint32_t instruction; /* the last one with a heartbeat, as in tt_trace_record */
	uint32_t state;       /* see enum tt_heartbeat_state */
	uint64_t object;      /* its last access: the address, or the number of a barrier with its threads << 32 (0: all) */
	uint64_t count;       /* heartbeats so far */
	uint64_t repeated, changed; /* passes through loops, of both sorts */
	uint64_t seen, before; /* of this pass and of the one before it, for who keeps the heartbeat */
	uint32_t access;       /* the instruction of `object`; it is `instruction` at a barrier */
	uint32_t first, last;  /* instructions of the last pass: its first one, and the one from which it begins again */
	uint32_t exited;       /* lanes; if these are all, the warp has exited, whatever its state is */
	uint64_t barriers;     /* for who reads it: the state's count of barriers */
};

#endif
