/*
 * Keeps memory of zeros. See zeros.h for the invariant.
 */
#include "instrument/zeros.h"

#include <stdlib.h>

#define MOST_BYTES ((uint64_t)64 << 20)

struct zeros_piece {
	struct zeros_piece *next;
	struct memory memory;
};

static bool clear(const struct ring *r, const struct memory *m)
{
	return real.cuMemsetD8Async(m->device, 0, m->size, r->stream) == CUDA_SUCCESS;
}

bool zeros_take(struct zeros *z, struct ring *r, struct memory *m, uint64_t bytes)
{
	for (struct zeros_piece **link = &z->clean, *p; (p = *link); link = &p->next) {
		if (p->memory.size != bytes)
			continue;
		*link = p->next;
		*m = p->memory;
		z->bytes -= bytes;
		free(p);
		return true;
	}
	atomic_store(&z->wanted, true);
	return memory_on_device(r->context, m, bytes) && clear(r, m) && real.cuStreamSynchronize(r->stream) == CUDA_SUCCESS;
}

void zeros_give(struct zeros *z, struct ring *r, struct memory *m)
{
	struct zeros_piece *p = m->size && !r->broken ? calloc(1, sizeof(*p)) : NULL;

	if (!p) {
		memory_free(r->context, m);
		return;
	}
	p->memory = *m;
	p->next = z->dirty;
	z->dirty = p;
	*m = (struct memory){0};
}

void zeros_clear(struct zeros *z, struct ring *r, bool idle)
{
	if (!idle && !atomic_exchange(&z->wanted, false))
		return;
	for (struct zeros_piece *p; (p = z->dirty);) {
		z->dirty = p->next;
		if (clear(r, &p->memory)) {
			p->next = z->cleaning;
			z->cleaning = p;
		} else {
			memory_free(r->context, &p->memory);
			free(p);
		}
	}
	if (z->cleaning && real.cuStreamSynchronize(r->stream) != CUDA_SUCCESS)
		r->broken = true;
}

/* Frees the oldest ones. */
static void shrink(struct zeros *z, struct ring *r)
{
	struct zeros_piece **link = &z->clean;
	uint64_t kept = 0;

	while (*link && kept + (*link)->memory.size <= MOST_BYTES) {
		kept += (*link)->memory.size;
		link = &(*link)->next;
	}
	for (struct zeros_piece *p = *link, *next; p; p = next) {
		next = p->next;
		memory_free(r->context, &p->memory);
		free(p);
	}
	*link = NULL;
	z->bytes = kept;
}

void zeros_cleared(struct zeros *z, struct ring *r)
{
	for (struct zeros_piece *p; !r->broken && (p = z->cleaning);) {
		z->cleaning = p->next;
		p->next = z->clean;
		z->clean = p;
		z->bytes += p->memory.size;
	}
	if (z->bytes > MOST_BYTES)
		shrink(z, r);
}

void zeros_end(struct zeros *z, struct ring *r, bool gone)
{
	struct zeros_piece *lists[] = {z->clean, z->cleaning, z->dirty};

	for (unsigned i = 0; i < sizeof(lists) / sizeof(*lists); i++)
		for (struct zeros_piece *p = lists[i], *next; p; p = next) {
			next = p->next;
			if (!gone)
				memory_free(r->context, &p->memory);
			free(p);
		}
	*z = (struct zeros){.wanted = false};
}
