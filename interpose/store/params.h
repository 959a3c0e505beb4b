/*
 * Parameters of launches, if the user asked for them: bytes in a mapped file, claimed in pieces by each thread.
 *
 * Invariant: storing parameters allocates nothing, takes no lock and makes no system call, except an occasional
 * wake-up of the helper, and a wait if the disk is slow.
 */
#ifndef TT_STORE_PARAMS_H
#define TT_STORE_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/folder.h"
#include "util/json_writer.h"

#define PARAMS_UNIT 16 /* bytes: unit of positions, and alignment of pieces */

/* Creates DIR/params.bin and starts the thread that maps ahead. */
bool params_open(const struct folder *folder, char *error, size_t error_size);
/*
 * Room for `size` bytes, all zeros, and its position in the file in PARAMS_UNITs; NULL: none. The caller must call
 * params_done before a record refers to it.
 */
uint8_t *params_next(size_t size, uint32_t *position);
void params_filled(uint8_t *room, size_t size);
bool params_failed(char *reason, size_t size);
void params_json(struct json *j); /* the file's member in process.json, once it is closed */
void params_close(void);
void params_forget(void); /* in a forked child */

#endif
