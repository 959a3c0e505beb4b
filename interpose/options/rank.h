/*
 * The process's place in a job of many: its rank, as launchers tell it in the environment.
 */
#ifndef TT_OPTIONS_RANK_H
#define TT_OPTIONS_RANK_H

#include <stdbool.h>
#include <stdint.h>

struct json;

/* Reads the environment, as the program has it by now. */
void rank_read(void);
/* The rank that a launcher gave the process. NULL: none did. */
const uint32_t *rank_of_process(void);
/* Whether --ranks leaves this process out. */
bool rank_is_left_out(void);
/* The rank as an object for process.json, or null. */
void rank_json(struct json *j);

#endif
