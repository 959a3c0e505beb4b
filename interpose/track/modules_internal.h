/*
 * Shared by modules.c and functions.c. The caller holds the lock of both.
 */
#ifndef TT_TRACK_MODULES_INTERNAL_H
#define TT_TRACK_MODULES_INTERNAL_H

#include <pthread.h>

#include "track/functions.h"

extern pthread_mutex_t modules_lock;

uint32_t module_id_of(const void *handle); /* TT_NO_ID: unknown */
bool module_is_library(uint32_t id);
/* A function of it was launched in a context. */
void module_launched(struct context *c, uint32_t id, const struct code_answers *ask);

/* Recording begins. */
void functions_begin(void);
/* The module is unloaded. */
void functions_forget(uint32_t module);

#endif
