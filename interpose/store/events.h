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

#define EVENTS_RUN 512 /* slots that a thread claims at a time */

/* Creates DIR/events.bin and starts the thread that maps and prefaults ahead. */
bool events_open(const struct folder *folder, char *error, size_t error_size);
/*
 * The next slot of this thread, all zeros; NULL: none (counted as lost). The caller fills in the members and
 * publishes it; later it must not change. The launch path has both inline: event_slots.h.
 */
struct tt_event *events_next(void);
void events_publish(struct tt_event *e, uint32_t kind);
/*
 * Calls visit for the last `most` claimed slots and for those that live threads are filling, in any order. Leaves
 * out the latter if the list of threads is locked for long.
 */
void events_recent(size_t most, void (*visit)(const struct tt_event *e, uint32_t kind, void *to), void *to);
uint64_t events_count(void); /* claimed slots */
uint64_t events_lost(void);
/* Whether slots ended because of a failure; reason: one line. */
bool events_failed(char *reason, size_t size);
void events_json(struct json *j); /* the file's member in process.json, once it is closed */
void events_close(void); /* stops the thread, trims the file; events_next then returns NULL */
void events_forget(void); /* in a forked child: detaches without touching the file */

#endif
