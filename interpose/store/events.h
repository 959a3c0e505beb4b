/*
 * Event slots: fixed-size records in a shared file mapping. Each thread claims runs of slots.
 *
 * Invariant: taking a slot allocates nothing, takes no lock and makes no system call, except one
 * wake-up of the helper every few thousand slots, and a thread's first slot. A slot stays writable
 * until the process ends. A slot of kind 0 is not part of the run. Kind and check are written with
 * one store, so the file of a killed process is readable.
 */
#ifndef TT_STORE_EVENTS_H
#define TT_STORE_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format.h"
#include "store/folder.h"
#include "util/json_writer.h"

#define EVENTS_RUN 512 /* slots a thread claims at a time */

/* Creates DIR/events.bin and starts the thread that maps and prefaults ahead. */
bool events_open(const struct folder *folder, char *error, size_t error_size);
/* The next slot of this thread, all zeros, or NULL when there is none (counted as lost). The caller fills in
 * the members, and publishes it: from then on it stays as it is. */
struct tt_event *events_next(void);
void events_publish(struct tt_event *e, uint32_t kind);
/*
 * The last slots that were claimed, `most` of them, and those that live threads fill at the moment, in no order.
 * The latter are left out where the list of threads is not to be had in a moment.
 */
void events_recent(size_t most, void (*visit)(const struct tt_event *e, uint32_t kind, void *to), void *to);
uint64_t events_count(void); /* slots handed out */
uint64_t events_lost(void);
/* Why no more slots come, where something failed: one line. */
bool events_failed(char *reason, size_t size);
void events_json(struct json *j); /* what process.json says of the file, once it is closed */
void events_close(void); /* stops the thread, trims the file; later events_next gives NULL */
void events_forget(void); /* in a fork's child: detach without touching the file */

#endif
