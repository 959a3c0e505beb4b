/*
 * Names of parts of a region. The present names are kept, so that repeating a name writes nothing.
 *
 * Invariant: the parts of a region ascend and do not overlap. The caller holds the regions' lock.
 */
#ifndef TT_TRACK_LABELS_H
#define TT_TRACK_LABELS_H

#include <stdbool.h>
#include <stdint.h>

struct labels; /* of one region; NULL where no part has a name */

/* Bytes [begin, end) of a region. */
struct label {
	uint64_t begin, end;
	uint64_t start;      /* where begin lies in what has the name */
	uint32_t name, type; /* strings; a name of TT_NO_ID: the part has none */
};

/* Puts it in the place of what it overlaps: 1, or 0 where it was there already, or -1 without memory for it. */
int labels_set(struct labels **of, const struct label *l);
void labels_free(struct labels *of);
/* Whether this is so of any part's name. */
bool labels_any(const struct labels *of, bool (*is)(uint32_t name, void *to), void *to);

/* As store_string, but for "" none, and without a look at the file for texts that came before. */
uint32_t labels_string(const char *text);

#endif
