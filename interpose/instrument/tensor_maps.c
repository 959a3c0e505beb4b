/*
 * Remembers tensor maps until a launch is traced. See tensor_maps.h for the invariant.
 */
#include "instrument/tensor_maps.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "instrument/plan.h"
#include "session/session.h"
#include "util/xxh3.h"

#define SLOTS 65536 /* a power of two */
#define MOST (SLOTS / 2)

_Static_assert(sizeof(CUtensorMap) == sizeof(((struct tt_tensor_map *)0)->map), "the bytes of a map");

static struct {
	pthread_mutex_t lock;
	struct tt_tensor_map *all;
	uint32_t count, written, room;
	uint32_t slots[SLOTS]; /* numbers from 1, by the bytes of the map */
} maps = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool are_wanted(void)
{
	return plan_asked() & 1u << TT_TRACE_TMA;
}

/* Where a map is or may be. Caller holds the lock. */
static uint32_t *find(const void *map)
{
	uint64_t at = xxh3_64(map, sizeof(CUtensorMap));

	while (maps.slots[at % SLOTS] && memcmp(maps.all[maps.slots[at % SLOTS] - 1].map, map, sizeof(CUtensorMap)) != 0)
		at++;
	return &maps.slots[at % SLOTS];
}

/* Caller holds the lock. */
static bool make_room(void)
{
	uint32_t room = maps.room ? 2 * maps.room : 64;

	if (maps.count < maps.room)
		return true;
	struct tt_tensor_map *more = maps.room < MOST ? realloc(maps.all, room * sizeof(*more)) : NULL;
	if (!more)
		return false;
	maps.all = more;
	maps.room = room;
	return true;
}

/* Caller holds the lock. */
static void add(const CUtensorMap *map, struct tt_tensor_map *made)
{
	uint32_t *slot = find(map);

	if (*slot)
		return;
	if (!make_room()) {
		session_lost("tensor maps are not noted any more: there are too many");
		return;
	}
	memcpy(made->map, map, sizeof(made->map));
	maps.all[maps.count++] = *made;
	*slot = maps.count;
}

void tensor_map_encoded(const CUtensorMap *map, struct tt_tensor_map *made)
{
	if (!are_wanted())
		return;
	pthread_mutex_lock(&maps.lock);
	add(map, made);
	pthread_mutex_unlock(&maps.lock);
}

void tensor_map_moved(const CUtensorMap *before, const CUtensorMap *after, uint64_t address)
{
	if (!are_wanted())
		return;
	pthread_mutex_lock(&maps.lock);
	uint32_t known = *find(before);
	if (known) {
		struct tt_tensor_map made = maps.all[known - 1];
		made.address = address;
		add(after, &made);
	}
	pthread_mutex_unlock(&maps.lock);
}

void tensor_maps_write(void)
{
	pthread_mutex_lock(&maps.lock);
	while (maps.written < maps.count && store_tensor_map(session_store(), &maps.all[maps.written]))
		maps.written++;
	pthread_mutex_unlock(&maps.lock);
}

void tensor_maps_forget(void)
{
	pthread_mutex_init(&maps.lock, NULL);
	maps.written = 0; /* the child may have a run of its own */
}
