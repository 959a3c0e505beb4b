/*
 * Texture and surface objects of the program: handles through which kernels reach memory without a
 * pointer.
 */
#ifndef TT_TRACK_VIEWS_H
#define TT_TRACK_VIEWS_H

#include <stddef.h>
#include <stdint.h>

#include "format.h"
#include "track/streams.h"

/* Created and destroyed in a context. kind: enum tt_view_kind. */
void view_made(const struct context *c, uint32_t kind, uint64_t object, const CUDA_RESOURCE_DESC *d);
void view_gone(const struct context *c, uint32_t kind, uint64_t object);
/* The objects of a context whose handles are among the 8-byte words of a launch's parameters, at most `most`. */
uint32_t views_named(const struct context *c, const uint8_t *params, size_t size, struct tt_view *out, uint32_t most);

#endif
