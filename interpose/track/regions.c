/*
 * The interval map: a sorted array under a sequence lock. See regions.h for the invariant.
 *
 * Look-ups of the launch path read without a lock and retry when a birth or death moved the
 * array beneath them, so that they read, and it is written, by atomic accesses; arrays that were
 * outgrown are kept, since a reader may still be in one.
 */
#include "track/regions.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "options/options.h"
#include "session/session.h"
#include "util/vector.h"

struct entry {
	uint64_t base, end;
	struct region *region;
};

struct map {
	size_t capacity;
	struct entry entries[];
};

static struct map *_Atomic map;
static _Atomic size_t count;
static _Atomic uint64_t sequence; /* odd while the map changes */
static _Atomic uint64_t lowest = UINT64_MAX, highest; /* of all live regions: most words are no pointers */
static struct region *spare; /* regions are never freed, so that a late mark is harmless */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, spare_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t next_id;
_Atomic bool regions_managed;
static _Atomic uint64_t regions_version; /* changes with every birth, death and access change */

void region_hold(struct region *r)
{
	atomic_fetch_add(&r->references, 1);
}

void region_release(struct region *r)
{
	if (atomic_fetch_sub(&r->references, 1) != 1)
		return;
	free(r->mirror);
	labels_free(r->labels);
	r->mirror = NULL;
	r->labels = NULL;
	pthread_mutex_lock(&spare_lock);
	r->next_spare = spare;
	spare = r;
	pthread_mutex_unlock(&spare_lock);
}

static struct region *region_new(void)
{
	pthread_mutex_lock(&spare_lock);
	struct region *r = spare;
	if (r)
		spare = r->next_spare;
	pthread_mutex_unlock(&spare_lock);
	if (!r)
		return calloc(1, sizeof(*r));
	atomic_store(&r->touched, false);
	atomic_store(&r->captured_by, 0);
	memset((char *)r + offsetof(struct region, id), 0, sizeof(*r) - offsetof(struct region, id));
	return r;
}

static struct entry *entries(void)
{
	struct map *m = atomic_load_explicit(&map, memory_order_acquire);

	return m ? m->entries : NULL;
}

static uint64_t base_of(const struct entry *e)
{
	return __atomic_load_n(&e->base, __ATOMIC_RELAXED);
}

static uint64_t end_of(const struct entry *e)
{
	return __atomic_load_n(&e->end, __ATOMIC_RELAXED);
}

static struct region *region_of(const struct entry *e)
{
	return __atomic_load_n(&e->region, __ATOMIC_RELAXED);
}

/* Release: who reads any of it sees that the map changes. */
static void put(struct entry *to, uint64_t base, uint64_t end, struct region *r)
{
	__atomic_store_n(&to->base, base, __ATOMIC_RELEASE);
	__atomic_store_n(&to->end, end, __ATOMIC_RELEASE);
	__atomic_store_n(&to->region, r, __ATOMIC_RELEASE);
}

static void move(struct entry *to, const struct entry *from)
{
	put(to, from->base, from->end, from->region);
}

/* Index of the first entry whose end lies above address. */
static size_t lower(const struct entry *m, size_t n, uint64_t address)
{
	size_t low = 0;

	while (n) {
		size_t half = n / 2;
		if (end_of(&m[low + half]) <= address) {
			low += half + 1;
			n -= half + 1;
		} else {
			n = half;
		}
	}
	return low;
}

static void record(struct region *r, uint32_t op, const struct region_origin *o)
{
	struct tt_region record = {
		.op = op,
		.id = r->id,
		.base = r->base,
		.size = r->size,
		.kind = r->kind,
		.flags = (r->captured ? TT_REGIONF_CAPTURED : 0) | o->flags |
			 (options.deterministic && r->kind != TT_REGION_ARENA ? TT_REGIONF_UNSTABLE : 0),
		.device = (uint32_t)r->context->device,
		.context = r->context->index,
		.stream = o->stream,
		.seq = o->seq,
		.time_ns = o->time_ns,
		.epoch = session_next_epoch(),
		.label = o->label,
		.call = o->call,
		.module = r->module,
	};
	r->label = op == TT_REGION_DIED ? r->label : o->label;
	r->judged = 0;
	session_region(&record);
}

static void remove_at(size_t i, const struct region_origin *o)
{
	struct entry *m = entries();
	struct region *r = m[i].region;

	atomic_fetch_add(&sequence, 1);
	for (size_t k = i; k + 1 < count; k++)
		move(&m[k], &m[k + 1]);
	atomic_store(&count, count - 1);
	atomic_fetch_add(&sequence, 1);
	atomic_store(&r->alive, false);
	record(r, TT_REGION_DIED, o);
	session_listeners.region_gone(r);
	region_release(r);
	atomic_fetch_add(&regions_version, 1);
}

static bool grow(void)
{
	struct map *m = atomic_load(&map);

	if (m && count < m->capacity)
		return true;
	size_t n = m ? m->capacity * 2 : 1024;
	struct map *bigger = malloc(sizeof(*bigger) + n * sizeof(bigger->entries[0]));
	if (!bigger)
		return false;
	bigger->capacity = n;
	if (m)
		memcpy(bigger->entries, m->entries, count * sizeof(m->entries[0]));
	atomic_store_explicit(&map, bigger, memory_order_release);
	return true;
}

uint32_t region_born(struct context *c, uint32_t kind, uint64_t base, uint64_t size, uint32_t module,
		     const struct region_origin *origin)
{
	struct region *r;

	if (base + size <= base)
		return TT_NO_ID;
	if (!(r = region_new())) {
		session_fail("no host memory for a region");
		return TT_NO_ID;
	}
	r->kind = kind;
	r->base = base;
	r->size = size;
	r->context = c;
	r->captured = kind < TT_REGION_HOST;
	r->readable = kind != TT_REGION_VMM;
	if (kind == TT_REGION_MANAGED)
		atomic_store(&regions_managed, true);
	r->fresh = true;
	r->touched = true;
	r->alive = true;
	r->references = 1;
	r->module = module;
	pthread_mutex_lock(&lock);
	size_t i = lower(entries(), count, base);
	while (i < count && entries()[i].base < base + size)
		remove_at(i, origin);
	if (!grow()) {
		pthread_mutex_unlock(&lock);
		region_release(r);
		session_fail("no host memory for a region");
		return TT_NO_ID;
	}
	struct entry *m = entries();
	uint32_t id = r->id = next_id++;
	atomic_fetch_add(&sequence, 1);
	for (size_t k = count; k > i; k--)
		move(&m[k], &m[k - 1]);
	put(&m[i], base, base + size, r);
	atomic_store(&count, count + 1);
	if (base < lowest)
		atomic_store(&lowest, base);
	if (base + size > highest)
		atomic_store(&highest, base + size);
	atomic_fetch_add(&sequence, 1);
	record(r, TT_REGION_BORN, origin);
	atomic_fetch_add(&regions_version, 1);
	pthread_mutex_unlock(&lock);
	return id;
}

bool region_died(uint64_t base, const struct region_origin *origin)
{
	pthread_mutex_lock(&lock);
	size_t i = lower(entries(), count, base);
	bool found = i < count && entries()[i].base == base;
	if (found)
		remove_at(i, origin);
	pthread_mutex_unlock(&lock);
	return found;
}

void region_ended(struct region *r, const struct region_origin *origin)
{
	pthread_mutex_lock(&lock);
	size_t i = lower(entries(), count, r->base);
	if (i < count && entries()[i].region == r)
		remove_at(i, origin);
	pthread_mutex_unlock(&lock);
}

static void end_where(bool (*gone)(const struct region *, const void *), const void *what, const struct region_origin *origin)
{
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < count;)
		if (gone(entries()[i].region, what))
			remove_at(i, origin);
		else
			i++;
	pthread_mutex_unlock(&lock);
}

static bool of_context(const struct region *r, const void *context)
{
	return r->context == context;
}

static bool of_module(const struct region *r, const void *module)
{
	return r->module == *(const uint32_t *)module;
}

void regions_died_of_context(struct context *c, const struct region_origin *origin)
{
	end_where(of_context, c, origin);
}

void regions_died_of_module(uint32_t module, const struct region_origin *origin)
{
	end_where(of_module, &module, origin);
}

bool region_label(uint64_t address, const struct region_origin *origin)
{
	pthread_mutex_lock(&lock);
	size_t i = lower(entries(), count, address);
	bool found = i < count && entries()[i].base <= address;
	if (found)
		record(entries()[i].region, TT_REGION_LABEL, origin);
	pthread_mutex_unlock(&lock);
	return found;
}

/* What of these bytes lies in one region. As labels_set. */
static int label_in(struct region *r, uint64_t address, uint64_t end, struct label label, uint64_t seq)
{
	label.begin = address > r->base ? address - r->base : 0;
	label.end = (end < r->base + r->size ? end : r->base + r->size) - r->base;
	label.start = r->base + label.begin - address;
	int changed = labels_set(&r->labels, &label);
	if (changed > 0)
		r->judged = 0;
	if (changed > 0)
		store_label(session_store(), &(struct tt_label){
						     .region = r->id,
						     .label = label.name,
						     .offset = label.begin,
						     .size = label.end - label.begin,
						     .start = label.start,
						     .seq = seq,
						     .epoch = session_next_epoch(),
						     .type = label.type,
					     });
	return changed;
}

bool regions_label(uint64_t address, uint64_t size, const char *name, const char *type, uint64_t seq)
{
	uint64_t end = size < UINT64_MAX - address ? address + size : UINT64_MAX;
	bool found = false;
	int done = 0;

	pthread_mutex_lock(&lock);
	for (size_t i = lower(entries(), count, address); i < count && entries()[i].base < end && done >= 0; i++) {
		struct label label = {.name = labels_string(name), .type = labels_string(type)};
		done = label_in(entries()[i].region, address, end, label, seq);
		found = true;
	}
	pthread_mutex_unlock(&lock);
	if (done < 0)
		session_fail("no host memory for a label");
	return found;
}

struct naming {
	bool (*is)(const char *name, void *to);
	void *to;
};

static bool name_is(uint32_t name, void *to)
{
	const struct naming *n = to;
	char *text = store_text(session_store(), name);
	bool is = text && n->is(text, n->to);

	free(text);
	return is;
}

bool region_is_called(struct region *r, bool (*is)(const char *name, void *to), void *to, uint32_t choice)
{
	struct naming n = {is, to};

	pthread_mutex_lock(&lock);
	if (r->judged != choice) {
		r->called = (r->label != TT_NO_ID && name_is(r->label, &n)) || labels_any(r->labels, name_is, &n);
		r->judged = choice;
	}
	bool called = r->called;
	pthread_mutex_unlock(&lock);
	return called;
}

struct region *region_find(uint64_t address)
{
	struct region *r = NULL;

	pthread_mutex_lock(&lock);
	size_t i = lower(entries(), count, address);
	if (i < count && entries()[i].base <= address) {
		r = entries()[i].region;
		region_hold(r);
	}
	pthread_mutex_unlock(&lock);
	return r;
}

void regions_set_readable(uint64_t base, uint64_t size, bool value)
{
	pthread_mutex_lock(&lock);
	for (size_t i = lower(entries(), count, base); i < count && entries()[i].base < base + size; i++)
		entries()[i].region->readable = value;
	atomic_fetch_add(&regions_version, 1);
	pthread_mutex_unlock(&lock);
}

/* Without a lock: repeated where the map changed meanwhile. A mark on a region that ended and
 * whose place is another's by now makes the next epoch read that one too, and no more. */
void regions_touch(uint64_t base, uint64_t size)
{
	uint64_t before;

	if (base + size <= atomic_load_explicit(&lowest, memory_order_relaxed) ||
	    base >= atomic_load_explicit(&highest, memory_order_relaxed))
		return;
	do {
		while ((before = atomic_load_explicit(&sequence, memory_order_acquire)) & 1)
			continue;
		struct map *m = atomic_load_explicit(&map, memory_order_acquire);
		size_t n = atomic_load_explicit(&count, memory_order_acquire);
		if (n > m->capacity)
			continue;
		for (size_t i = lower(m->entries, n, base); i < n && base_of(&m->entries[i]) < base + size; i++)
			atomic_store_explicit(&region_of(&m->entries[i])->touched, true, memory_order_relaxed);
		atomic_thread_fence(memory_order_acquire);
	} while (atomic_load_explicit(&sequence, memory_order_relaxed) != before);
}

void regions_touch_all(struct context *c)
{
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < count; i++)
		if (entries()[i].region->context == c)
			atomic_store(&entries()[i].region->touched, true);
	pthread_mutex_unlock(&lock);
}

void regions_unplace(struct context *c)
{
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < count; i++) {
		struct region *r = entries()[i].region;
		if (r->context == c) {
			r->placed = false;
			r->fresh = true;
		}
	}
	pthread_mutex_unlock(&lock);
}

/* Takes a look at a region; true: that is enough. */
typedef bool visitor(struct region *r, uint32_t value);

/* The regions that words point to; neighbours tend to point into one, which is looked up once. Where that
 * begins which was enough, or 0. */
static inline __attribute__((always_inline)) uint64_t visit_pointed(const void *bytes, size_t size, visitor *visit,
								    uint32_t value)
{
	uint64_t before, word, found;

	do {
		uint64_t from = 0, span = 0; /* the region of the word before */
		while ((before = atomic_load_explicit(&sequence, memory_order_acquire)) & 1)
			continue;
		struct map *m = atomic_load_explicit(&map, memory_order_acquire);
		size_t n = atomic_load_explicit(&count, memory_order_acquire);
		uint64_t first = atomic_load_explicit(&lowest, memory_order_relaxed);
		uint64_t all = atomic_load_explicit(&highest, memory_order_relaxed) - first;
		found = 0;
		if (!m)
			return 0;
		if (n > m->capacity)
			continue;
		for (size_t at = 0; at + 8 <= size && !found; at += 8) {
			memcpy(&word, (const char *)bytes + at, 8);
			if (word - first >= all || word - from < span)
				continue;
			size_t i = lower(m->entries, n, word);
			if (i == n || base_of(&m->entries[i]) > word)
				continue;
			from = base_of(&m->entries[i]);
			span = end_of(&m->entries[i]) - from;
			if (visit(region_of(&m->entries[i]), value))
				found = from;
		}
		atomic_thread_fence(memory_order_acquire);
	} while (atomic_load_explicit(&sequence, memory_order_relaxed) != before);
	return found;
}

static inline bool touch_one(struct region *r, uint32_t unused)
{
	(void)unused;
	if (!atomic_load_explicit(&r->touched, memory_order_relaxed))
		atomic_store_explicit(&r->touched, true, memory_order_relaxed);
	return false;
}

void regions_touch_pointers(const void *bytes, size_t size)
{
	visit_pointed(bytes, size, touch_one, 0);
}

static inline bool is_captured(struct region *r, uint32_t seen)
{
	return (int32_t)(atomic_load_explicit(&r->captured_by, memory_order_relaxed) - seen) > 0;
}

uint64_t regions_point_to_captured(const void *bytes, size_t size, uint32_t seen)
{
	return visit_pointed(bytes, size, is_captured, seen);
}

void regions_gather_begin(struct region_gathering *g)
{
	static uint64_t gatherings;

	pthread_mutex_lock(&lock);
	g->count = 0;
	g->failed = false;
	g->number = ++gatherings;
	g->version = atomic_load(&regions_version);
}

static void gather(struct region_gathering *g, struct region *r)
{
	if (r->gathered == g->number)
		return;
	r->gathered = g->number;
	if (make_room(&g->list, &g->room, g->count, 1, sizeof(*g->list)))
		g->list[g->count++] = r;
	else
		g->failed = true;
}

void regions_gather(struct region_gathering *g, uint64_t base, uint64_t size)
{
	for (size_t i = lower(entries(), count, base); i < count && entries()[i].base < base + size; i++)
		gather(g, entries()[i].region);
}

void regions_gather_pointers(struct region_gathering *g, const void *bytes, size_t size)
{
	uint64_t first = lowest, all = highest - first, word, from = 0, span = 0;

	for (size_t at = 0; at + 8 <= size; at += 8) {
		memcpy(&word, (const char *)bytes + at, 8);
		if (word - first >= all || word - from < span)
			continue;
		size_t i = lower(entries(), count, word);
		if (i == count || entries()[i].base > word)
			continue;
		from = entries()[i].base;
		span = entries()[i].end - from;
		gather(g, entries()[i].region);
	}
}

void regions_gather_end(struct region_gathering *g)
{
	(void)g;
	pthread_mutex_unlock(&lock);
}

bool regions_unchanged_since(uint64_t version)
{
	return version == atomic_load_explicit(&regions_version, memory_order_acquire);
}

bool regions_gathered_still(const struct region_gathering *g)
{
	return regions_unchanged_since(g->version);
}

static int by_id(const void *a, const void *b)
{
	uint32_t x = (*(struct region *const *)a)->id, y = (*(struct region *const *)b)->id;

	return (x > y) - (x < y);
}

void regions_sort(struct region **list, size_t n)
{
	qsort(list, n, sizeof(*list), by_id);
}

uint64_t regions_version_now(void)
{
	return atomic_load_explicit(&regions_version, memory_order_acquire);
}

bool regions_unchanged(uint64_t version, uint32_t next)
{
	pthread_mutex_lock(&lock);
	bool same = version == atomic_load(&regions_version);
	if (same)
		session_set_next_epoch(next);
	pthread_mutex_unlock(&lock);
	return same;
}

struct region **regions_live(struct context *c, uint32_t next, uint64_t *version, size_t *live, bool *managed)
{
	pthread_mutex_lock(&lock);
	session_set_next_epoch(next);
	*version = atomic_load(&regions_version);
	struct region **list = malloc((count + 1) * sizeof(*list));
	size_t n = 0;
	*managed = false;
	for (size_t i = 0; list && i < count; i++) {
		struct region *r = entries()[i].region;
		if (r->context != c || !r->captured || !r->readable)
			continue;
		*managed |= r->kind == TT_REGION_MANAGED;
		region_hold(r);
		list[n++] = r;
	}
	pthread_mutex_unlock(&lock);
	if (list)
		regions_sort(list, n);
	*live = n;
	return list;
}

void regions_forget_all(void)
{
	pthread_mutex_init(&lock, NULL);
	atomic_store(&count, 0);
}
