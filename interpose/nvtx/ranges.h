/*
 * Open ranges: nested ranges of a thread, and ranges that may end in another thread.
 *
 * Invariant: the levels of a thread are right at any time, recorded or not. Memory is bounded: with
 * too many open ranges the levels stay right, but the ranges are unknown.
 */
#ifndef TT_NVTX_RANGES_H
#define TT_NVTX_RANGES_H

#include "format.h"
#include "nvtx/texts.h"

/* What was said before recording began, to be written when it does. */
struct early {
	uint32_t kind;
	struct tt_event event; /* without its texts */
	unsigned domain;
	nvtx_handle registered; /* where it is not 0: the message */
	char message[];
};

struct range {
	struct early *early; /* NULL once it is written */
	unsigned domain;
	int level; /* from 0, in its domain */
	struct text text;
};

/* For what will be written if recording begins; NULL where it is too much. */
struct early *ranges_early(const char *message);

/* early: NULL, or is taken over. Gives the level. */
int ranges_push(unsigned domain, struct text text, struct early *early);
/* False: the domain has no open range in this thread. The caller frees r->early. */
bool ranges_pop(unsigned domain, struct range *r);
/* This thread's name; taken over. */
void ranges_name(struct early *name);

/* Hands each early one of this thread to write, which says what became of its text. */
bool ranges_are_early(void);
void ranges_settle(struct text (*write)(const struct early *));

/* Ranges that end anywhere: what is known of one is forgotten when too many others are open. */
void ranges_started(uint64_t id, unsigned domain, struct text text);
bool ranges_ended(uint64_t id, unsigned *domain, struct text *text);

#endif
