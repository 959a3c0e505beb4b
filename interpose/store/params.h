/*
 * Parameters of launches, if the user asked for them: bytes in a mapped file, claimed in pieces by
 * each thread.
 *
 * Invariant: storing parameters allocates nothing, takes no lock and makes no system call, except a
 * wake-up of the helper now and then, and a wait if the disk is slow.
 */
#ifndef TT_STORE_PARAMS_H
#define TT_STORE_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/folder.h"
#include "util/json_writer.h"

#define PARAMS_UNIT 16 /* bytes: what places count in, and what each piece begins at */

/* Creates DIR/params.bin and starts the thread that maps ahead. */
bool params_open(const struct folder *folder, char *error, size_t error_size);
/*
 * Room for so many bytes, all zeros, and its place in the file in PARAMS_UNITs; NULL where there is none. The
 * caller says when it has filled it, before anything refers to it.
 */
uint8_t *params_next(size_t size, uint32_t *place);
void params_filled(uint8_t *room, size_t size);
bool params_failed(char *reason, size_t size);
void params_json(struct json *j); /* what process.json says of the file, once it is closed */
void params_close(void);
void params_forget(void); /* in a fork's child */

#endif
