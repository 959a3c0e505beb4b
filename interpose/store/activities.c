/*
 * Writes timeline.bin. See activities.h for the invariant.
 */
#define _GNU_SOURCE
#include "store/activities.h"

#include <stdatomic.h>

#include "util/xxh3.h"
#include "store/mapped.h"

static struct mapped records;

bool activities_open(const struct folder *folder, char *error, size_t error_size)
{
	return mapped_open(&records, folder, "timeline.bin", TT_FILE_TIMELINE, sizeof(struct tt_activity), "tt-activities",
			   error, error_size);
}

bool activities_add(const struct tt_activity *a)
{
	struct tt_activity made = *a, *slot = mapped_claim(&records, sizeof(*slot));

	if (!slot)
		return false;
	made.check = 0;
	*slot = made;
	__atomic_store_n(&slot->check, xxh3_64(&made, offsetof(struct tt_activity, check)), __ATOMIC_RELEASE);
	return true;
}

void activities_recent(size_t most, void (*visit)(const struct tt_activity *a, void *to), void *to)
{
	const struct tt_activity *first = (const struct tt_activity *)(records.base + TT_FILE_HEADER_SIZE);

	if (!records.base)
		return;
	uint64_t end = (atomic_load(&records.claimed) - TT_FILE_HEADER_SIZE) / sizeof(*first);
	for (uint64_t i = end > most ? end - most : 0; i < end; i++)
		if (__atomic_load_n(&first[i].check, __ATOMIC_ACQUIRE))
			visit(first + i, to);
}

bool activities_failed(char *reason, size_t size)
{
	return mapped_failed(&records, reason, size);
}

void activities_close(void)
{
	mapped_close(&records, NULL);
}

void activities_json(struct json *j)
{
	mapped_json(&records, j);
}

void activities_forget(void)
{
	mapped_forget(&records);
}
