/*
 * The text of tt_control and TT_CONTROL:
 *
 *   points=on|off  stamps=on|off  regions=all|touched|IDS|REGEX  snapshot=N
 *
 * separated by semicolons.
 */
#ifndef TT_OPTIONS_CONTROL_TEXT_H
#define TT_OPTIONS_CONTROL_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* regions: as they were given, which the caller frees; NULL: nothing was said of them. */
struct control_settings {
	bool points, stamps;
	uint32_t snapshot_every;
	char *regions;
};

/* Changes what the text names. False with a one-line reason. */
bool control_read(struct control_settings *w, const char *text, char *why, size_t size);
/* Whether text can be understood; else with a one-line reason. */
bool control_check(const char *text, char *why, size_t size);
/* Whether regions are given by an expression of their names. */
bool control_is_expression(const char *regions);

#endif
