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
	_Atomic bool stamps;  /* times of graph nodes */
	_Atomic bool touched; /* capture only regions that were touched */
	_Atomic uint32_t storing; /* open NVTX ranges for which epochs store contents; changes without the lock */
	uint32_t snapshot_every;
	uint32_t choice; /* number of the last choice of regions; 0: all regions */
	uint32_t text;   /* string: all settings; 0 if none was ever changed */
};
extern struct controls controls;

/* Initial settings from the options. */
void controls_begin(void);
/*
 * The caller holds the capture lock, or recording is starting. False: *why has a one-line reason, and nothing
 * changed.
 */
bool controls_set(const char *text, char *why, size_t size);
/* Records an event with the settings. */
void controls_note(void);
/* Whether the settings choose this region. The caller holds the capture lock. */
bool controls_want(struct region *r);
/* Whether only regions with names were wanted, and none ever had one. */
bool controls_lack_names(void);

#endif
