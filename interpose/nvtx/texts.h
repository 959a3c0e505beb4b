/*
 * Messages and names of domains: their offset in the run, and whether options name them.
 *
 * Invariant: memory is bounded, whatever the program does. A recent message is found without a lock
 * and without an allocation. No handle is used as a pointer.
 */
#ifndef TT_NVTX_TEXTS_H
#define TT_NVTX_TEXTS_H

#include <stdbool.h>

#include "format.h"
#include "nvtx_abi.h"

/* A message as the run stores it. */
struct text {
	uint32_t offset; /* string; TT_NO_ID: none */
	bool chosen;     /* --epoch nvtx: chooses it */
	bool stores;     /* --contents nvtx: chooses it */
};

#define NO_TEXT ((struct text){.offset = TT_NO_ID})

/* As one number of so many bits. */
#define TEXT_BITS 34
static inline uint64_t text_pack(struct text t)
{
	return t.offset | (uint64_t)t.chosen << 32 | (uint64_t)t.stores << 33;
}

static inline struct text text_unpack(uint64_t value)
{
	return (struct text){(uint32_t)value, value >> 32 & 1, value >> 33 & 1};
}

/* While recording. NULL: no message. */
struct text texts_find(unsigned domain, const char *message);

/* A domain by its handle. 0: the default domain. */
unsigned texts_domain(nvtx_handle handle);
nvtx_handle texts_create_domain(const char *name);
/* The string of its name; TT_NO_ID: none. While recording. */
uint32_t texts_domain_name(unsigned domain);

nvtx_handle texts_register(unsigned domain, const char *message, bool recording);
/* While recording. */
struct text texts_registered(nvtx_handle handle);
/* A message that was registered before recording began, else NULL. */
const char *texts_registered_early(nvtx_handle handle);

/* Another tool returned the handle `theirs` for `ours`; both identify the text from now on. */
void texts_also(nvtx_handle theirs, nvtx_handle ours);

/* As UTF-8, cut if too long. NULL for NULL. */
#define TEXTS_WIDE 4096
const char *texts_narrow(const wchar_t *wide, char to[TEXTS_WIDE]);

#endif
