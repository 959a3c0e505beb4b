/*
 * Limits the disk space of a run.
 *
 * Contents of epochs stop first, so that later records still have room. When that is used up too,
 * files stop growing, as on a full disk.
 *
 * Invariant: the free space is checked again after at most DISK_GRANT bytes, because others may
 * fill the disk.
 */
#ifndef TT_STORE_DISK_H
#define TT_STORE_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/folder.h"

#define DISK_GRANT ((uint64_t)64 << 20)
#define DISK_KEEP_FREE UINT64_MAX /* as a limit: some of the file system stays free */

enum disk_use { DISK_CONTENTS, DISK_RECORDS };

/* most: limit of the whole run directory in bytes; 0: none; or DISK_KEEP_FREE. */
void disk_limit(const struct folder *run, uint64_t most);
/* Whether files of the run may grow by `size` bytes; if so, counts these. */
bool disk_take(enum disk_use use, uint64_t size);
/* Writes the reason why they may not. */
void disk_explain(char *out, size_t size);

#endif
