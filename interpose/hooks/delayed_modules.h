/*
 * Images with delays that the driver loads in place of the program's modules.
 *
 * Invariant: if there is no such image, or if the driver refuses it, the program's own image is
 * loaded.
 */
#ifndef TT_HOOKS_DELAYED_MODULES_H
#define TT_HOOKS_DELAYED_MODULES_H

#include "track/modules.h"

/* An image with delays, which the caller frees; NULL: load the module unchanged. */
void *delayed_image(const struct loading *l);
/* The driver refused that image; as_it_is: its result for the unchanged module. */
void delayed_refused(CUresult refused, CUresult as_it_is);

#endif
