/*
 * Puts wrappers between the program and the driver: dlsym, cuGetProcAddress, direct symbols.
 *
 * Invariant: a program gets the wrapper exactly where the driver would have returned the wrapped call. Otherwise it
 * gets the answer of the driver or the C library. Nothing here records anything.
 */
#ifndef TT_ENTRY_ENTRY_H
#define TT_ENTRY_ENTRY_H

#include "driver/driver.h"

/* Called before a program gets a call that registers it with CUPTI; NULL: no callback. */
extern void (*_Atomic entry_cupti_taken)(void);
/*
 * Replaces a function by which a module that uses NVTX registers with another tool; NULL: the tool has none. nvtx/
 * defines it; modules look it up before any constructor could register it.
 */
void *entry_nvtx_tool(const char *name, void *theirs);

/* Whether the recorder is the program's first library: then entry_inject is not needed. */
bool entry_preloaded(void);
/* Installs the wrappers in the driver's stubs; NULL, or why that is impossible. */
const char *entry_inject(void);
/*
 * Has CUPTI call the wrappers around the program's calls; NULL, or why that is impossible. Such a wrapper can't change
 * a call: `changed` is called once for each that tried to.
 */
const char *entry_follow(void (*changed)(const char *call));

/* The loaded CUPTI, or one from the system, beside other CUDA libraries, or from the toolkit; NULL: none. */
void *cupti_find_library(void);

/* Calls without a wrapper and not in PASS_TABLE, as NAME:VERSION:FLAGS. */
#define ENTRY_UNKNOWN_MAX 64
unsigned entry_unknown_calls(const char *const **list);

#endif
