/*
 * timeline.bin, a mapped file: the times of GPU work and of waits of the host.
 *
 * Invariant: a record of kind 0 is not part of the run, so the file of a killed process is readable.
 */
#ifndef TT_STORE_ACTIVITIES_H
#define TT_STORE_ACTIVITIES_H

#include <stdbool.h>
#include <stddef.h>

#include "format.h"
#include "store/folder.h"
#include "util/json_writer.h"

bool activities_open(const struct folder *folder, char *error, size_t error_size);
/* Appends a record and fills in its check. False: no room. */
bool activities_add(const struct tt_activity *a);
/* Calls visit for the last `most` records, in any order. */
void activities_recent(size_t most, void (*visit)(const struct tt_activity *a, void *to), void *to);
bool activities_failed(char *reason, size_t size);
void activities_json(struct json *j); /* the file's member in process.json, once it is closed */
void activities_close(void);
void activities_forget(void); /* in a forked child */

#endif
