/*
 * manifest.json: the digests of the process's memory, without times, addresses or paths.
 *
 * Invariant: it depends only on the record files and the rank, so identical work gives identical bytes.
 */
#ifndef TT_STORE_MANIFEST_H
#define TT_STORE_MANIFEST_H

#include "store/file.h"
#include "store/strings.h"

struct manifest_source {
	const struct folder *folder; /* RUN/pN */
	unsigned process;
	const uint32_t *rank; /* NULL: none */
	struct file *regions, *epochs, *digests; /* all flushed */
	struct strings *strings;
	uint32_t oldest_segment; /* data files before this one are deleted */
};

/* Writes manifest.json in the folder. False: with errno. */
bool manifest_write(const struct manifest_source *m);

#endif
