/*
 * When an epoch is due: what TT_EPOCH says.
 *
 * A list with commas, in which an expression takes the rest, commas included; several such lists
 * are separated by semicolons. A window is of all of them.
 */
#ifndef TT_OPTIONS_TRIGGERS_H
#define TT_OPTIONS_TRIGGERS_H

#include <regex.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* POSIX extended ones, of which one has to match. */
struct expressions {
	regex_t *list;
	size_t count, room;
};

struct occasions {
	bool sync, copy, graph;
	bool window;           /* only from launch `first` to launch `last`, counted from 1; 0 = before all */
	uint64_t first, last;
	uint32_t launch; /* after every Nth launch, from `first` on; 0 = never */
	struct expressions kernel, nvtx, inside; /* inside: of graphs */
};

/* False with a one-line reason. */
bool occasions_read(struct occasions *o, const char *text, char *why, size_t size);
void occasions_free(struct occasions *o);

/* False with a one-line reason, which begins with `form`. */
bool expressions_add(struct expressions *e, const char *form, const char *expression, size_t length, char *why, size_t size);
void expressions_free(struct expressions *e);
bool expressions_match(const struct expressions *e, const char *text);

#endif
