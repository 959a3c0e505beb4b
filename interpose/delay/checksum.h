/*
 * The checksum of a kernel's code in a cubin, as ttanalyze/code/elf.py has it: equal wherever
 * the code is.
 *
 * Invariant: nothing outside the image is read, whatever the image says.
 */
#ifndef TT_DELAY_CHECKSUM_H
#define TT_DELAY_CHECKSUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* text: number of the section with the kernel's instructions. False: it can't be told. */
bool kernel_checksum(const void *cubin, size_t size, uint32_t text, uint64_t *checksum);

#endif
