/*
 * Module images: what they are, how long they are, which variables they declare.
 *
 * Invariant: an image comes from the program and may be anything; nothing here reads outside
 * the bytes it was given, and an image that is not understood simply has no names.
 */
#ifndef TT_STATE_IMAGE_H
#define TT_STATE_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct image {
	uint32_t kind; /* enum tt_module_kind */
	const void *bytes;
	size_t size;
};

/* What a pointer given to cuModuleLoadData and its kin leads to; size 0 where it can't be told. */
struct image image_identify(const void *pointer);

/* Finds what expands compressed images. To load a library may wait for other threads that do so, and
 * must not be left to when a lock is held. */
void image_prepare(void);

/* The names of the variables in device memory that it declares, each handed to visit once or more. */
void image_variables(const struct image *image, void (*visit)(void *user, const char *name), void *user);

#endif
