/*
 * The functions for modules, and those of another tool that they call.
 */
#ifndef TT_NVTX_FUNCTIONS_H
#define TT_NVTX_FUNCTIONS_H

#include <stdatomic.h>

#include "nvtx_abi.h"

/* By part and number of the function; NULL: not intercepted. */
extern nvtx_function *const nvtx_ours[NVTX_PARTS][NVTX_FUNCTIONS];
extern nvtx_function *_Atomic nvtx_theirs[NVTX_PARTS][NVTX_FUNCTIONS];

#endif
