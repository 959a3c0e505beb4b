/*
 * Settings that the program can change while it runs, with tt_control, and their initial values
 * from TT_CONTROL. They apply to all later epochs and graph launches. options/control_text.h
 * describes their text.
 *
 * Invariant: they change only under the capture lock. So an epoch, or a graph launch with epochs,
 * has one set of settings, which its record names.
 */
#ifndef TT_CAPTURE_CONTROLS_H
#define TT_CAPTURE_CONTROLS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct region;

struct controls {
	_Atomic bool points;  /* epochs inside graphs */
	_Atomic bool stamps;  /* times of their nodes */
	_Atomic bool touched; /* regions: of those, only what was touched */
	uint32_t snapshot_every;
	uint32_t choice; /* number of what was said last of regions; 0: all of them */
	uint32_t text;   /* string: all of it; 0 where nothing was ever said */
};
extern struct controls controls;

/* As the recording starts, from the options. */
void controls_begin(void);
/* The caller holds the capture lock; or it begins. False with a one-line reason, and nothing has changed. */
bool controls_set(const char *text, char *why, size_t size);
/* An event says what is set. */
void controls_note(void);
/* Whether the region is among those asked for. The caller holds the capture lock. */
bool controls_want(struct region *r);

#endif
