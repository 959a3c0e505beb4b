/*
 * Multicast objects: one address for the memory of several devices.
 *
 * Invariant: a mapped multicast object is no region. Only special instructions may read there. Its
 * memory is a region where it is mapped directly.
 */
#ifndef TT_HOOKS_MULTICAST_H
#define TT_HOOKS_MULTICAST_H

#include "hooks/op.h"

bool multicast_is(CUmemGenericAllocationHandle h);
/* The driver returned the handle for other memory: it reuses handles of released objects. */
void multicast_is_not(CUmemGenericAllocationHandle h);

#endif
