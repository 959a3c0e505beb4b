/*
 * Pending records of graphs. See graph_log.h for the invariant.
 */
#include "track/graph_log.h"

#include <stdatomic.h>

#include "options/options.h"
#include "session/session.h"
#include "store/store.h"
#include "util/vector.h"

#define LONG ((size_t)1 << 10)

static struct {
	struct tt_graph_record *records;
	size_t count, room;
	uint8_t *data;
	size_t data_size, data_room;
	_Atomic bool waiting;
} pending;

void graph_log_add(struct tt_graph_record r, const void *bytes)
{
	if (!options.events || session_state != SESSION_ON)
		return;
	if (!make_room(&pending.records, &pending.room, pending.count, 1, sizeof(*pending.records)) ||
	    !make_room(&pending.data, &pending.data_room, pending.data_size, r.data_size, 1)) {
		session_fail("no host memory for a graph");
		return;
	}
	if (r.data_size)
		memcpy(pending.data + pending.data_size, bytes, r.data_size);
	r.data = pending.data_size;
	pending.data_size += r.data_size;
	pending.records[pending.count++] = r;
	atomic_store_explicit(&pending.waiting, true, memory_order_release);
}

void graph_log_write(void)
{
	atomic_store(&pending.waiting, false);
	if (pending.count)
		store_graph(session_store(), pending.records, pending.count, pending.data, pending.data_size);
	pending.count = pending.data_size = 0;
	if (pending.room > LONG * 4) { /* a large graph: free the buffer */
		free(pending.records);
		free(pending.data);
		pending.records = NULL;
		pending.data = NULL;
		pending.room = pending.data_room = 0;
	}
}

void graph_log_write_long(void)
{
	if (pending.count >= LONG)
		graph_log_write();
}

bool graph_log_waits(void)
{
	return atomic_load_explicit(&pending.waiting, memory_order_acquire);
}
