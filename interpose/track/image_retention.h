/*
 * The image of a module from its loading until it is stored in the run, or dropped.
 *
 * Invariant: a kept image is readable, or retained_bytes says that it no longer is. Images in a loaded
 * object file are permanent and are not copied.
 */
#ifndef TT_TRACK_IMAGE_RETENTION_H
#define TT_TRACK_IMAGE_RETENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "track/image.h"

struct retained_image {
	struct image image; /* size 0: no image */
	void *copy;         /* the recorder's copy, if one is needed */
	const void *object; /* the loaded object file that contains it */
	uint32_t missing;   /* enum tt_missing: why there is no image */
};

/* What the driver was given: an image in memory, or a file of at most `most` bytes. */
void retained_from_memory(struct retained_image *h, const void *image);
void retained_from_file(struct retained_image *h, const char *path, size_t most);
/* Keeps the image until the module is unloaded. False: no memory. */
bool retained_keep(struct retained_image *h);
/* The image; NULL: no longer readable. */
const void *retained_bytes(const struct retained_image *h);
void retained_release(struct retained_image *h);

#endif
