/*
 * Digests of many short inputs. See digests.h.
 */
#include "load/digests.h"

#include "util/event_check.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT void tt_digests(const void *items, uint64_t count, uint32_t size, uint32_t covered, uint64_t *digests)
{
	for (uint64_t i = 0; i < count; i++)
		digests[i] = xxh3_64((const char *)items + i * size, covered);
}

EXPORT void tt_span_digests(const void *bytes, uint64_t count, const uint64_t *begins, const uint64_t *ends, uint64_t *digests)
{
	for (uint64_t i = 0; i < count; i++)
		digests[i] = xxh3_64((const char *)bytes + begins[i], ends[i] - begins[i]);
}

static uint32_t check_of(const struct tt_event *e)
{
	return event_check(e, e->kind | (uint64_t)e->call << 16);
}

EXPORT void tt_event_checks(const void *events, uint64_t count, uint32_t *checks)
{
	const struct tt_event *e = events;

	for (uint64_t i = 0; i < count; i++)
		checks[i] = check_of(&e[i]);
}

EXPORT uint64_t tt_wrong_event(const void *events, uint64_t count, uint32_t kinds)
{
	const struct tt_event *e = events;
	uint64_t i = 0;

	while (i < count &&
	       ((!e[i].kind && !e[i].check) || (e[i].check == check_of(&e[i]) && e[i].kind && e[i].kind < kinds && e[i].seq)))
		i++;
	return i;
}
