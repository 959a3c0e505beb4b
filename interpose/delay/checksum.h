/*
 * The checksum of a kernel's code in a cubin: the same as in ttanalyze/code/cubin.py, equal for
 * equal code.
 */
#ifndef TT_DELAY_CHECKSUM_H
#define TT_DELAY_CHECKSUM_H

#include <stdbool.h>
#include <stdint.h>

#include "sass/cubin.h"

/* text: number of the section with the kernel's instructions. False: unknown. */
bool kernel_checksum(const struct cubin *c, uint32_t text, uint64_t *checksum);

#endif
