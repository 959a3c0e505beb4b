/*
 * The text of tt_control and TT_CONTROL:
 *
 *   points=on|off  stamps=on|off  regions=all|touched|named|IDS|REGEX  snapshot=N
 *
 * separated by semicolons.
 */
#ifndef TT_OPTIONS_CONTROL_TEXT_H
#define TT_OPTIONS_CONTROL_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* regions: the text, which the caller frees; NULL: not set. */
struct control_settings {
	bool points, stamps;
	uint32_t snapshot_every;
	char *regions;
};

/* Applies the text to *w. False with a one-line reason. */
bool control_read(struct control_settings *w, const char *text, char *why, size_t size);
/* Whether the text is valid; else with a one-line reason. */
bool control_check(const char *text, char *why, size_t size);
/* Whether regions are chosen by an expression for their names. */
bool control_is_expression(const char *regions);

#endif
