/*
 * Module images: their kind, their size, and the variables that they declare.
 *
 * Invariant: an image comes from the program and may contain anything. Nothing here reads outside of it. An image
 * that is not understood has no names.
 */
#ifndef TT_TRACK_IMAGE_H
#define TT_TRACK_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct image {
	uint32_t kind; /* enum tt_module_kind */
	const void *bytes;
	size_t size;
};

/*
 * The image at a pointer given to cuModuleLoadData and similar calls, or in a file of at most that many bytes plus
 * a NUL. Size 0: unknown or truncated.
 */
#define IMAGE_IN_MEMORY ((size_t)PTRDIFF_MAX) /* only the image itself says where it ends */
struct image image_identify(const void *pointer, size_t most);

/* Whether an image that no driver has accepted yet can be read up to its stated size. */
bool image_readable(const void *pointer);

/* An entry of a fatbin. */
struct image_entry {
	uint32_t kind;   /* TT_MODULE_PTX, TT_MODULE_CUBIN, TT_MODULE_UNKNOWN */
	unsigned capability;  /* compute capability of its devices: 90 is 9.0 */
	bool exact;   /* other devices can't run it */
	const uint8_t *begin;  /* including its header */
	size_t header, size;  /* bytes of the header, and after it */
	size_t packed, expanded; /* bytes of its code; packed 0: not compressed */
	uint64_t flags;
};
#define IMAGE_COMPRESSED 0xa000u

/* Iterates over a fatbin's entries; *at is 0 at first. False: the end, or invalid. */
bool image_entry(const struct image *image, size_t *at, struct image_entry *e);
/* Its code, which the caller frees; NULL: cannot be decoded. */
uint8_t *image_expand(const struct image_entry *e, size_t *size);

/*
 * Loads the libraries that decode compressed images. To load a library may wait for other threads, so do it without
 * locks.
 */
void image_prepare(void);

/* Calls visit with the name of each variable in device memory, once or more. False: no memory. */
bool image_variables(const struct image *image, void (*visit)(void *user, const char *name), void *user);

#endif
