/*
 * The flight recorder: epochs stay in the ring, and the oldest are dropped for newer ones.
 *
 * Invariant: kept epochs can be read. Epochs are dropped in whole groups, a snapshot and the epochs
 * that depend on it. Dropped epochs reach the files in order, as records without contents. The
 * capture lock is held.
 */
#include <string.h>

#include "capture/drain.h"
#include "options/options.h"
#include "capture/capture.h"
#include "util/vector.h"

static void take_first(struct capture *p, size_t n)
{
	p->kept_count -= n;
	memmove(p->kept, p->kept + n, p->kept_count * sizeof(*p->kept));
}

/* The capture of another context with the oldest epoch before this number. */
static struct capture *oldest_before(uint32_t number, const struct capture *but)
{
	struct capture *found = NULL;

	for (struct context *c = context_first(); c; c = c->next) {
		struct capture *p = c->capture;
		if (p && p != but && !p->broken && p->kept_count && p->kept[0].epoch.number < number) {
			number = p->kept[0].epoch.number;
			found = p;
		}
	}
	return found;
}

/*
 * Epochs are stored in the order of their numbers, in whatever context. Older epochs of other contexts are stored
 * first, with their contents.
 */
static bool hand_on(const struct capture *p, const struct pending *q)
{
	struct capture *other;
	bool any = false;

	while ((other = oldest_before(q->epoch.number, p))) {
		drain_add(&other->kept[0]);
		take_first(other, 1);
		any = true;
	}
	bool ok = drain_add(q);
	return any ? drain_flush() && ok : ok;
}

void flight_settled(struct capture *p, const struct tt_capture_status *s)
{
	for (size_t i = p->kept_count; i-- > 0;)
		if (!p->kept[i].read) {
			capture_take_status(&p->kept[i], s);
			return;
		}
}

static void drop_first(struct capture *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct pending *q = &p->kept[i];
		if (!q->refused) {
			q->epoch.flags = (q->epoch.flags & TT_EPOCHF_LOOSE) | TT_EPOCHF_DROPPED;
			atomic_store(&p->tail, q->status.position + q->status.size);
		}
		q->refused = q->final = q->read = true;
		hand_on(p, q);
	}
	take_first(p, n);
}

/* Number of epochs in the oldest group. */
static size_t first_group(const struct capture *p)
{
	size_t n = 1;

	while (n < p->kept_count && !(p->kept[n].epoch.flags & TT_EPOCHF_FULL))
		n++;
	return n;
}

bool flight_drop_group(struct capture *p)
{
	size_t n = first_group(p);

	if (n >= p->kept_count)
		return false;
	drop_first(p, n);
	return true;
}

bool flight_keep(struct capture *p, const struct pending *q)
{
	if (!make_room(&p->kept, &p->kept_capacity, p->kept_count, 1, sizeof(*p->kept))) {
		flight_dump(p);
		bool ok = hand_on(p, q);
		drain_flush(); /* before anything else moves the ring's tail */
		return ok;
	}
	p->kept[p->kept_count++] = *q;
	if (!q->read) {
		struct pending watch = {.capture = p, .epoch = q->epoch, .slot = q->slot, .final = true, .watch = true};
		drain_add(&watch);
	}
	while (options.retain && p->kept_count && p->kept_count - first_group(p) >= options.retain)
		flight_drop_group(p);
	return true;
}

bool flight_make_room(struct capture *p, uint64_t size)
{
	if (size > p->ring.size)
		return false;
	while (p->kept_count && !capture_fits(p, size, size))
		drop_first(p, first_group(p));
	return capture_fits(p, size, size) || drain_flush();
}

void flight_dump(struct capture *p)
{
	for (size_t i = 0; i < p->kept_count; i++)
		hand_on(p, &p->kept[i]);
	p->kept_count = 0;
}

void flight_drop_all(struct capture *p)
{
	for (size_t i = 0; i < p->kept_count; i++)
		region_list_release(p->kept[i].list);
	p->kept_count = 0;
}
