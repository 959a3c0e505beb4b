/*
 * Puts delays into cubins.
 *
 * Invariant: the new cubin does what the old one does, only later. If that is not certain, there is
 * no new cubin.
 */
#ifndef TT_DELAY_IMAGE_H
#define TT_DELAY_IMAGE_H

#include <stddef.h>
#include <stdint.h>

/* A cubin with the delays, which the caller frees; NULL: load it unchanged. */
uint8_t *delay_cubin(const void *image, size_t size, size_t *new_size);

#endif
