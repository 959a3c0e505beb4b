/*
 * Mutates texts by lines and words, as libFuzzer's own mutations rarely leave a program that parses.
 */
#include "fuzz.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);

struct piece {
	size_t begin, size;
};

static unsigned next(unsigned *seed, size_t below)
{
	*seed = *seed * 1664525u + 1013904223u;
	return (unsigned)((*seed >> 8) % (below ? below : 1));
}

/* A line, or a word of one: from a separator to the next. */
static struct piece piece(const uint8_t *data, size_t size, unsigned *seed, const char *ends)
{
	size_t at = next(seed, size), begin = at, end = at;

	while (begin && !strchr(ends, data[begin - 1]))
		begin--;
	while (end < size && !strchr(ends, data[end]))
		end++;
	if (end < size)
		end++;
	return (struct piece){begin, end - begin};
}

/* Bytes of one place are replaced by those of another, which may be none. */
static size_t replace(uint8_t *data, size_t size, size_t most, struct piece to, const uint8_t *from, size_t count)
{
	if (size - to.size + count > most)
		return size;
	memmove(data + to.begin + count, data + to.begin + to.size, size - to.begin - to.size);
	memcpy(data + to.begin, from, count);
	return size - to.size + count;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
	const char *ends = next(&seed, 2) ? "\n" : " ,.;:[]{}()\n\t";
	unsigned what = next(&seed, 4);

	if (!size || !what)
		return LLVMFuzzerMutate(data, size, most);
	struct piece a = piece(data, size, &seed, ends), b = piece(data, size, &seed, ends);
	uint8_t *copy = fuzz_copy(data + b.begin, b.size);
	if (what == 1)
		a.size = 0; /* inserted */
	size = replace(data, size, most, a, copy, what == 3 ? 0 : b.size);
	free(copy);
	return size;
}
