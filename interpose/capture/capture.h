/*
 * Epochs: which regions, ordered how, through which kernels, into which ring.
 *
 * Invariant: an epoch reads memory after all work that was submitted before it and before all
 * work that is submitted after it, or its record says that it could not (TT_EPOCHF_LOOSE). The
 * host never waits for the device without a bound; where a wait runs out, the program's
 * streams are let go and the epoch is given up. This and the drain are the only code that
 * submits work of our own.
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
#define CAPTURE_OUTGROWN 64 /* of these there are few: each is larger by a part than the one before */

/* A capture whose status was not read so far, and what of the ring it may take. */
struct open_capture {
	uint32_t slot;
	uint64_t size;
};

/* The regions of one or several epochs, referenced. */
struct region_list {
	_Atomic uint32_t references;
	uint32_t count;
	struct region *regions[];
};

/* What the recorder holds in one context. Guarded by the capture lock, but for what the drain owns. */
struct capture {
	struct context *context;
	_Atomic bool broken; /* the context is of no use any more: sticky error, or being destroyed */
	bool host_only; /* the program ran short of device memory */
	CUstream stream;
	CUstream drain_streams[2]; /* of even and odd buffers: one copies while the other says that it has */
	CUmodule module;
	CUfunction digest, gather;
	unsigned processors;
	struct memory ring, control, scratch, regions, shared; /* shared: release word, then status slots */
	struct memory staging_memory;      /* pinned, on the host */
	struct tt_capture_region *staging; /* there */
	uint64_t staging_count, staged_version;
	uint64_t blocks, payload, bytes; /* over the regions in staging */
	struct region_list *list;        /* as in staging */
	bool staged;                     /* the device has it too */
	bool staged_all;                 /* it holds for later epochs, while the map's version does */
	bool any_fresh, managed;         /* of its regions */
	struct memory outgrown[CAPTURE_OUTGROWN];
	unsigned outgrown_count;
	struct memory slabs[64];         /* block digests */
	unsigned slab_count;
	struct free_ranges places;       /* for these */
	CUevent order;                   /* recorded on the program's streams in turn */
	CUevent done[CAPTURE_PENDING];
	_Atomic uint64_t tail;           /* ring position drained so far */
	uint64_t head;
	uint32_t epochs;                 /* captured so far, for snapshots */
	uint32_t last_exact;             /* the last epoch, if it has contents and is not loose, else TT_NO_EPOCH */
	uint64_t regions_then;           /* regions_version_now before it */
	uint32_t number;                 /* of the capture being cut, as context.captures will count it */
	bool force_full, gap;            /* of the next epoch */
	pthread_mutex_t calling_off;     /* guards what is to be called off: a capture's beginning waits for it */
	uint32_t last_epoch;             /* begun: captures up to it are called off together */
	_Atomic uint32_t called_off;     /* epochs before this one were, where they were not through */
	uint32_t base;                   /* the last snapshot: deltas need it to be as new as what was called off */
	struct open_capture open[CAPTURE_PENDING]; /* from open_first on, in order, and around */
	uint32_t open_first, open_count;
	uint64_t reserved;               /* of the ring, for them */
	const struct stream *open_stream; /* that the last of them is in; NULL: our own */
	uint32_t last_slot;
	struct pending *kept;            /* drop-oldest: the epochs that stay in the ring, oldest first */
	size_t kept_count, kept_capacity;
	unsigned char *pinned[DRAIN_BUFFERS];
	uint32_t copies[DRAIN_BUFFERS];  /* into each so far */
};

/* One part of an epoch on its way to the files. */
struct pending {
	struct capture *capture;
	struct tt_epoch epoch;
	struct region_list *list; /* by chunk entry index; released by the drain */
	uint32_t slot;
	uint32_t number; /* capture.number */
	uint32_t part;
	bool refused, final, read; /* refused: without contents, dropped ones too */
	bool watch; /* not for the files: it stays in the ring, but may be held up */
	struct tt_capture_status status;
};

/*
 * The context begins to use memory: what captures need there is made now, as a driver that loads
 * kernels may first wait for all that runs. Nothing is made where no epoch is asked for beforehand.
 */
void capture_prepare(struct thread *t, struct context *c);
/* The capture is through; a cancelled one leaves a refused epoch. */
void capture_take_status(struct pending *q, const struct tt_capture_status *s);
/*
 * Cut an epoch in the context; label: what store_string gave. Takes the capture lock. ahead: of a call
 * that has its number already and is submitted afterwards, so that it is not known up to which call it
 * is; else it is up to the last number given out, as calls that write get theirs within the gate.
 */
void capture_epoch(struct thread *t, struct context *c, uint32_t trigger, uint32_t label, uint64_t seq, bool ahead);
/* One more launch was made: its number, from 1. Counted where a trigger or the window goes by launches. */
uint64_t capture_count_launch(void);
/* Whether the last launch, or that many ahead of it, lies in the window of TT_EPOCH. */
bool capture_in_window(unsigned ahead);
/*
 * Around a launch that is to be recorded with memory before and after it. hold: an epoch as
 * capture_epoch would cut it, or the context's last one if nothing happened since, is *before; from
 * there on until let_others this thread alone submits work, outside of the gate. *seq becomes that of
 * a call which comes after all that was submitted. False: nothing of the kind.
 */
bool capture_hold(struct thread *t, struct context *c, uint32_t label, uint64_t *seq, uint32_t *before);
/* The epoch after it, TT_NO_EPOCH where none could be cut. */
uint32_t capture_after(struct thread *t, struct context *c, uint32_t label, uint64_t seq);
void capture_let_others(struct thread *t);
/* Let a stream's next work wait for the last capture. False: it is through. */
bool capture_catch_up(struct stream *s);
/* Lets a stream's next work wait for a capture under way in another context. False: there is none. */
bool capture_await(const struct stream *s, const struct context *other);
/* The stream's next work does not wait: it names nothing that is being read. */
void capture_overtake(struct stream *s);
/* Wait until no capture reads memory any more, before the program frees some. */
void capture_settle(struct thread *t, struct context *c);
/* The program is short of device memory: give back ours. True: something was given back. */
bool capture_give_back(struct thread *t, struct context *c);
/* The context, or the process with it, is about to go: drain what is in it and let go of it. */
void capture_end(struct thread *t, struct context *c, bool final_epoch, bool process_ends);
/*
 * Something ends the process: from now on nothing of the recorder waits for the GPU or the drain
 * for longer than a moment, and what is cut short by that is no failure.
 */
/* The earlier of this time and when waiting for the GPU, or for the drain, is over. */
uint64_t capture_deadline(uint64_t usual, bool drain);
/* Bytes of device memory that are ours. */
uint64_t capture_device_bytes(const struct context *c);
/*
 * After a capture went in the middle: a GPU wipes memory that is freed, and counts it as free only then,
 * and a driver keeps some of it until it is needed.
 * expected: bytes that will be left at least, as capture_destroy said.
 */
void capture_freed(struct context *c, uint64_t expected);
void capture_region_gone(struct region *r);
/* Settings as controls_set, between epochs. */
bool capture_control(const char *what, char *why, size_t size);
/* Drop-oldest: hand what the rings hold to the drain. */
void capture_dump(struct thread *t);

/* One that was counted as under way did begin, in this stream; it ended, or its stream is gone. */
void capture_stream_began(struct stream *s);
void capture_stream_ended(struct stream *s);
void capture_streams_gone(const struct context *c);
extern pthread_mutex_t capture_lock;

/*
 * order.c: the capture stream waits for all that was submitted in the context. False: it could not
 * for some, which may write while the capture reads. idle: nothing was running.
 */
bool capture_order(struct thread *t, struct capture *p, bool *idle);

/* What the kernels are given for a part of an epoch; regions: the table of its list on the device. */
struct tt_capture_params capture_params(struct capture *p, const struct pending *q, CUdeviceptr regions, uint64_t blocks,
					uint64_t payload);

/* pending.c: captures that were submitted and are not known to be through. */
/* The slot that the next capture will use, ready for it. */
uint32_t capture_slot(struct capture *p);
/* One was submitted; size: what of the ring it may take at most. */
void capture_opened(struct capture *p, uint32_t slot, uint64_t size);
/* All captures are through, or were let go. False: the last still reads. The kernels keep one list. */
bool capture_settled(struct capture *p);
/* Captures since the last snapshot were called off, or may be torn. */
static inline bool capture_needs_snapshot(const struct capture *p)
{
	return p->force_full || atomic_load(&p->called_off) > p->base;
}
/* This epoch's capture is next to be submitted: from here on those before it are not called off any more. */
void capture_begins(struct capture *p, uint32_t epoch);
/*
 * Calls off captures that work before them holds up, this slot's and all others under way, and lets run
 * what waits for them. Nothing where it is through; may be repeated.
 */
void capture_call_off(struct capture *p, uint32_t slot);
/* The same for all that are under way. */
void capture_let_go(struct capture *p);
/* What the program submits from now on waits until the stream, which captures last, is through with that. */
void capture_let_go_after(struct capture *p, CUstream stream);
/* What is under way was called off, and is not through: nothing of the program waits for it. */
bool capture_held_up(const struct capture *p);
/* One is through: the ring's head is behind it. */
void capture_account(struct capture *p, const struct tt_capture_status *s);
/*
 * What chunks of so many bytes, of which none is larger than that, may take of the ring: where one is
 * moved to its start, what is left before its end is lost.
 */
uint64_t capture_span(const struct capture *p, uint64_t size, uint64_t largest);
/*
 * Whether there is room for them behind what is under way. The drain only adds to the room: kernels are
 * given the ring's tail as it is after this was asked.
 */
bool capture_fits(struct capture *p, uint64_t size, uint64_t largest);
/* An empty ring is used from its start again. True: a chunk of this size fits now. */
bool capture_begin_ring(struct capture *p, uint64_t size);

/* device.c */
struct capture *capture_create(struct context *c, bool host_only);
/* Waits for all that runs in the context: the caller has seen what may wait for the program come to an end. Gives how many bytes of the device will be left at least. */
uint64_t capture_destroy(struct capture *p);
bool capture_is_idle(const struct capture *p);
bool capture_memory(struct capture *p, struct memory *m, uint64_t size, bool host);
/* The same for what is no capture's. */
bool capture_memory_of(struct context *c, struct memory *m, uint64_t size, bool host);
bool capture_place(struct capture *p, struct region *r); /* room for its digests, if it has none */
/* How many captures are through, for the streams that wait: theirs, and the host's to say. */
bool capture_released(struct capture *p, uint32_t captures);
void capture_release(struct capture *p, uint32_t captures); /* does not take back what the device said */
struct tt_capture_status *capture_status(struct capture *p, uint32_t slot);
CUdeviceptr capture_status_address(struct capture *p, uint32_t slot);
uint32_t *capture_copied_word(struct capture *p, int buffer);
CUdeviceptr capture_copied_address(struct capture *p, int buffer);
/* Bounded wait for a word that work of ours on a stream counts up. False: not in time, or the context is broken. */
bool capture_poll(struct capture *p, const uint32_t *word, uint32_t value, CUstream stream, uint32_t timeout_ms);
/* The same for a capture's status. */
bool capture_wait(struct capture *p, uint32_t slot, uint32_t timeout_ms);
/* The context has an error that nothing ends: no more is read from it. */
void capture_failed(struct capture *p, CUresult r, const char *call);
/* context_push, for what can't be left out where there are captures: if it fails, recording ends. */
bool capture_enter(struct context *c);
/* To free memory may wait for the whole device: that is done when nothing runs there. */
void capture_outgrow(struct capture *p, struct memory *m);
void capture_free_outgrown(struct capture *p);

/* Bytes that all blocks of a region take in a chunk. */
static inline uint64_t region_payload(const struct region *r)
{
	uint64_t before = (region_blocks(r) - 1) * TT_BLOCK_SIZE;

	return options.contents == CONTENTS_NONE ? 0 : before + tt_payload_size(r->size - before);
}

/* choose.c: p->list and p->staging become what the epoch reads. False: no memory. */
bool choose_regions(struct capture *p, uint32_t number, bool full, uint32_t *total);
void choose_captured(struct capture *p); /* the epoch was submitted */
void choose_again(struct capture *p);    /* the epoch was discarded: the next reads all of its regions */
bool capture_scratch(struct capture *p, uint64_t blocks); /* room for a list of so many blocks */
struct region_list *region_list_new(size_t capacity); /* empty; NULL: no memory */
struct region_list *region_list_hold(struct region_list *list);
void region_list_release(struct region_list *list);

/* flight_recorder.c: epochs that stay in the ring until they are asked for or the ring needs the room. */
bool flight_keep(struct capture *p, const struct pending *q);
/* Drops groups of epochs, the oldest first, until a chunk of this size fits. False: it can't. */
bool flight_make_room(struct capture *p, uint64_t size);
/* False: nothing more can be dropped but what the next epoch would build on. */
bool flight_drop_group(struct capture *p);
/* The status of the epoch last kept is known now. */
void flight_settled(struct capture *p, const struct tt_capture_status *s);
void flight_dump(struct capture *p);
/* Lets go of them without a trace: the context is lost. */
void flight_drop_all(struct capture *p);

#endif
