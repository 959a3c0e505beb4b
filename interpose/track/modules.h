/*
 * Modules and libraries, by the program's handles. functions.h has their functions.
 *
 * Invariant: a module has a record in the run since its loading, or since its first launch if its image lasts until
 * then.
 */
#ifndef TT_TRACK_MODULES_H
#define TT_TRACK_MODULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format.h"
#include "track/streams.h"

/* A variable of a module; address 0: not there. */
struct variable {
	CUdeviceptr address;
	size_t size;
	bool managed;
};

/* What the program had the driver load: an image or a file, and the options. */
struct loading {
	const void *image;
	const char *path;
	const struct tt_setting *settings;
	uint32_t setting_count;
};

/* Recording begins: writes records of modules that are already loaded. */
void modules_begin(void);
/* Returns the module id, TT_NO_ID on failure. library: handle is a CUlibrary. */
uint32_t module_loaded(const struct context *c, void *handle, bool library, const struct loading *l, uint64_t seq);
/* Returns context_bit of the contexts in which it had variables. *id: its module id, TT_NO_ID if it is unknown. */
uint64_t module_unloaded(void *handle, uint64_t seq, uint32_t *id);
/* The program got a library's module: a second handle of the library. */
void module_alias(const struct context *c, void *library, void *module, uint64_t seq);
/* The program looked up a variable: it becomes a region. */
void module_variable(struct context *c, void *module, bool library, const char *name, struct variable v, uint64_t seq);

/* The program got a texture or surface reference from a module: its kernels may use it. */
void module_reference(void *module);
bool module_has_references(uint32_t id);
#endif
