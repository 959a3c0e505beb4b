/*
 * timeline.bin, a mapped file: when the GPU did the work of calls.
 *
 * Invariant: a record of kind 0 is not part of the run, so the file of a killed process is
 * readable.
 */
#ifndef TT_STORE_ACTIVITIES_H
#define TT_STORE_ACTIVITIES_H

#include <stdbool.h>
#include <stddef.h>

#include "format.h"
#include "store/folder.h"
#include "util/json_writer.h"

bool activities_open(const struct folder *folder, char *error, size_t error_size);
/* Appends a record; its check is made here. False: there is no room. */
bool activities_add(const struct tt_activity *a);
/* The last `most` records, in no order. */
void activities_recent(size_t most, void (*visit)(const struct tt_activity *a, void *to), void *to);
bool activities_failed(char *reason, size_t size);
void activities_json(struct json *j); /* what process.json says of the file, once it is closed */
void activities_close(void);
void activities_forget(void); /* in a fork's child */

#endif
