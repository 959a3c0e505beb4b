/*
 * Epochs: which regions they read, after which work, with which kernels, into which ring.
 *
 * Invariant: an epoch reads memory after all work that was submitted before it, and before all work that is
 * submitted after it. If that fails, its record says so (TT_EPOCHF_LOOSE). The host waits for the device only for a
 * limited time. If a wait times out, the program's streams continue and the epoch is cancelled. Only this code and
 * the drain submit work of the recorder.
 */
#ifndef TT_CAPTURE_CAPTURE_H
#define TT_CAPTURE_CAPTURE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "capture/drain.h"
#include "track/regions.h"
#include "inspect/contexts.h"
#include "options/options.h"
#include "capture/free_ranges.h"
#include "capture/kernels.h"
#include "capture/memory.h"

#define CAPTURE_PENDING 256 /* epoch parts that may wait for the drain */
#define CAPTURE_WORDS 1024 /* captures that may have ended before a graph with an earlier one does */
#define CAPTURE_OUTGROWN 64 /* replaced memory; few, because each replacement is larger */

/* A submitted capture whose status was not read yet, and its part of the ring. */
struct open_capture {
	uint32_t slot;
	uint64_t size;
};

/* The regions of one or several epochs; holds a reference to each. */
struct region_list {
	_Atomic uint32_t references;
	uint32_t count;
	struct region *regions[];
};

/* The recorder's resources in one context. Guarded by the capture lock, except what the drain owns. */
struct capture {
	struct context *context;
	_Atomic bool broken; /* unusable context: a sticky error, or it is being destroyed */
	bool host_only; /* the program ran out of device memory */
	CUstream stream;
	CUstream drain_streams[2]; /* for even and odd buffers: a copy in one overlaps the completion word of the other */
	CUmodule module, pack_module;
	CUfunction digest, digest_small, gather, pack; /* pack: only with --compress device */
	unsigned processors;
	struct memory ring, control, scratch, regions, shared; /* shared: words and status slots */
	struct memory staging_memory;      /* pinned host memory */
	struct tt_capture_region *staging; /* inside it */
	uint64_t staging_count, staged_version;
	uint64_t blocks, payload, bytes; /* sums over the regions in staging */
	struct region_list *list;        /* the regions in staging */
	bool staged;                     /* the device has the table too */
	bool staged_all;                 /* later epochs can use it while the region map is unchanged */
	bool any_fresh, managed;         /* of its regions */
	struct memory outgrown[CAPTURE_OUTGROWN];
	unsigned outgrown_count;
	struct memory slabs[64];         /* block digests */
	unsigned slab_count;
	struct free_ranges places;       /* free ranges of the slabs */
	CUevent order;                   /* recorded on each stream of the program in turn */
	CUevent done[CAPTURE_PENDING];
	CUevent begun[CAPTURE_PENDING]; /* before it; only with --max-overhead */
	_Atomic uint64_t tail;           /* ring position up to which the drain has read */
	uint64_t head;
	uint32_t epochs;                 /* captured so far; counts snapshots */
	uint32_t last_exact;             /* the last epoch if it has contents and is not loose, else TT_NO_EPOCH */
	uint64_t regions_then;           /* regions_version_now before it */
	uint32_t number;                 /* of the capture being cut, as in context.captures */
	bool force_full, gap;            /* of the next epoch */
	bool skipped;                    /* the last epoch was skipped, to keep to --max-overhead */
	uint64_t work_skipped;           /* context_work then */
	bool contents_old;               /* epochs since the last one with contents had digests only */
	pthread_mutex_t cancel_lock;     /* guards cancelling: the start of a capture waits for it */
	uint32_t last_epoch;             /* last epoch that was started: captures up to it are cancelled together */
	_Atomic uint32_t cancelled_before;     /* epochs before this one were cancelled if they were incomplete */
	_Atomic uint32_t torn_before; /* those before this one may read after that, and beside work of the program */
	uint32_t base; /* the last snapshot: a delta is valid only if this is not older than cancelled_before */
	struct open_capture open[CAPTURE_PENDING]; /* a circular list from open_first on, in order */
	uint32_t open_first, open_count;
	uint64_t reserved; /* bytes of the ring for them */
	const struct stream *open_stream; /* stream of the last of them; NULL: the recorder's */
	uint32_t last_slot;
	struct pending *kept; /* drop-oldest: the epochs that stay in the ring, oldest first */
	size_t kept_count, kept_capacity;
	unsigned char *pinned[DRAIN_BUFFERS + 1];
	uint32_t copies[DRAIN_BUFFERS + 1]; /* into each, so far */
};

/* A part of an epoch that the drain will store. */
struct pending {
	struct capture *capture;
	struct tt_epoch epoch;
	struct region_list *list; /* by region index of chunk entries; the drain releases it */
	uint32_t slot;
	uint32_t number; /* capture.number */
	uint32_t part;
	bool refused, final, read; /* refused: has no contents, also for dropped epochs */
	bool digests; /* its blocks are stored without contents */
	bool watch; /* stays in the ring and is not stored, but may need to be cancelled */
	uint64_t charged; /* its GPU time as budget.c expected it */
	struct tt_capture_status status;
};

/*
 * The context begins to use memory: create what captures need there now. Later, a driver that loads kernels may
 * wait for all running work. Does nothing if no option asks for epochs.
 */
void capture_prepare(struct thread *t, struct context *c);
/* The capture is complete; a cancelled one becomes a refused epoch. */
void capture_take_status(struct pending *q, const struct tt_capture_status *s);
/*
 * Cuts an epoch in the context; label: from store_string. Takes the capture lock. ahead: a call has its number
 * already but is submitted later, so the last call before the epoch is unknown. Else that is the last number given
 * out, because calls that write get theirs inside the gate.
 */
void capture_epoch(struct thread *t, struct context *c, uint32_t trigger, uint32_t label, uint64_t seq, bool ahead);
/* Counts a launch and returns its number, from 1. Used only if a trigger or the window counts launches. */
uint64_t capture_count_launch(void);
/* Whether an epoch that is cut now stores contents. The caller holds the capture lock. */
bool capture_stores_contents(const struct capture *p);
/* Whether the last launch, or the launch `ahead` launches later, is in the window of TT_EPOCH. */
bool capture_in_window(unsigned ahead);
/*
 * Called around a launch that is recorded with the memory before and after it. *before is a new epoch, or the last
 * one of the context if nothing happened since. Until capture_let_others, only this thread submits work, outside
 * the gate. *seq becomes the number of a call after all submitted work. False: no such epoch.
 */
bool capture_hold(struct thread *t, struct context *c, uint32_t label, uint64_t *seq, uint32_t *before);
/* The epoch after the launch; TT_NO_EPOCH if none could be cut. */
uint32_t capture_after(struct thread *t, struct context *c, uint32_t label, uint64_t seq);
void capture_let_others(struct thread *t);
/*
 * Submits something to the stream of the context's captures, before its next epoch. False: not possible now, or submit
 * gave false.
 */
bool capture_submit(struct thread *t, struct context *c, bool (*submit)(CUstream stream, void *to), void *to);
/* Makes the next work of a stream wait for the last capture. False: that is complete. */
bool capture_catch_up(struct stream *s);
/* Makes the next work of a stream wait for a running capture of another context. False: there is none. */
bool capture_await(const struct stream *s, const struct context *other);
/* The next work of the stream does not wait: it uses no memory that is being read. */
void capture_overtake(struct stream *s);
/* Waits until no capture reads memory, before the program frees some. False: one may still do so. */
bool capture_settle(struct thread *t, struct context *c);
/* Whether no capture is running. Does not wait: false also while another thread has the lock. */
bool capture_have_ended(struct context *c);
/* The program lacks device memory: frees the recorder's. True: some was freed. */
bool capture_give_back(struct thread *t, struct context *c);
/* The context or the process ends: drains and releases its capture. */
void capture_end(struct thread *t, struct context *c, bool final_epoch, bool process_ends);
/* The context ends, and no call of ours can be made in it: the drain leaves its memory. */
void capture_abandon(struct thread *t, struct context *c);
/* The earlier of `usual` and the deadline for waits of an ending process, for the GPU or for the drain. */
uint64_t capture_deadline(uint64_t usual, bool drain);
/* Bytes of the recorder's device memory. */
uint64_t capture_device_bytes(const struct context *c);
/*
 * Call after a capture was destroyed while the process goes on. A GPU clears freed memory before it counts as free,
 * and a driver keeps some until an allocation needs it. expected: bytes that must be free at least, from
 * capture_destroy.
 */
void capture_freed(struct context *c, uint64_t expected);
void capture_region_gone(struct region *r);
/* Changes settings between epochs; as controls_set. */
bool capture_control(const char *what, char *why, size_t size);
/* Drop-oldest: gives the epochs in the rings to the drain. */
void capture_dump(struct thread *t);

/* A stream capture that was counted as active has begun in this stream; it ended, or its stream was destroyed. */
void capture_stream_began(struct stream *s);
void capture_stream_ended(struct stream *s);
void capture_streams_gone(const struct context *c);
extern pthread_mutex_t capture_lock;

/*
 * order.c: makes the capture stream wait for all submitted work of the context. False: not for all of it, and the
 * rest may write while the capture reads. idle: no work was running.
 */
bool capture_order(struct thread *t, struct capture *p, bool *idle);

/* Kernel parameters for a part of an epoch; regions: the table of its list on the device. */
struct tt_capture_params capture_params(struct capture *p, const struct pending *q, CUdeviceptr regions, uint64_t blocks,
					uint64_t payload);

/* pending.c: submitted captures that are not known to be complete. */
/* The slot of the next capture, reset. */
uint32_t capture_slot(struct capture *p);
/* A capture was submitted; size: the most that it may take in the ring. */
void capture_opened(struct capture *p, uint32_t slot, uint64_t size);
/*
 * Waits for all captures. False: the last still reads after the time limit, and was cancelled. Captures share one
 * list of blocks.
 */
bool capture_settled(struct capture *p);
/* Its parts: waits so long at most, and makes no driver call if that is 0; cancels what did not end, once. */
bool capture_completes(struct capture *p, uint32_t timeout_ms);
void capture_give_up(struct capture *p);
/* The user learns that an epoch is cancelled, once. */
void capture_tell_late(uint32_t epoch);
/* Captures since the last snapshot were cancelled, or may be torn. */
static inline bool capture_needs_snapshot(const struct capture *p)
{
	return p->force_full || atomic_load(&p->cancelled_before) > p->base;
}
/* The capture of this epoch is submitted next: earlier captures are not cancelled any more. */
void capture_begins(struct capture *p, uint32_t epoch);
/*
 * Cancels captures that wait too long for work of the program: this slot's and all others that run. Releases the
 * streams that wait for them. No effect on a complete capture; may be repeated.
 */
void capture_cancel(struct capture *p, uint32_t slot);
/* Cancels all running captures. */
void capture_cancel_all(struct capture *p);
/* Later work of the program waits until this stream has completed its last capture. */
void capture_release_after(struct capture *p, CUstream stream);
/* Running captures were cancelled but are not complete: no work of the program waits for them. */
bool capture_is_blocked(const struct capture *p);
/* A capture is complete: moves the ring's head past its chunk. */
void capture_account(struct capture *p, const struct tt_capture_status *s);
/*
 * Most bytes of the ring that chunks of `size` bytes in total may take, the largest having `largest` bytes. A chunk
 * that does not fit before the end of the ring starts at its beginning, and the rest is unused.
 */
uint64_t capture_span(const struct capture *p, uint64_t size, uint64_t largest);
/*
 * Whether there is room for these chunks after the running captures. The drain only adds room: give the kernels the
 * ring's tail as it is after this call.
 */
bool capture_fits(struct capture *p, uint64_t size, uint64_t largest);
/* Restarts an empty ring at its beginning. True: a chunk of this size fits now. */
bool capture_begin_ring(struct capture *p, uint64_t size);

/* device.c */
struct capture *capture_create(struct context *c, bool host_only);
/*
 * Waits for all running work of the context; the caller has checked that this ends. Returns how many bytes of the
 * device will be free at least.
 */
uint64_t capture_destroy(struct capture *p);
bool capture_is_idle(const struct capture *p);
bool capture_memory(struct capture *p, struct memory *m, uint64_t size, bool host);
/* The same for memory that belongs to no capture. */
bool capture_memory_of(struct context *c, struct memory *m, uint64_t size, bool host);
bool capture_place(struct capture *p, struct region *r); /* room for the region's digests, if it has none */
/*
 * Streams wait until the word of a capture has its number, from the device or the host. Each has a word of its own, because
 * graphs write theirs when they end, which may be after captures that came later.
 */
uint32_t *capture_word(const struct capture *p, uint32_t capture);
CUdeviceptr capture_word_address(const struct capture *p, uint32_t capture);
bool capture_released(const struct capture *p, uint32_t capture);
void capture_release(struct capture *p, uint32_t captures); /* this one and all before it */
struct tt_capture_status *capture_status(struct capture *p, uint32_t slot);
CUdeviceptr capture_status_address(struct capture *p, uint32_t slot);
uint32_t *capture_copied_word(struct capture *p, int buffer);
CUdeviceptr capture_copied_address(struct capture *p, int buffer);
/*
 * Waits, with a time limit, for a word that the recorder's work in a stream raises. False: timeout, or the context
 * is broken.
 */
bool capture_poll(struct capture *p, const uint32_t *word, uint32_t value, CUstream stream, uint32_t timeout_ms);
bool capture_copied(struct capture *p, int buffer); /* the last copy into it is complete */
bool capture_complete(struct capture *p, uint32_t slot);
/* Waits, as capture_poll, for a capture's status. */
bool capture_wait(struct capture *p, uint32_t slot, uint32_t timeout_ms);
/* The context has a sticky error: nothing more is read from it. */
void capture_failed(struct capture *p, CUresult r, const char *call);
/* context_push for calls that captures depend on: a failure ends recording. */
bool capture_enter(struct context *c);
/* Replaced memory is freed later, when nothing runs: a free may wait for the whole device. */
void capture_outgrow(struct capture *p, struct memory *m);
void capture_free_outgrown(struct capture *p);

/* Bytes of all blocks of a region in a chunk. */
static inline uint64_t region_payload(const struct region *r)
{
	uint64_t before = (region_blocks(r) - 1) * TT_BLOCK_SIZE;

	return before + tt_payload_size(r->size - before);
}

/* choose.c: fills p->list and p->staging with the regions that the epoch reads. False: no memory. */
bool choose_regions(struct capture *p, uint32_t number, bool full, uint32_t *total);
void choose_captured(struct capture *p); /* the epoch was submitted */
void choose_again(struct capture *p); /* the epoch was discarded: the next reads all of its regions */
bool capture_scratch(struct capture *p, uint64_t blocks); /* room for a list of `blocks` blocks */
struct region_list *region_list_new(size_t capacity); /* empty; NULL: no memory */
struct region_list *region_list_hold(struct region_list *list);
void region_list_release(struct region_list *list);

/* flight_recorder.c: epochs stay in the ring until they are asked for or the ring needs their room. */
bool flight_keep(struct capture *p, const struct pending *q);
/* Drops groups of epochs, the oldest first, until a chunk of this size fits. False: it cannot fit. */
bool flight_make_room(struct capture *p, uint64_t size);
/* False: the rest cannot be dropped, because the next epoch depends on it. */
bool flight_drop_group(struct capture *p);
/* The status of the last kept epoch is known. */
void flight_settled(struct capture *p, const struct tt_capture_status *s);
void flight_dump(struct capture *p);
/* Releases all epochs without a record: the context is lost. */
void flight_drop_all(struct capture *p);

#endif
