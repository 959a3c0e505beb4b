/*
 * A mutator for ELF files: what it changes are mostly members of headers, symbols and relocations, which get values that lie
 * at an edge, or in another one of their kind. So inputs reach what lies behind the checks of a whole file.
 */
#include <elf.h>

#include "fuzz.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);

static uint64_t next(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return *seed >> 33;
}

static uint64_t edge(uint64_t *seed, uint64_t now, size_t size)
{
	const uint64_t values[] = {
		0,        1,          now + 1,           now - 1,    now * 2,         size,       size - 1, size + 1,
		1u << 16, UINT32_MAX, (uint64_t)1 << 32, UINT64_MAX, UINT64_MAX - 15, SHT_NOBITS, 16,       8};

	return values[next(seed) % (sizeof(values) / sizeof(*values))];
}

/* Changes one of the members of a record, which are `each` bytes long from `at` on. */
static void change(uint8_t *data, size_t size, size_t at, size_t record, uint64_t *seed)
{
	static const size_t sizes[] = {1, 2, 4, 8};
	size_t each = sizes[next(seed) % 4], offset = at + next(seed) % (record / each) * each;
	uint64_t value = 0;

	if (at > size || size - at < record)
		return;
	memcpy(&value, data + offset, each);
	value = edge(seed, value, size);
	memcpy(data + offset, &value, each);
}

/* Gives one section's header a member of another one. */
static void exchange(uint8_t *data, const Elf64_Ehdr *h, uint64_t *seed)
{
	size_t from = h->e_shoff + next(seed) % h->e_shnum * sizeof(Elf64_Shdr), each = 8;
	size_t to = h->e_shoff + next(seed) % h->e_shnum * sizeof(Elf64_Shdr), member = next(seed) % 8 * each;

	memmove(data + to + member, data + from + member, each);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned given)
{
	uint64_t seed = given;
	Elf64_Ehdr h;
	Elf64_Shdr s;

	if (size < sizeof(h) || next(&seed) % 4 == 0)
		return LLVMFuzzerMutate(data, size, most);
	memcpy(&h, data, sizeof(h));
	if (!h.e_shnum || h.e_shoff > size || (size - h.e_shoff) / sizeof(s) < h.e_shnum)
		return LLVMFuzzerMutate(data, size, most);
	size_t section = h.e_shoff + next(&seed) % h.e_shnum * sizeof(s);
	memcpy(&s, data + section, sizeof(s));
	size_t inside = s.sh_size > 16 ? s.sh_offset + next(&seed) % (s.sh_size / 8) * 8 : s.sh_offset;
	switch (next(&seed) % 8) {
	case 0:
		change(data, size, 0, sizeof(h), &seed);
		break;
	case 1:
	case 2:
		change(data, size, section, sizeof(s), &seed);
		break;
	case 3:
		exchange(data, &h, &seed);
		break;
	default:
		change(data, size, inside, 8, &seed);
	}
	return size;
}
