/*
 * Event slots. See events.h for the invariant.
 */
#define _GNU_SOURCE
#include "store/event_slots.h"

#include <stdatomic.h>
#include <stdio.h>

#include "store/mapped.h"
#include "util/clock.h"
#include "util/visit.h"

#define RUN_BYTES (EVENTS_RUN * sizeof(struct tt_event))
#define LEFTOVERS 4096                  /* unused rests of runs, from ended threads */
#define DESTRUCTOR_ROUNDS 3                       /* thread destructors run in a few rounds; later ones might not call ours */

__thread struct cursor events_cursor __attribute__((tls_model("initial-exec")));
HOT_DATA _Atomic uint32_t events_generation;

static struct {
	struct mapped slots;
	_Atomic uint64_t lost;
	pthread_mutex_t lock;          /* guards the following members */
	TAILQ_HEAD(, cursor) cursors; /* of this generation */
	uint32_t generations;
	struct {
		struct tt_event *next, *end;
	} leftovers[LEFTOVERS];
	_Atomic size_t leftover_count;
	uint64_t abandoned, final_count;
	pthread_key_t at_thread_end;
	bool key_made;
} events = {.lock = PTHREAD_MUTEX_INITIALIZER};

bool events_failed(char *text, size_t size)
{
	return mapped_failed(&events.slots, text, size);
}

/* ---- claiming ---- */

/* Slots of the run that are not given out yet. */
static uint64_t rest(const struct cursor *c)
{
	const struct tt_event *next = __atomic_load_n(&c->next, __ATOMIC_RELAXED);

	if (!next)
		return 0;
	return -(uint64_t)(next - (const struct tt_event *)(events.slots.base + TT_FILE_HEADER_SIZE)) % EVENTS_RUN;
}

static void take(struct cursor *c, struct tt_event *next, struct tt_event *end)
{
	c->end = end;
	__atomic_store_n(&c->next, next, __ATOMIC_RELAXED);
}

/* The next thread gets the rest of the ended thread's run: threads may be many and short. */
static void thread_ended(void *value)
{
	struct cursor *c = value;

	pthread_mutex_lock(&events.lock);
	if (c->generation && c->generation == atomic_load(&events_generation)) {
		if (c->next != c->end && events.leftover_count < LEFTOVERS) {
			events.leftovers[events.leftover_count].next = c->next;
			events.leftovers[events.leftover_count++].end = c->end;
		} else {
			events.abandoned += rest(c);
		}
		TAILQ_REMOVE(&events.cursors, c, link);
	}
	take(c, NULL, NULL);
	c->generation = 0;
	c->destructor_runs++;
	pthread_mutex_unlock(&events.lock);
}

static bool enlist(struct cursor *c, uint32_t current)
{
	if (c->destructor_runs >= DESTRUCTOR_ROUNDS || pthread_setspecific(events.at_thread_end, c))
		return false;
	pthread_mutex_lock(&events.lock);
	if (atomic_load(&events_generation) == current) {
		take(c, NULL, NULL);
		c->generation = current;
		TAILQ_INSERT_TAIL(&events.cursors, c, link);
	}
	pthread_mutex_unlock(&events.lock);
	return c->generation == current;
}

static bool take_leftover(struct cursor *c, uint32_t current)
{
	bool taken = false;

	if (!atomic_load_explicit(&events.leftover_count, memory_order_relaxed))
		return false;
	pthread_mutex_lock(&events.lock);
	if (events.leftover_count && atomic_load(&events_generation) == current) {
		events.leftover_count--;
		take(c, events.leftovers[events.leftover_count].next, events.leftovers[events.leftover_count].end);
		taken = true;
	}
	pthread_mutex_unlock(&events.lock);
	return taken;
}

static bool take_run(struct cursor *c)
{
	struct tt_event *run = mapped_claim(&events.slots, RUN_BYTES);

	if (run)
		take(c, run, run + EVENTS_RUN);
	return run;
}

__attribute__((cold)) struct tt_event *events_claim(struct cursor *c)
{
	uint32_t current = atomic_load(&events_generation);
	struct tt_event *e = NULL;

	if (!current)
		return NULL;
	struct visit v = visit_begin();
	if ((c->generation == current || enlist(c, current)) && (take_leftover(c, current) || take_run(c))) {
		e = c->next;
		take(c, e + 1, c->end);
	} else if (atomic_load(&events_generation)) {
		atomic_fetch_add(&events.lost, 1);
	}
	visit_end(v);
	return e;
}

HOT struct tt_event *events_next(void)
{
	return event_slot();
}

HOT void events_publish(struct tt_event *e, uint32_t kind)
{
	event_commit(e, kind);
}

static uint64_t claimed(void)
{
	return (atomic_load(&events.slots.claimed) - TT_FILE_HEADER_SIZE) / sizeof(struct tt_event);
}

/* Caller holds the lock. */
static uint64_t count_now(void)
{
	uint64_t n = claimed() - events.abandoned;

	for (struct cursor *c = TAILQ_FIRST(&events.cursors); c; c = TAILQ_NEXT(c, link))
		n -= rest(c);
	for (size_t i = 0; i < events.leftover_count; i++)
		n -= (uint64_t)(events.leftovers[i].end - events.leftovers[i].next);
	return n;
}

uint64_t events_count(void)
{
	uint64_t n;

	pthread_mutex_lock(&events.lock);
	n = atomic_load(&events_generation) ? count_now() : events.final_count;
	pthread_mutex_unlock(&events.lock);
	return n;
}

static void visit_all(const struct tt_event *from, const struct tt_event *to,
		      void (*visit)(const struct tt_event *e, uint32_t kind, void *to), void *what)
{
	for (const struct tt_event *e = from; e < to; e++) {
		uint32_t kind = __atomic_load_n(&e->kind, __ATOMIC_ACQUIRE);
		if (kind)
			visit(e, kind, what);
	}
}

void events_recent(size_t most, void (*visit)(const struct tt_event *e, uint32_t kind, void *to), void *to)
{
	const struct tt_event *first = (const struct tt_event *)(events.slots.base + TT_FILE_HEADER_SIZE);

	if (!events.slots.base)
		return;
	uint64_t end = claimed(), begin = end > most ? end - most : 0;
	visit_all(first + begin, first + end, visit, to);
	if (!lock_within(&events.lock, 20))
		return;
	/* A thread with few calls has an old run. */
	for (struct cursor *c = TAILQ_FIRST(&events.cursors); c; c = TAILQ_NEXT(c, link)) {
		const struct tt_event *next = __atomic_load_n(&c->next, __ATOMIC_RELAXED);
		if (!next)
			continue;
		const struct tt_event *run = first + (uint64_t)(next - 1 - first) / EVENTS_RUN * EVENTS_RUN;
		visit_all(run, next < first + begin ? next : first + begin, visit, to);
	}
	pthread_mutex_unlock(&events.lock);
}

uint64_t events_lost(void)
{
	return atomic_load(&events.lost);
}

/* ---- open and close ---- */

static void start_anew(void)
{
	atomic_store(&events.lost, 0);
	atomic_store(&events.leftover_count, 0);
	events.abandoned = events.final_count = 0;
	TAILQ_INIT(&events.cursors);
}

bool events_open(const struct folder *folder, char *error, size_t error_size)
{
	struct visit v = visit_begin();
	bool good = false;

	pthread_mutex_lock(&events.lock);
	if (atomic_load(&events_generation)) {
		snprintf(error, error_size, "%s/events.bin: events are being recorded already", folder->path);
	} else if (!events.key_made && pthread_key_create(&events.at_thread_end, thread_ended)) {
		snprintf(error, error_size, "%s/events.bin: no thread-specific key left", folder->path);
	} else {
		events.key_made = true;
		start_anew();
		good = mapped_open(&events.slots, folder, "events.bin", TT_FILE_EVENTS, sizeof(struct tt_event), "tt-events",
				   error, error_size);
		if (good)
			atomic_store(&events_generation, ++events.generations);
	}
	pthread_mutex_unlock(&events.lock);
	visit_end(v);
	return good;
}

/* Bytes of the file up to the end of the last used slot. */
static uint64_t used_bytes(void)
{
	const struct tt_event *first = (const struct tt_event *)(events.slots.base + TT_FILE_HEADER_SIZE);
	uint64_t n = claimed();

	while (n && !__atomic_load_n(&first[n - 1].kind, __ATOMIC_ACQUIRE))
		n--;
	return TT_FILE_HEADER_SIZE + n * sizeof(*first);
}

void events_close(void)
{
	pthread_mutex_lock(&events.lock);
	if (atomic_exchange(&events_generation, 0)) {
		events.final_count = count_now();
		mapped_close(&events.slots, used_bytes);
	}
	pthread_mutex_unlock(&events.lock);
}

void events_json(struct json *j)
{
	mapped_json(&events.slots, j);
}

void events_forget(void)
{
	mapped_forget(&events.slots);
	atomic_store(&events_generation, 0);
	take(&events_cursor, NULL, NULL);
	events_cursor.generation = 0;
	start_anew();
	pthread_mutex_init(&events.lock, NULL);
}
