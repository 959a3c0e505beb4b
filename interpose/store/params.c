/*
 * Parameters of launches. See params.h for the invariant.
 */
#define _GNU_SOURCE
#include "store/params.h"

#include <stdatomic.h>
#include <string.h>

#include "chunk.h"
#include "util/xxh3.h"
#include "store/mapped.h"

#define PIECE ((uint64_t)16 << 10) /* bytes that a thread claims at a time, at least */

static struct mapped bytes;
static __thread struct {
	uint8_t *next, *end;
} self __attribute__((tls_model("initial-exec"))); /* the thread's piece */

static bool claim(uint64_t size)
{
	uint64_t room = tt_round_up(size, PIECE);

	self.next = mapped_claim(&bytes, room);
	self.end = self.next ? self.next + room : NULL;
	return self.next;
}

uint8_t *params_next(size_t size, uint32_t *position)
{
	uint64_t room = tt_round_up(TT_PIECE_HEAD + size, PARAMS_UNIT), at;
	uint8_t *to;

	if (!atomic_load_explicit(&bytes.open, memory_order_relaxed) ||
	    ((uint64_t)(self.end - self.next) < room && !claim(room)))
		return NULL;
	to = self.next;
	at = (uint64_t)(to - bytes.base) / PARAMS_UNIT;
	if (at > UINT32_MAX)
		return NULL;
	self.next += room;
	*position = (uint32_t)at;
	return to + TT_PIECE_HEAD;
}

void params_filled(uint8_t *room, size_t size)
{
	uint64_t check = xxh3_64(room, size);

	memcpy(room - TT_PIECE_HEAD, &check, TT_PIECE_HEAD);
}

bool params_open(const struct folder *folder, char *error, size_t error_size)
{
	return mapped_open(&bytes, folder, "params.bin", TT_FILE_PARAMS, 1, "tt-params", error, error_size);
}

bool params_failed(char *reason, size_t size)
{
	return mapped_failed(&bytes, reason, size);
}

void params_close(void)
{
	mapped_close(&bytes, NULL);
}

void params_json(struct json *j)
{
	mapped_json(&bytes, j);
}

void params_forget(void)
{
	mapped_forget(&bytes);
	self.next = self.end = NULL;
}
