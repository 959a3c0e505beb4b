/*
 * Bases: an epoch of a context from which on its memory can be rebuilt, and the segment that
 * begins there or before. Epochs belong to one context each, so that a full epoch of one says
 * nothing about another's memory. See retain.h for the invariant.
 */
#include "store/retain.h"

#include <stdbool.h>
#include <stdlib.h>

struct retain_context {
	uint32_t context;
	uint32_t live;    /* captured regions */
	uint32_t emptied; /* the first epoch without any, while live is 0; TT_NO_EPOCH: none seen so far */
	bool based;       /* it has an epoch */
};

struct retain_base {
	uint32_t context, epoch, segment;
};

static void *grow(struct retain *t, void *array, size_t count, size_t size)
{
	void *bigger = array;

	/* The room is never less than the next power of two: only at one it can be full. */
	if (!(count & (count - 1)))
		bigger = realloc(array, (count ? count * 2 : 1) * size);
	t->blind |= !bigger;
	return bigger;
}

static struct retain_context *context_of(struct retain *t, uint32_t context)
{
	struct retain_context *bigger;

	for (size_t i = 0; i < t->context_count; i++)
		if (t->contexts[i].context == context)
			return t->contexts + i;
	bigger = grow(t, t->contexts, t->context_count, sizeof(*bigger));
	if (!bigger)
		return NULL;
	t->contexts = bigger;
	bigger += t->context_count++;
	*bigger = (struct retain_context){.context = context, .emptied = TT_NO_EPOCH};
	return bigger;
}

static void add_base(struct retain *t, uint32_t context, uint32_t epoch, uint32_t segment)
{
	struct retain_base *bigger = grow(t, t->bases, t->base_count, sizeof(*bigger));

	if (!bigger)
		return;
	t->bases = bigger;
	t->bases[t->base_count++] = (struct retain_base){context, epoch, segment};
}

void retain_region(struct retain *t, const struct tt_region *r, uint32_t segment)
{
	struct retain_context *c = r->flags & TT_REGIONF_CAPTURED ? context_of(t, r->context) : NULL;

	if (!c)
		return;
	if (r->op == TT_REGION_BORN && !c->live++ && c->based)
		add_base(t, c->context, r->epoch, segment);
	if (r->op == TT_REGION_DIED && c->live && !--c->live)
		c->emptied = r->epoch;
}

void retain_epoch(struct retain *t, const struct tt_epoch *e)
{
	struct retain_context *c = context_of(t, e->context);

	if (!c || (e->flags & TT_EPOCHF_REFUSED))
		return;
	if ((e->flags & (TT_EPOCHF_FULL | TT_EPOCHF_DROPPED)) == TT_EPOCHF_FULL || !c->based)
		add_base(t, e->context, e->number, e->segment);
	c->based = true;
}

/* The newest base of a context that epochs from `first` on can start from, else its oldest. */
static const struct retain_base *base_for(const struct retain *t, uint32_t context, uint32_t first)
{
	const struct retain_base *best = NULL;

	for (size_t i = 0; i < t->base_count; i++) {
		const struct retain_base *b = t->bases + i;
		if (b->context == context &&
		    (!best || (b->epoch <= first ? best->epoch > first || b->epoch >= best->epoch
						 : b->epoch < best->epoch)))
			best = b;
	}
	return best;
}

/* Epochs to keep only move on: what lies before a context's base is never asked for again. */
static void prune(struct retain *t, uint32_t context, uint32_t epoch)
{
	size_t n = 0;

	for (size_t i = 0; i < t->base_count; i++)
		if (t->bases[i].context != context || t->bases[i].epoch >= epoch)
			t->bases[n++] = t->bases[i];
	t->base_count = n;
}

uint32_t retain_oldest(struct retain *t, uint32_t first, uint32_t newest)
{
	uint32_t oldest = t->blind ? 0 : newest;

	for (size_t i = 0; !t->blind && i < t->context_count; i++) {
		const struct retain_context *c = t->contexts + i;
		const struct retain_base *b = base_for(t, c->context, first);
		if (!b || (!c->live && c->emptied <= first))
			continue;
		if (b->segment < oldest)
			oldest = b->segment;
		prune(t, c->context, b->epoch);
	}
	return oldest;
}

void retain_free(struct retain *t)
{
	free(t->contexts);
	free(t->bases);
	*t = (struct retain){0};
}
