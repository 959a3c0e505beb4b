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

/* An annotation before recording began, to be written when it does. */
struct early {
	uint32_t kind;
	struct tt_event event; /* without its texts */
	unsigned domain;
	nvtx_handle registered; /* the message, if not 0 */
	char message[];
};

struct range {
	struct early *early; /* NULL once it is written */
	unsigned domain;
	int level; /* from 0, in its domain */
	struct text text;
};

/* For an annotation that is written if recording begins; NULL: too many. */
struct early *ranges_early(const char *message);

/* early: NULL, or owned by the range. Returns the level. */
int ranges_push(unsigned domain, struct text text, struct early *early);
/* False: the domain has no open range in this thread. The caller frees r->early. */
bool ranges_pop(unsigned domain, struct range *r);
/* This thread's name; takes it over. */
void ranges_name(struct early *name);

/* Calls write for each early annotation of this thread; it returns the text in the run. */
bool ranges_are_early(void);
void ranges_settle(struct text (*write)(const struct early *));

/* A range, or a mark, begins and ends for --contents. The end comes after its epoch. */
void ranges_entered(struct text text);
void ranges_left(struct text text);

/* Ranges that may end anywhere: an old one is forgotten when too many others are open. */
void ranges_started(uint64_t id, unsigned domain, struct text text);
bool ranges_ended(uint64_t id, unsigned *domain, struct text *text);

#endif
