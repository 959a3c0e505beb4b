/*
 * Records of graphs that wait to be written. See graph_log.h for the invariant.
 */
#include "track/graph_log.h"

#include <stdatomic.h>

#include "store/store.h"
#include "session/session.h"
#include "util/vector.h"

#define LONG ((size_t)1 << 10)

static struct tt_graph_record *records;
static size_t count, room;
static uint8_t *data;
static size_t data_size, data_room;
static _Atomic bool waiting;

bool graph_log_add(const struct tt_graph_record *r, const void *bytes)
{
	if (!make_room(&records, &room, count, 1, sizeof(*records)) ||
	    !make_room(&data, &data_room, data_size, r->data_size, 1))
		return false;
	records[count] = *r;
	records[count++].data = data_size;
	if (r->data_size)
		memcpy(data + data_size, bytes, r->data_size);
	data_size += r->data_size;
	atomic_store_explicit(&waiting, true, memory_order_release);
	return true;
}

void graph_log_write(void)
{
	atomic_store(&waiting, false);
	if (count)
		store_graph(session_store(), records, count, data, data_size);
	count = data_size = 0;
	if (room > LONG * 4) { /* of a large graph, not to be kept */
		free(records);
		free(data);
		records = NULL;
		data = NULL;
		room = data_room = 0;
	}
}

bool graph_log_long(void)
{
	return count >= LONG;
}

bool graph_log_waits(void)
{
	return atomic_load_explicit(&waiting, memory_order_acquire);
}
