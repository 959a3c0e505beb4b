/*
 * The process's place in a job of many: its rank, as launchers tell it in the environment.
 */
#ifndef TT_SESSION_RANK_H
#define TT_SESSION_RANK_H

#include <stdbool.h>

struct json;

/* Reads the environment, as the program has it by now. */
void rank_read(void);
/* Whether --ranks leaves this process out. It says so on stderr if no launcher gave it a rank. */
bool rank_is_left_out(void);
/* The rank as an object for process.json, or null. */
void rank_json(struct json *j);

#endif
