/*
 * RUN/run.json and RUN/manifest.json: the merged files of all processes.
 *
 * Invariant: at any moment each is complete and has every process that had written its own by the last merge.
 * Concurrent merges run one after the other.
 */
#ifndef TT_STORE_MERGE_H
#define TT_STORE_MERGE_H

#include <stdbool.h>
#include <stddef.h>

#include "store/folder.h"

enum merge_kind { MERGE_RUN, MERGE_MANIFEST };

/* False: run.json or manifest.json exists and is not of a run of this version; error names it. */
bool merge_may(const struct folder *run, char *error, size_t size);
/* process: the caller's RUN/pN, where the new text is written first. False: with errno. */
bool merge_processes(enum merge_kind kind, const struct folder *run, const struct folder *process);

#endif
