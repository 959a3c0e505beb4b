/*
 * What the files of flights.h share.
 *
 * flights.c begins and ends launches, flight_records.c stores their records, flight_heartbeats.c says what their warps do.
 */
#ifndef TT_INSTRUMENT_FLIGHTS_PARTS_H
#define TT_INSTRUMENT_FLIGHTS_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "instrument/flights.h"
#include "instrument/heartbeats.h"
#include "instrument/ring.h"
#include "instrument/zeros.h"

#define FLIGHT_POLL_NS 200000

struct flight {
	struct flight *next;
	struct context_ring *ring;
	uint32_t index;
	struct flight_counts counted;
	void **values;
	uint64_t records, lost; /* stored, and not stored */
	bool submitted, ended;
	CUevent end;
	struct memory counts, copy; /* copy: of the parameter */
	struct heartbeats beats;
	uint64_t seq;
	struct tt_trace_param param;
};

struct context_ring {
	struct context_ring *next;
	struct context *context;
	struct ring ring;
	struct zeros zeros; /* for counts and heartbeats */
	struct flight *flights;
	uint64_t lost_before; /* of the ring's `lost`, as launches that have ended reported it */
};

extern struct flights {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_t thread;
	bool running, stopping;
	struct context_ring *rings;
	struct context_ring *busy; /* the thread works on it without the lock */
	uint32_t count;            /* records of traced.bin */
	uint64_t records;          /* stored */
	_Atomic bool full;         /* no more launches are traced; set without the lock */
	_Atomic uint64_t still_ns; /* for flights_still */
	uint64_t active_ns;        /* when a launch began or ended, or records were taken */
	uint64_t look_ns;          /* when heartbeats are to be read again */
	bool asked;                /* for what warps do */
	char *told;                /* that, as JSON */
} flights;

/* Which launches have ended; returns whether all have. For the thread, which alone removes launches. */
bool flights_look(struct context_ring *r, struct flight *first);

/* ---- flight_records.c ---- */

/* No more launches are traced. */
void flights_stop(const char *why);
/* Stores records of a ring: a ring_take_fn. */
void flight_take(void *ring, void *records, uint32_t bytes);
/* Bytes of its counts in device memory. */
uint64_t flight_count_bytes(const struct flight_counts *c);
/* The counts of its instructions, and its end. */
void flight_store_end(struct context_ring *r, const struct flight *f, uint64_t lost);

/* ---- flight_heartbeats.c ---- */

/* Reads heartbeats, if that is due, to find out whether anything moves. */
void flights_watch(struct context_ring *r, struct flight *first);
/* Finds out for how long nothing moved. Caller holds the lock. */
void flights_note_still(void);
/* Answers flights_warps. Caller holds the lock, which is given up meanwhile. */
void flights_answer(void);

#endif
