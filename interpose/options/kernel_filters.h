/*
 * The choice of kernels by name, for tracing, delays and replays.
 */
#ifndef TT_OPTIONS_KERNEL_FILTERS_H
#define TT_OPTIONS_KERNEL_FILTERS_H

#include <stdbool.h>

#include "options/triggers.h"

/* Whether one of the expressions matches the mangled name, if there are any, and --kernel-filters keeps the kernel. */
bool kernel_is_wanted(const struct expressions *e, const char *mangled);

#endif
