/*
 * Bases: for each, an epoch of a context from which its memory can be rebuilt, and the segment that
 * begins there or before. An epoch belongs to one context, so a full epoch of one says nothing
 * about another. See retain.h for the invariant.
 */
#include "store/retain.h"

#include <stdbool.h>
#include <stdlib.h>

#include "util/vector.h"

struct retain_context {
	uint32_t context;
	uint32_t live;    /* captured regions */
	uint32_t emptied; /* first epoch without regions, while live is 0; TT_NO_EPOCH: none yet */
	bool based;       /* some epoch can be rebuilt */
};

struct retain_base {
	uint32_t context, epoch, segment;
};

static struct retain_context *context_of(struct retain *t, uint32_t context)
{
	for (size_t i = 0; i < t->context_count; i++)
		if (t->contexts[i].context == context)
			return t->contexts + i;
	if (!make_room(&t->contexts, &t->context_room, t->context_count, 1, sizeof(*t->contexts))) {
		t->blind = true;
		return NULL;
	}
	t->contexts[t->context_count] = (struct retain_context){.context = context, .emptied = TT_NO_EPOCH};
	return &t->contexts[t->context_count++];
}

static void add_base(struct retain *t, uint32_t context, uint32_t epoch, uint32_t segment)
{
	if (make_room(&t->bases, &t->base_room, t->base_count, 1, sizeof(*t->bases)))
		t->bases[t->base_count++] = (struct retain_base){context, epoch, segment};
	else
		t->blind = true;
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

	if (!c || (e->flags & TT_EPOCHF_REFUSED) || e->segment == TT_NO_SEGMENT)
		return;
	if ((e->flags & (TT_EPOCHF_FULL | TT_EPOCHF_DROPPED)) == TT_EPOCHF_FULL || !c->based)
		add_base(t, e->context, e->number, e->segment);
	c->based = true;
}

/* The newest base of a context from which epochs after `first` can be rebuilt, else its oldest. */
static const struct retain_base *base_for(const struct retain *t, uint32_t context, uint32_t first)
{
	const struct retain_base *best = NULL;

	for (size_t i = 0; i < t->base_count; i++) {
		const struct retain_base *b = t->bases + i;
		if (b->context == context &&
		    (!best || (b->epoch <= first ? best->epoch > first || b->epoch >= best->epoch : b->epoch < best->epoch)))
			best = b;
	}
	return best;
}

/* `epoch` only grows: nothing before a context's base is needed later. */
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
