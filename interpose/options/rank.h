/*
 * The process's place in a job of many: its rank, as launchers tell it in the environment.
 */
#ifndef TT_OPTIONS_RANK_H
#define TT_OPTIONS_RANK_H

#include <stdbool.h>

struct json;

/* Reads the environment, as the program has it by now. */
void rank_read(void);
/* Whether a launcher gave the process a rank. */
bool rank_is_known(void);
/* Whether --ranks leaves this process out. */
bool rank_is_left_out(void);
/* The rank as an object for process.json, or null. */
void rank_json(struct json *j);

#endif
