/*
 * Images with delays that the driver loads in place of the program's modules.
 *
 * Invariant: if there is no such image, or if the driver refuses it, the program's own image is
 * loaded.
 */
#ifndef TT_HOOKS_DELAYED_MODULES_H
#define TT_HOOKS_DELAYED_MODULES_H

#include "track/modules.h"

/* Returns an image that the caller frees, or NULL where the module is to be loaded as it is. */
void *delayed_image(const struct loading *l);
/* The driver refused it, and had another answer, or the same, to the module as it is. */
void delayed_refused(CUresult refused, CUresult as_it_is);

#endif
