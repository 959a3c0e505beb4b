/*
 * Messages and names of domains: their offset in the run, and whether they trigger an epoch.
 *
 * Invariant: memory is bounded, whatever the program does. A recent message is found without a lock
 * and without an allocation. No handle is used as a pointer.
 */
#ifndef TT_NVTX_TEXTS_H
#define TT_NVTX_TEXTS_H

#include <stdbool.h>

#include "nvtx_abi.h"

/* A message as the run has it. */
struct text {
	uint32_t offset; /* string, TT_NO_ID where it has none */
	bool chosen;     /* --epoch nvtx: is for it */
};

/* While recording. NULL: no message. */
struct text texts_find(unsigned domain, const char *message);

/* A domain by its handle. 0 is the default one. */
unsigned texts_domain(nvtx_handle handle);
nvtx_handle texts_create_domain(const char *name);
/* Its name's string, TT_NO_ID where it has none. While recording. */
uint32_t texts_domain_name(unsigned domain);

nvtx_handle texts_register(unsigned domain, const char *message, bool recording);
/* While recording. */
struct text texts_registered(nvtx_handle handle);
/* Of one that was registered before recording began, else NULL. */
const char *texts_registered_early(nvtx_handle handle);

/* Another tool returned the handle `theirs` for `ours`; both name the text from then on. */
void texts_also(nvtx_handle theirs, nvtx_handle ours);

/* UTF-8, cut off where it is too long. NULL for NULL. */
#define TEXTS_WIDE 4096
const char *texts_narrow(const wchar_t *wide, char to[TEXTS_WIDE]);

#endif
