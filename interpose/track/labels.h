/*
 * Names of parts of a region. The current names are kept, so that repeating a name writes nothing.
 *
 * Invariant: the parts of a region ascend and do not overlap. The caller holds the regions' lock.
 */
#ifndef TT_TRACK_LABELS_H
#define TT_TRACK_LABELS_H

#include <stdbool.h>
#include <stdint.h>

struct labels; /* of one region; NULL: no part has a name */

/* Bytes [begin, end) of a region. */
struct label {
	uint64_t begin, end;
	uint64_t start;      /* offset of begin in the named object */
	uint32_t name, type; /* string offsets; name TT_NO_ID: no name */
};

/* Replaces what it overlaps. 1: changed; 0: it was there already; -1: no memory. */
int labels_set(struct labels **of, const struct label *l);
void labels_free(struct labels *of);
/* Whether `is` holds for the name of any part. */
bool labels_any(const struct labels *of, bool (*is)(uint32_t name, void *to), void *to);

/* As store_string, but "" has no string, and recent texts are found without reading the file. */
uint32_t labels_string(const char *text);

#endif
