/*
 * Births, deaths and names of regions. See regions.h for the invariant.
 */
#include "track/regions.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "options/options.h"
#include "session/session.h"
#include "track/region_map.h"

#define TAIL_ALIGN 256 /* of every address that the driver allocates */
#define MANY 256       /* regions that are sorted in passes over all */

_Atomic bool regions_managed;

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
	pthread_mutex_lock(&regions.spare_lock);
	r->next = regions.spare;
	regions.spare = r;
	pthread_mutex_unlock(&regions.spare_lock);
}

static struct region *region_new(void)
{
	pthread_mutex_lock(&regions.spare_lock);
	struct region *r = regions.spare;
	if (r)
		regions.spare = r->next;
	pthread_mutex_unlock(&regions.spare_lock);
	if (!r)
		return calloc(1, sizeof(*r));
	atomic_store(&r->touched, false);
	atomic_store(&r->captured_by, 0);
	memset((char *)r + offsetof(struct region, id), 0, sizeof(*r) - offsetof(struct region, id));
	return r;
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
			 (options.deterministic && r->kind != TT_REGION_ARENA && r->kind != TT_REGION_ZONE ? TT_REGIONF_UNSTABLE
													   : 0),
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

/* Allocations of the driver's: with --zones the bytes from their end to the next multiple of TAIL_ALIGN are a zone. */
static bool has_tail(const struct region *r)
{
	return options.zones && (r->kind == TT_REGION_DEVICE || r->kind == TT_REGION_MANAGED || r->kind == TT_REGION_ASYNC);
}

static bool is_tail(const struct region *r, const struct region *tail)
{
	return has_tail(r) && tail->kind == TT_REGION_ZONE && tail->base == r->base + r->size;
}

/* With its tail. */
static void remove_at(size_t i, const struct region_origin *o)
{
	struct region *r = entries()[i].region;

	region_map_remove(i);
	atomic_store(&r->alive, false);
	record(r, TT_REGION_DIED, o);
	session_listeners.region_gone(r);
	atomic_fetch_add(&regions.version, 1);
	size_t next = next_region(i + 1, r->base + r->size + 1);
	if (next != SIZE_MAX && is_tail(r, entries()[next].region))
		remove_at(next, o);
	region_release(r);
}

/* The caller holds the lock. */
static uint32_t add(struct region *r, const struct region_origin *origin)
{
	size_t i;

	while ((i = first_region(r->base, r->base + r->size)) != SIZE_MAX)
		remove_at(i, origin);
	r->id = regions.next_id;
	if (!region_map_add(r))
		return TT_NO_ID;
	regions.next_id++;
	record(r, TT_REGION_BORN, origin);
	atomic_fetch_add(&regions.version, 1);
	return r->id;
}

/* No allocation begins there, as all begin at a multiple. The driver's memory is not ours to fill. */
static void bear_tail(const struct region *r, const struct region_origin *origin)
{
	struct region_origin tail = *origin;
	uint64_t end = r->base + r->size, size = -end % TAIL_ALIGN;

	pthread_mutex_lock(&regions.lock);
	bool known = first_region(end, end + size) != SIZE_MAX;
	pthread_mutex_unlock(&regions.lock);
	tail.label = TT_NO_ID;
	tail.flags |= TT_REGIONF_UNSTABLE; /* --zones implies --deterministic */
	if (size && !known)
		region_born(r->context, TT_REGION_ZONE, end, size, TT_NO_ID, &tail);
}

static bool is_captured(uint32_t kind)
{
	/* An epoch that reads tails of managed memory has to wait as one that reads all of it. */
	if (options.regions == REGIONS_ZONES)
		return kind == TT_REGION_ZONE || kind == TT_REGION_MANAGED;
	return kind < TT_REGION_HOST || (kind == TT_REGION_ARRAY ? options.arrays : options.host_memory);
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
	r->captured = is_captured(kind);
	r->readable = kind < TT_REGION_HOST && kind != TT_REGION_VMM;
	if (r->captured && region_host_writes(r))
		atomic_store(&regions_managed, true);
	r->fresh = true;
	r->touched = true;
	r->alive = true;
	r->references = 1;
	r->module = module;
	region_hold(r);
	pthread_mutex_lock(&regions.lock);
	uint32_t id = add(r, origin);
	pthread_mutex_unlock(&regions.lock);
	if (id == TT_NO_ID) {
		region_release(r);
		session_fail("no host memory for a region");
	} else if (has_tail(r)) {
		bear_tail(r, origin);
	}
	region_release(r);
	return id;
}

bool region_died(uint64_t base, const struct region_origin *origin)
{
	pthread_mutex_lock(&regions.lock);
	size_t i = first_region(base, base + 1);
	bool found = i != SIZE_MAX && entries()[i].base == base;
	if (found)
		remove_at(i, origin);
	pthread_mutex_unlock(&regions.lock);
	return found;
}

bool region_ended(struct region *r, const struct region_origin *origin)
{
	pthread_mutex_lock(&regions.lock);
	size_t i = first_region(r->base, r->base + 1);
	bool found = i != SIZE_MAX && entries()[i].region == r;
	if (found)
		remove_at(i, origin);
	pthread_mutex_unlock(&regions.lock);
	return found;
}

static uint64_t end_where(bool (*gone)(const struct region *, const void *), const void *what,
			  const struct region_origin *origin)
{
	uint64_t contexts = 0;

	pthread_mutex_lock(&regions.lock);
	for (size_t i = next_region(0, UINT64_MAX); i != SIZE_MAX; i = next_region(i + 1, UINT64_MAX))
		if (gone(entries()[i].region, what)) {
			contexts |= context_bit(entries()[i].region->context);
			remove_at(i, origin);
		}
	pthread_mutex_unlock(&regions.lock);
	return contexts;
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

uint64_t regions_died_of_module(uint32_t module, const struct region_origin *origin)
{
	return end_where(of_module, &module, origin);
}

bool region_label(uint64_t address, const struct region_origin *origin)
{
	pthread_mutex_lock(&regions.lock);
	size_t i = first_region(address, address + 1);
	bool found = i != SIZE_MAX;
	if (found)
		record(entries()[i].region, TT_REGION_LABEL, origin);
	pthread_mutex_unlock(&regions.lock);
	return found;
}

/* Labels the part of these bytes that lies in one region. Returns as labels_set. */
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

	pthread_mutex_lock(&regions.lock);
	for (size_t i = first_region(address, end); i != SIZE_MAX && done >= 0; i = next_region(i + 1, end)) {
		struct label label = {.name = labels_string(name), .type = labels_string(type)};
		done = label_in(entries()[i].region, address, end, label, seq);
		found = true;
	}
	pthread_mutex_unlock(&regions.lock);
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

	pthread_mutex_lock(&regions.lock);
	if (r->judged != choice) {
		r->called = (r->label != TT_NO_ID && name_is(r->label, &n)) || labels_any(r->labels, name_is, &n);
		r->judged = choice;
	}
	bool called = r->called;
	pthread_mutex_unlock(&regions.lock);
	return called;
}

struct region *region_find(uint64_t address)
{
	struct region *r = NULL;

	pthread_mutex_lock(&regions.lock);
	size_t i = first_region(address, address + 1);
	if (i != SIZE_MAX) {
		r = entries()[i].region;
		region_hold(r);
	}
	pthread_mutex_unlock(&regions.lock);
	return r;
}

struct context *region_context(uint64_t address)
{
	struct region *r = region_find(address);
	struct context *c = r ? r->context : NULL;

	if (r)
		region_release(r);
	return c;
}

void regions_set_readable(uint64_t base, uint64_t size, bool value)
{
	pthread_mutex_lock(&regions.lock);
	for (size_t i = first_region(base, base + size); i != SIZE_MAX; i = next_region(i + 1, base + size))
		entries()[i].region->readable = value;
	atomic_fetch_add(&regions.version, 1);
	pthread_mutex_unlock(&regions.lock);
}

void regions_touch_all(struct context *c)
{
	pthread_mutex_lock(&regions.lock);
	for (size_t i = next_region(0, UINT64_MAX); i != SIZE_MAX; i = next_region(i + 1, UINT64_MAX))
		if (entries()[i].region->context == c)
			atomic_store(&entries()[i].region->touched, true);
	pthread_mutex_unlock(&regions.lock);
}

void regions_unplace(struct context *c)
{
	pthread_mutex_lock(&regions.lock);
	for (size_t i = next_region(0, UINT64_MAX); i != SIZE_MAX; i = next_region(i + 1, UINT64_MAX)) {
		struct region *r = entries()[i].region;
		if (r->context == c) {
			r->placed = false;
			r->fresh = true;
		}
	}
	pthread_mutex_unlock(&regions.lock);
}

struct ordered {
	uint32_t id;
	struct region *region;
};

/* Sorts by one byte of the id; the order of equal ones stays. */
static void sort_by_byte(struct ordered *to, const struct ordered *from, size_t n, unsigned shift)
{
	size_t at[257] = {0};

	for (size_t i = 0; i < n; i++)
		at[(from[i].id >> shift & 255) + 1]++;
	for (unsigned i = 0; i < 256; i++)
		at[i + 1] += at[i];
	for (size_t i = 0; i < n; i++)
		to[at[from[i].id >> shift & 255]++] = from[i];
}

/* Four passes over copies of the ids: a comparison of two regions would read both from memory. */
static bool sort_many(struct region **list, size_t n)
{
	struct ordered *one = malloc(2 * n * sizeof(*one)), *other = one + n;

	if (!one)
		return false;
	for (size_t i = 0; i < n; i++)
		one[i] = (struct ordered){list[i]->id, list[i]};
	for (unsigned shift = 0; shift < 32; shift += 16) {
		sort_by_byte(other, one, n, shift);
		sort_by_byte(one, other, n, shift + 8);
	}
	for (size_t i = 0; i < n; i++)
		list[i] = one[i].region;
	free(one);
	return true;
}

static int by_id(const void *a, const void *b)
{
	uint32_t x = (*(struct region *const *)a)->id, y = (*(struct region *const *)b)->id;

	return (x > y) - (x < y);
}

void regions_sort(struct region **list, size_t n)
{
	if (n < MANY || !sort_many(list, n))
		qsort(list, n, sizeof(*list), by_id);
}

bool regions_unchanged(uint64_t version, uint32_t next)
{
	pthread_mutex_lock(&regions.lock);
	bool same = version == atomic_load(&regions.version);
	if (same)
		session_set_next_epoch(next);
	pthread_mutex_unlock(&regions.lock);
	return same;
}

struct region **regions_live(struct context *c, uint32_t next, uint64_t *version, size_t *live, bool *managed)
{
	pthread_mutex_lock(&regions.lock);
	session_set_next_epoch(next);
	*version = atomic_load(&regions.version);
	struct region **list = malloc((regions.count + 1) * sizeof(*list));
	size_t n = 0;
	*managed = false;
	for (size_t i = next_region(0, UINT64_MAX); list && i != SIZE_MAX; i = next_region(i + 1, UINT64_MAX)) {
		struct region *r = entries()[i].region;
		if (r->context != c || !r->captured || !r->readable)
			continue;
		*managed |= region_host_writes(r);
		region_hold(r);
		list[n++] = r;
	}
	pthread_mutex_unlock(&regions.lock);
	if (list)
		regions_sort(list, n);
	*live = n;
	return list;
}

void regions_forget_all(void)
{
	pthread_mutex_init(&regions.lock, NULL);
	region_map_forget();
}
