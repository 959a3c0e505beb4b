/*
 * Parameters of launches. See params.h for the invariant.
 */
#define _GNU_SOURCE
#include "store/params.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "chunk.h"
#include "util/xxh3.h"
#include "store/mapped.h"

#define PIECE ((uint64_t)16 << 10) /* bytes a thread claims at a time, if not more at once */

struct cursor {
	uint8_t *next, *end;
	uint32_t generation; /* of the recording that they belong to */
};

static __thread struct cursor self __attribute__((tls_model("initial-exec")));
static _Atomic uint32_t generation; /* 0: not recording */
static uint32_t generations;
static struct mapped bytes = {.file = FILE_CLOSED};

static bool claim(struct cursor *c, uint64_t size, uint32_t current)
{
	uint64_t room = tt_round_up(size, PIECE);
	int error = errno, cancel;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	c->next = current ? mapped_claim(&bytes, room) : NULL;
	c->end = c->next ? c->next + room : NULL;
	c->generation = current;
	pthread_setcancelstate(cancel, NULL);
	errno = error;
	return c->next;
}

uint8_t *params_next(size_t size, uint32_t *place)
{
	uint64_t room = tt_round_up(TT_PIECE_HEAD + size, PARAMS_UNIT), at;
	uint32_t current = atomic_load_explicit(&generation, memory_order_relaxed);
	struct cursor *c = &self;
	uint8_t *to;

	if ((c->generation != current || (uint64_t)(c->end - c->next) < room) && !claim(c, room, current))
		return NULL;
	to = c->next;
	at = (uint64_t)(to - bytes.base) / PARAMS_UNIT;
	if (at > UINT32_MAX)
		return NULL;
	c->next += room;
	*place = (uint32_t)at;
	return to + TT_PIECE_HEAD;
}

void params_filled(uint8_t *room, size_t size)
{
	uint64_t check = xxh3_64(room, size);

	memcpy(room - TT_PIECE_HEAD, &check, TT_PIECE_HEAD);
}

bool params_open(const struct folder *folder, char *error, size_t error_size)
{
	int saved = errno;
	bool good = mapped_open(&bytes, folder, "params.bin", TT_FILE_PARAMS, 1, "tt-params", error, error_size);

	if (good)
		atomic_store(&generation, ++generations);
	errno = saved;
	return good;
}

bool params_failed(char *reason, size_t size)
{
	return mapped_failed(&bytes, reason, size);
}

void params_close(void)
{
	int saved = errno;

	if (atomic_exchange(&generation, 0) && mapped_stop(&bytes))
		mapped_close(&bytes, atomic_load(&bytes.claimed));
	errno = saved;
}

void params_json(struct json *j)
{
	mapped_json(&bytes, j);
}

void params_forget(void)
{
	int saved = errno;

	if (atomic_exchange(&generation, 0))
		mapped_forget(&bytes);
	self = (struct cursor){0};
	errno = saved;
}
