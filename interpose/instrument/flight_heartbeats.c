/*
 * Says what the warps of launches do that still run. See flights.h for the invariant.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "inspect/contexts.h"
#include "instrument/flights_parts.h"
#include "options/options.h"
#include "util/clock.h"
#include "util/json_writer.h"

#define LOOK_MS_MOST 1000    /* between two readings of heartbeats, to find a hang */
#define BETWEEN_NS 150000000 /* and for a report */
#define READINGS 3 /* of those */
#define READINGS_MOST 8 /* where a warp did nothing between two: a busy machine may not have run it */

static uint64_t between_looks(void)
{
	uint64_t part = options.no_progress_ms / 4;

	return (part < LOOK_MS_MOST ? part + 1 : LOOK_MS_MOST) * MS;
}

/* Reads those of a ring's launches, of which `first` is the newest. Only the thread removes launches. */
static void read_heartbeats(struct context_ring *r, struct flight *first)
{
	for (struct flight *f = first; f && !r->ring.broken; f = f->next)
		if (f->beats.warps && !f->ended)
			heartbeats_read(&f->beats, &r->ring);
}

void flights_watch(struct context_ring *r, struct flight *first)
{
	if (!options.no_progress_ms || clock_ns() < flights.look_ns)
		return;
	read_heartbeats(r, first);
	flights.look_ns = clock_ns() + between_looks();
}

/* The least time (ns) for which a launch did not move, of those that have begun, or of those that have not. */
static uint64_t least_still(bool begun)
{
	uint64_t least = UINT64_MAX;

	for (struct context_ring *r = flights.rings; r; r = r->next)
		for (const struct flight *f = r->flights; f; f = f->next) {
			uint64_t still = f->beats.read_ns - f->beats.still_ns;
			if (f->beats.warps && !f->ended && f->beats.begun == begun && still < least)
				least = still;
		}
	return least;
}

/* Launches that have not begun may wait for one that has. */
void flights_note_still(void)
{
	uint64_t still = options.no_progress_ms ? least_still(true) : UINT64_MAX;

	if (options.no_progress_ms && still == UINT64_MAX)
		still = least_still(false);
	atomic_store(&flights.still_ns, still);
}

static bool any_silent(const struct flight *first)
{
	for (const struct flight *f = first; f; f = f->next)
		if (!f->ended && heartbeats_silent(&f->beats))
			return true;
	return false;
}

static void tell(struct json *j, const struct flight *first)
{
	for (const struct flight *f = first; f; f = f->next) {
		if (!f->beats.warps || f->ended || !f->submitted)
			continue;
		json_open(j, '{');
		json_member_u64(j, "seq", f->seq);
		json_member_u64(j, "launch", f->index);
		heartbeats_json(&f->beats, j);
		json_close(j, '}');
	}
}

void flights_answer(void)
{
	struct json j;

	json_begin(&j, NULL, NULL);
	json_open(&j, '[');
	for (struct context_ring *r = flights.rings; r; r = r->next) {
		struct flight *first = r->flights;
		if (!first || r->ring.broken)
			continue;
		flights.busy = r;
		pthread_mutex_unlock(&flights.lock);
		if (context_push(r->context->handle)) {
			for (int i = 0; i < READINGS || (i < READINGS_MOST && any_silent(first)); i++) {
				if (i)
					nanosleep(&(struct timespec){.tv_nsec = BETWEEN_NS}, NULL);
				flights_look(r, first);
				read_heartbeats(r, first);
			}
			tell(&j, first);
			context_pop();
		}
		pthread_mutex_lock(&flights.lock);
		flights.busy = NULL;
	}
	json_close(&j, ']');
	free(flights.told);
	flights.told = json_text(&j) ? strdup(json_text(&j)) : NULL;
	json_free(&j);
	flights.asked = false;
	pthread_cond_broadcast(&flights.changed);
}

char *flights_warps(uint64_t wait_ns)
{
	uint64_t until = clock_ns() + wait_ns;
	char *told = NULL;

	if (!heartbeats_wanted() || pthread_mutex_trylock(&flights.lock))
		return NULL;
	flights.asked = flights.running && !flights.stopping;
	pthread_cond_broadcast(&flights.changed);
	while (flights.asked && clock_ns() < until) {
		pthread_mutex_unlock(&flights.lock);
		nanosleep(&(struct timespec){.tv_nsec = FLIGHT_POLL_NS}, NULL);
		pthread_mutex_lock(&flights.lock);
	}
	if (!flights.asked) {
		told = flights.told;
		flights.told = NULL;
	}
	pthread_mutex_unlock(&flights.lock);
	return told;
}

uint64_t flights_still(void)
{
	return atomic_load(&flights.still_ns);
}
