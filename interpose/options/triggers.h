/*
 * The triggers of epochs, and the epochs that store contents: TT_EPOCH and TT_CONTENTS.
 *
 * A list is separated by commas, but an expression extends to the end of its list, commas included. Semicolons
 * separate several lists. A window applies to all of them.
 */
#ifndef TT_OPTIONS_TRIGGERS_H
#define TT_OPTIONS_TRIGGERS_H

#include <regex.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* POSIX extended expressions, of which one must match. */
struct expressions {
	regex_t *list;
	size_t count, room;
};

struct triggers {
	bool sync, copy, graph;
	bool window;           /* only from launch `first` to launch `last`, counted from 1; 0: before all */
	uint64_t first, last;
	uint32_t launch; /* after every Nth launch, from `first` on; 0: never */
	struct expressions kernel, nvtx, inside; /* inside: kernels in graphs */
};

/* At most one of none, changed and all, or else the other two. */
struct stored_contents {
	bool none, always;
	uint32_t every;          /* the first epoch of a context and each Nth after it; 0: not given */
	struct expressions nvtx; /* epochs inside these ranges, and at these marks */
};

/* False with a one-line reason. */
bool triggers_read(struct triggers *o, const char *text, char *why, size_t size);
bool contents_read(struct stored_contents *c, const char *text, char *why, size_t size);
void triggers_free(struct triggers *o);

/* False with a one-line reason, which begins with `form`. */
bool expressions_add(struct expressions *e, const char *form, const char *expression, size_t length, char *why, size_t size);
void expressions_free(struct expressions *e);
bool expressions_match(const struct expressions *e, const char *text);

#endif
