/*
 * Page-locked memory that asynchronous copies to a device read: whether it has other bytes than at the copy's call.
 * For --host-writes.
 *
 * Invariant: bytes are read only before their memory is freed. A free takes the lock that readers hold, whether or
 * not it is recorded, and registered memory is read through the kernel, which survives an unmapped page.
 */
#ifndef TT_TRACK_COPY_SOURCES_H
#define TT_TRACK_COPY_SOURCES_H

#include <stdint.h>

#include "options/options.h"
#include "session/session.h"
#include "util/compiler.h"

struct context;
struct stream;

/* After a copy was submitted. Does nothing unless src is in page-locked memory. */
void copy_sources_watch(const struct stream *s, uint64_t seq, uint64_t dst, uint64_t src, uint64_t bytes);
/* Writes an event for each watched copy whose source has changed. */
void copy_sources_compare(void);
/* Before a call that tells the host that work is complete gets its number. */
static inline void copy_sources_look(void)
{
	if (unlikely(options.host_writes) && atomic_load(&session_state) == SESSION_ON)
		copy_sources_compare();
}
/* The host knows that copies of this stream, or of all of the context (NULL), before call seq are complete. */
void copy_sources_complete(const struct context *c, const struct stream *s, uint64_t seq);
/* The program recorded an event in a stream: when it is complete, so are earlier copies of the stream. */
void copy_sources_recorded(const struct stream *s, const void *event, uint64_t seq);
/* The host knows that the event is complete. */
void copy_sources_event_complete(const void *event);
/* Call before the host memory at base is freed. */
void copy_sources_freed(uint64_t base);
/* Call before the context is destroyed. */
void copy_sources_context_ends(const struct context *c);
void copy_sources_forget(void); /* in a forked child */

#endif
