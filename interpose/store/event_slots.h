/*
 * events_next and events_publish of events.h, as the launch path has them: without calls.
 */
#ifndef TT_STORE_EVENT_SLOTS_H
#define TT_STORE_EVENT_SLOTS_H

#include <stdatomic.h>
#include <sys/queue.h>

#include "store/events.h"
#include "util/compiler.h"
#include "util/event_check.h"

struct cursor {
	struct tt_event *next, *end;
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

static inline void event_commit(struct tt_event *e, uint32_t kind)
{
	typedef uint64_t __attribute__((may_alias)) word;
	uint64_t named = kind | (uint64_t)e->call << 16;

	__atomic_store_n((word *)&e->kind, named | (uint64_t)event_check(e, named) << 32, __ATOMIC_RELEASE);
}

#endif
