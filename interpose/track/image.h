/*
 * Module images: their kind, their size, and the variables that they declare.
 *
 * Invariant: an image comes from the program and may contain anything. Nothing here reads outside
 * of it. An image that is not understood has no names.
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
 * What a pointer given to cuModuleLoadData and its kin leads to, or what a file of at most so many bytes
 * and a NUL has; size 0 where that can't be told, and where it is not whole.
 */
#define IMAGE_IN_MEMORY ((size_t)PTRDIFF_MAX) /* nothing says where it ends, but for itself */
struct image image_identify(const void *pointer, size_t most);

/* Whether what a program hands over can be read as far as it says, for which no driver has vouched yet. */
bool image_readable(const void *pointer);

/* One of the codes in a fatbin. */
struct image_entry {
	uint32_t kind;   /* TT_MODULE_PTX, TT_MODULE_CUBIN, TT_MODULE_UNKNOWN */
	unsigned capability;  /* of the devices that it was made for: 90 is 9.0 */
	bool exact;   /* others can't take it */
	const uint8_t *begin;  /* with its header */
	size_t header, size;  /* bytes of that, and of what follows */
	size_t packed, expanded; /* bytes of its code; packed 0: it is not compressed */
	uint64_t flags;
};
#define IMAGE_COMPRESSED 0xa000u

/* Goes through a fatbin's entries: at begins at 0. False at the end, and where they can't be read. */
bool image_entry(const struct image *image, size_t *at, struct image_entry *e);
/* Its code, which the caller frees; NULL where it can't be had. */
uint8_t *image_expand(const struct image_entry *e, size_t *size);

/* Finds what expands compressed images. To load a library may wait for other threads that do so, and
 * must not be left to when a lock is held. */
void image_prepare(void);

/* The names of the variables in device memory that it declares, each handed to visit once or more. False without memory. */
bool image_variables(const struct image *image, void (*visit)(void *user, const char *name), void *user);

#endif
