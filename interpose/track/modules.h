/*
 * Modules and libraries, by the program's handles. functions.h has their functions.
 *
 * Invariant: a module has a record in the run since its loading, or since its first launch if its
 * image lasts until then.
 */
#ifndef TT_TRACK_MODULES_H
#define TT_TRACK_MODULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format.h"
#include "track/streams.h"

/* A variable of a module; address 0: it is not there. */
struct variable {
	CUdeviceptr address;
	size_t size;
	bool managed;
};

/* What the program had the driver load: an image or a file, and how. */
struct loading {
	const void *image;
	const char *path;
	const struct tt_setting *settings;
	uint32_t setting_count;
};

/* The recording has begun: what was loaded before is part of it. */
void modules_begin(void);
/* Returns the module id, TT_NO_ID on failure. library: handle is a CUlibrary. */
uint32_t module_loaded(const struct context *c, void *handle, bool library, const struct loading *l, uint64_t seq);
/* Returns the contexts that it had variables in, as context_bit has them. */
uint64_t module_unloaded(void *handle, uint64_t seq);
/* The program took a library's module: a second handle of the same. */
void module_alias(const struct context *c, void *library, void *module, uint64_t seq);
/* The program asked for a variable: it is a region from now on. */
void module_variable(struct context *c, void *module, bool library, const char *name, struct variable v, uint64_t seq);

/* The program took a texture or surface reference out of a module: its kernels may use it. */
void module_reference(void *module);
bool module_has_references(uint32_t id);
#endif
