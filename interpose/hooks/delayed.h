/*
 * What the driver is given to load in place of a module whose kernels are to be late.
 *
 * Invariant: a program that is given nothing else loads what it has; so does one whose changed code
 * the driver refuses.
 */
#ifndef TT_HOOKS_DELAYED_H
#define TT_HOOKS_DELAYED_H

#include "track/modules.h"

/* Returns an image that the caller frees, or NULL where the module is to be loaded as it is. */
void *delayed_image(const struct loading *l);
/* The driver refused it, and had another answer, or the same, to the module as it is. */
void delayed_refused(CUresult refused, CUresult as_it_is);

#endif
