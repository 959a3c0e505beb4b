/*
 * process.json of the recorded process.
 */
#ifndef TT_LIFECYCLE_PROCESS_JSON_H
#define TT_LIFECYCLE_PROCESS_JSON_H

#include <stdbool.h>

/* Recording begins now. */
void process_json_begin(void);
/* Rewrites the file. reason: NULL if there is none; ended: this is the last write. */
void process_json_write(const char *status, const char *reason, bool ended);

#endif
