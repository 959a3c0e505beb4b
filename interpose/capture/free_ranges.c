/*
 * Manages free addresses. See free_ranges.h for the invariant.
 */
#include "capture/free_ranges.h"

#include "util/vector.h"

/* The index of the first range that starts at or above the address. */
static size_t lower(const struct free_ranges *f, uint64_t start)
{
	return lower_bound(f->count, i, f->list[i].start < start);
}

static void drop(struct free_ranges *f, size_t i)
{
	f->count--;
	memmove(f->list + i, f->list + i + 1, (f->count - i) * sizeof(*f->list));
}

bool free_ranges_add(struct free_ranges *f, uint64_t start, uint64_t size)
{
	size_t i = lower(f, start);
	bool after = i > 0 && f->list[i - 1].start + f->list[i - 1].size == start;
	bool before = i < f->count && start + size == f->list[i].start;

	if (after) {
		f->list[i - 1].size += size;
		if (before) {
			f->list[i - 1].size += f->list[i].size;
			drop(f, i);
		}
		return true;
	}
	if (before) {
		f->list[i].start = start;
		f->list[i].size += size;
		return true;
	}
	if (!make_room(&f->list, &f->room, f->count, 1, sizeof(*f->list)))
		return false;
	memmove(f->list + i + 1, f->list + i, (f->count - i) * sizeof(*f->list));
	f->list[i] = (struct free_range){start, size};
	f->count++;
	return true;
}

bool free_ranges_take(struct free_ranges *f, uint64_t size, uint64_t *start)
{
	size_t i = 0;

	while (i < f->count && f->list[i].size < size)
		i++;
	if (i == f->count)
		return false;
	*start = f->list[i].start;
	f->list[i].start += size;
	f->list[i].size -= size;
	if (!f->list[i].size)
		drop(f, i);
	return true;
}

bool free_ranges_remove(struct free_ranges *f, uint64_t start, uint64_t size)
{
	size_t i = lower(f, start);

	if (i == f->count || f->list[i].start != start || f->list[i].size != size)
		return false;
	drop(f, i);
	return true;
}

void free_ranges_end(struct free_ranges *f)
{
	free(f->list);
	*f = (struct free_ranges){0};
}
