/*
 * Stores the records of traced launches. See flights.h for the invariant.
 */
#include <stdlib.h>
#include <string.h>

#include "instrument/flights_parts.h"
#include "options/options.h"
#include "session/session.h"
#include "store/store.h"

#define RECORDS_MAX 100000000 /* without TT_INSTRUMENT_RECORDS */
#define ACCESS_MAX 32  /* bytes that a lane accesses at most */

void flights_stop(const char *why)
{
	if (!atomic_exchange(&flights.full, true))
		session_lost("instructions are not traced any more: %s", why);
}

/* The launch with this number; NULL: none runs. Launches of a ring are few. */
static struct flight *flight_of(struct context_ring *r, uint32_t index)
{
	struct flight *f = r->flights;

	while (f && f->index != index)
		f = f->next;
	return f;
}

/* Whether the option's addresses meet those of a record, whose lanes access up to ACCESS_MAX bytes each. */
static bool is_near(const struct tt_trace_record *one, const char *payload)
{
	struct number_range near = options.instrument_addresses;
	uint64_t address;

	memcpy(&address, payload, sizeof(address));
	for (unsigned lane = 0; lane < 32; lane++) {
		if (!(one->tag >> 8 & TT_TRACEF_STRIDED))
			memcpy(&address, payload + lane * sizeof(address), sizeof(address));
		uint64_t at = one->tag >> 8 & TT_TRACEF_STRIDED ? address + (uint64_t)((int64_t)one->stride * lane) : address;
		if (one->mask >> lane & 1 && at < near.end && (at >= near.first || near.first - at < ACCESS_MAX))
			return true;
	}
	return false;
}

/* Moves the records that the option's addresses choose to the front; returns their bytes. */
static uint32_t near_records(char *records, uint32_t bytes)
{
	uint32_t kept = 0, size;

	if (!options.instrument_addresses.end)
		return bytes;
	for (uint32_t at = 0; at < bytes; at += size) {
		struct tt_trace_record one;
		memcpy(&one, records + at, sizeof(one));
		size = (one.tag >> 16) * 8;
		uint32_t kind = one.tag & 0xff;
		bool placed = kind == TT_TRACE_ADDRESSES || kind == TT_TRACE_VALUES;
		if (placed && !is_near(&one, records + at + sizeof(one)))
			continue;
		memmove(records + kept, records + at, size);
		kept += size;
	}
	return kept;
}

/* The bytes of the records that may still be stored; counts them, and those that are lost. */
static uint32_t within_limit(struct context_ring *r, const void *records, uint32_t bytes, uint64_t *count)
{
	uint64_t most = options.instrument_records ? options.instrument_records : RECORDS_MAX;
	struct flight *f = NULL;
	uint32_t kept = 0;

	pthread_mutex_lock(&flights.lock);
	for (uint32_t at = 0; at < bytes;) {
		struct tt_trace_record one;
		memcpy(&one, (const char *)records + at, sizeof(one));
		at += (one.tag >> 16) * 8;
		bool stored = !flights.full && flights.records + *count < most;
		if (!f || f->index != one.launch)
			f = flight_of(r, one.launch);
		if (f)
			*(stored ? &f->records : &f->lost) += 1;
		kept = stored ? at : kept;
		*count += stored;
	}
	flights.records += *count;
	pthread_mutex_unlock(&flights.lock);
	return kept;
}

void flight_take(void *user, void *records, uint32_t bytes)
{
	struct context_ring *r = user;
	uint64_t count = 0;

	bytes = near_records(records, bytes);
	uint32_t kept = within_limit(r, records, bytes, &count);

	if (kept && !store_trace(session_store(), records, kept, count))
		flights_stop("there is no room on the disk");
	else if (kept < bytes)
		flights_stop("the limit of records is reached (--max-records, of record --instrument-records)");
	else
		return;
	ring_discard(&r->ring);
}

static void put_record(char *to, const struct flight *f, uint32_t kind, uint32_t instruction, uint64_t a, uint64_t b)
{
	const uint64_t payload[2] = {a, b};
	struct tt_trace_record record = {
		.tag = TT_TRACE_TAG(kind, 0, sizeof(record) + sizeof(payload)), .launch = f->index, .instruction = instruction};

	memcpy(to, &record, sizeof(record));
	memcpy(to + sizeof(record), payload, sizeof(payload));
}

#define SUMMARY (sizeof(struct tt_trace_record) + 2 * sizeof(uint64_t))

uint64_t flight_count_bytes(const struct flight_counts *c)
{
	return c->copies ? (uint64_t)c->copies * c->slots * sizeof(uint64_t) : (uint64_t)c->instructions * 2 * sizeof(uint64_t);
}

/* Executions of an instruction by warps and by threads. */
static void count_of(const struct flight_counts *c, const uint64_t *counts, uint32_t instruction, uint64_t out[2])
{
	out[0] = c->copies ? 0 : counts[2 * instruction];
	out[1] = c->copies ? 0 : counts[2 * instruction + 1];
	for (uint32_t i = 0; i < c->copies && c->slot[instruction]; i++) {
		uint64_t counted = counts[i * c->slots + c->slot[instruction] - 1];
		out[0] += counted >> TT_TRACE_COUNTED_SHIFT;
		out[1] += counted & TT_TRACE_COUNTED_THREADS;
	}
}

void flight_store_end(struct context_ring *r, const struct flight *f, uint64_t lost)
{
	uint64_t bytes = flight_count_bytes(&f->counted), count[2];
	uint32_t most = TT_TRACE_CHUNK_MAX / SUMMARY, n = 0, instructions = bytes ? f->counted.instructions : 0;
	uint64_t *counts = bytes ? malloc(bytes) : NULL;
	char *out = malloc(((size_t)instructions + 1) * SUMMARY);

	bool known = counts && ring_copy(&r->ring, counts, f->counts.device, bytes);
	for (uint32_t i = 0; known && out && i < instructions; i++) {
		count_of(&f->counted, counts, i, count);
		if (count[0])
			put_record(out + SUMMARY * n++, f, TT_TRACE_COUNT, i, count[0], count[1]);
	}
	if (out) {
		put_record(out + SUMMARY * n, f, TT_TRACE_END, 0, f->records + n, f->lost + lost);
		n++;
	}
	for (uint32_t at = 0; out && at < n; at += most) {
		uint32_t stored = n - at < most ? n - at : most;
		store_trace(session_store(), out + SUMMARY * at, (uint32_t)(SUMMARY * stored), stored);
	}
	free(counts);
	free(out);
}
