/*
 * How much of the disk a run may take.
 *
 * Contents of epochs end first, so that there is room left for the records of what follows. Where
 * that is used up as well, files do not grow any more, as on a full disk.
 *
 * Invariant: the disk is looked at again at the latest after DISK_GRANT bytes, whoever else fills it.
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

/* most: bytes that all of the run directory may take, 0: any, or DISK_KEEP_FREE. */
void disk_limit(const struct folder *run, uint64_t most);
/* Whether files of the run may grow by so much; they count as grown. */
bool disk_take(enum disk_use use, uint64_t size);
/* Why they may not, in a few words. */
void disk_explain(char *out, size_t size);

#endif
