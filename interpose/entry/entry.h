/*
 * Puts wrappers between the program and the driver: dlsym, cuGetProcAddress, direct symbols.
 *
 * Invariant: a program gets our wrapper exactly where the driver would have returned the wrapped
 * call. Otherwise it gets the answer of the driver or the C library. Nothing here records anything.
 */
#ifndef TT_ENTRY_ENTRY_H
#define TT_ENTRY_ENTRY_H

#include "driver/driver.h"

/* Called before a program is given one of CUPTI's calls that take it over; NULL: no callback. */
extern void (*_Atomic entry_cupti_taken)(void);
/*
 * Instead of the function by which a module that uses NVTX gives itself to another tool. nvtx/ defines it:
 * modules ask before any constructor of ours could register it.
 */
void *entry_nvtx_tool(void *theirs);

/* Loaded before the program, as its first library: no need for the second door. */
bool entry_preloaded(void);
/* The second door; NULL, or why it is closed. */
const char *entry_inject(void);

/* What the driver returned for them is neither one of ours nor passed through knowingly, as NAME:VERSION:FLAGS. */
#define ENTRY_UNKNOWN_MAX 64
unsigned entry_unknown_calls(const char *const **list);

#endif
