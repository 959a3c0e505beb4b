/*
 * events_next and events_publish of events.h, as the launch path has them: without calls.
 */
#ifndef TT_STORE_EVENT_SLOTS_H
#define TT_STORE_EVENT_SLOTS_H

#include <stdatomic.h>
#include <string.h>
#include <sys/queue.h>

#include "store/events.h"
#include "util/cache_line.h"
#include "util/compiler.h"
#include "util/event_check.h"

struct cursor {
	AT_CACHE_LINE struct tt_event *next;
	struct tt_event *end;
	uint32_t generation; /* the recording that the slots belong to */
	uint32_t destructor_runs;
	TAILQ_ENTRY(cursor) link;
};
extern __thread struct cursor events_cursor __attribute__((tls_model("initial-exec")));
extern _Atomic uint32_t events_generation; /* 0: not recording */
struct tt_event *events_claim(struct cursor *c); /* begins a run of slots, and returns its first */

static inline void prefetch_write(const void *at)
{
#if defined(__x86_64__)
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)at)); /* the builtin gives it only with -mprfchw */
#else
	__builtin_prefetch(at, 1);
#endif
}

static inline struct tt_event *event_slot(void)
{
	struct cursor *c = &events_cursor;
	struct tt_event *e = c->next;

	if (unlikely(e == c->end || c->generation != atomic_load_explicit(&events_generation, memory_order_relaxed)))
		return events_claim(c);
	__atomic_store_n(&c->next, e + 1, __ATOMIC_RELAXED);
	/*
	 * Prefetched lines are present at the next call; otherwise the driver's doorbell writes wait for the
	 * stores.
	 */
	prefetch_write(e + 1);
	prefetch_write((char *)(e + 1) + 64);
	return e;
}

/* Writes members with one store of 8 bytes, as the check reads them: otherwise the read waits for both stores. */
static inline void event_word(struct tt_event *e, size_t at, uint64_t value)
{
	memcpy((char *)e + at, &value, sizeof(value));
}
static inline void event_pair(struct tt_event *e, size_t at, uint32_t first, uint32_t second)
{
	event_word(e, at, first | (uint64_t)second << 32);
}

/* zero: words that nothing was written to, as event_check_knowing wants them. */
static ON_PATH void event_commit_knowing(struct tt_event *e, uint32_t kind, uint32_t call, uint32_t zero)
{
	typedef uint64_t __attribute__((may_alias)) word;
	uint64_t named = kind | (uint64_t)call << 16;

	__atomic_store_n((word *)&e->kind, named | (uint64_t)event_check_knowing(e, named, zero) << 32, __ATOMIC_RELEASE);
}
static inline void event_commit(struct tt_event *e, uint32_t kind)
{
	event_commit_knowing(e, kind, e->call, 0);
}

#endif
