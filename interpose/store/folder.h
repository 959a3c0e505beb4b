/*
 * The directories of a run.
 *
 * Invariant: files are created, read and removed only in the directory that was found or made first, so a user who
 * can write to a parent directory cannot replace it. It is opened again for each use, because programs close
 * descriptors. Functions return false or -1 with errno.
 */
#ifndef TT_STORE_FOLDER_H
#define TT_STORE_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

struct folder {
	char *path; /* without links; NULL: none */
	uint64_t device, inode;
	uint32_t owner;
};

/* An existing directory. */
bool folder_find(struct folder *d, const char *path);
/* An existing directory in another. */
bool folder_below(struct folder *d, const struct folder *in, const char *name);
/* A new directory in another, for its owner only. */
bool folder_make(struct folder *d, const struct folder *in, const char *name);
int folder_open(const struct folder *d);
bool folder_unlink(const struct folder *d, const char *name);
void folder_free(struct folder *d);

#endif
