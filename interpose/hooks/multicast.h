/*
 * Multicast objects: one address for the memory of several devices.
 *
 * Invariant: what is mapped from one is no region. Only instructions of their own may read there;
 * the memory behind it is a region where it is mapped itself.
 */
#ifndef TT_HOOKS_MULTICAST_H
#define TT_HOOKS_MULTICAST_H

#include "hooks/op.h"

bool multicast_is(CUmemGenericAllocationHandle h);
/* The driver gave the handle out for memory: one of a released object comes back. */
void multicast_is_not(CUmemGenericAllocationHandle h);

#endif
