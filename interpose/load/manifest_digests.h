/*
 * The digests in a manifest, which are nearly all of its text.
 *
 * The toolkit reads this file too. It ignores preprocessor directives.
 */
#ifndef TT_LOAD_MANIFEST_DIGESTS_H
#define TT_LOAD_MANIFEST_DIGESTS_H

#include <stdint.h>

/* One item per digest, and one per object with digests: how many it has, and its place in the text. */
struct tt_manifest_digests {
	uint32_t *regions;
	uint64_t *digests;
	uint32_t *counts;
	uint64_t *begins;
	uint64_t *ends;
	uint64_t objects; /* written, as is what all others point to */
};

#define TT_MANIFEST_PAIR 20   /* fewer bytes than a digest has in the text */
#define TT_MANIFEST_OBJECT 30 /* and than an object with digests has */

/*
 * Takes the digests out of a text, puts the number of each object with digests in its place, and returns the new
 * size. Leaves the text as it is and returns 0 if digests are not written as the recorder writes them:
 * without spaces and escapes, by ascending region.
 */
uint64_t tt_manifest_digests(char *text, uint64_t size, struct tt_manifest_digests *found);

#endif
