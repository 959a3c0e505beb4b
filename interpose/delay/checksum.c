/*
 * Checksums of kernels. See checksum.h for the invariant.
 *
 * Of a section with instructions and its constants, which name it in sh_info, and of those that its
 * relocations lead to, in turn.
 */
#include "delay/checksum.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "util/xxh3_stream.h"
#include "util/vector.h"

#define CUDA 190
#define CONSTANT ".nv.constant"
#define BANK (sizeof(CONSTANT) + 1) /* with the number of the bank */

struct cubin {
	const uint8_t *bytes;
	size_t size;
	const Elf64_Shdr *sections;
	uint32_t count;
	const char *names;
	size_t names_size;
};

struct part {
	char bank[BANK + 1];
	uint32_t section;
};

static const uint8_t *contents(const struct cubin *c, const Elf64_Shdr *s)
{
	return s->sh_offset <= c->size && s->sh_size <= c->size - s->sh_offset ? c->bytes + s->sh_offset : NULL;
}

static bool open_cubin(struct cubin *c, const void *bytes, size_t size)
{
	const Elf64_Ehdr *h = bytes;

	*c = (struct cubin){.bytes = bytes, .size = size};
	if (size < sizeof(*h) || memcmp(h->e_ident, ELFMAG "\2\1", 6) || h->e_machine != CUDA ||
	    h->e_shentsize != sizeof(Elf64_Shdr) || h->e_shoff > size || (uintptr_t)(c->bytes + h->e_shoff) % 8)
		return false;
	uint64_t most = (size - h->e_shoff) / sizeof(Elf64_Shdr), count = h->e_shnum;
	c->sections = (const Elf64_Shdr *)(c->bytes + h->e_shoff);
	if (h->e_shoff && !count && most)
		count = c->sections->sh_size;
	if (!count || count > most || count > UINT32_MAX || h->e_shstrndx >= count)
		return false;
	c->count = (uint32_t)count;
	c->names = (const char *)contents(c, &c->sections[h->e_shstrndx]);
	c->names_size = c->names ? c->sections[h->e_shstrndx].sh_size : 0;
	return c->names_size && !c->names[c->names_size - 1];
}

static const char *name_of(const struct cubin *c, const Elf64_Shdr *s)
{
	return s->sh_name < c->names_size ? c->names + s->sh_name : "";
}

static bool is_code(const Elf64_Shdr *s)
{
	return s->sh_type == SHT_PROGBITS && s->sh_flags & SHF_EXECINSTR;
}

static int by_bank(const void *a, const void *b)
{
	const struct part *x = a, *y = b;
	int order = strcmp(x->bank, y->bank);

	return order ? order : x->section < y->section ? -1 : x->section > y->section;
}

/* False: a section of its constants is not there whole, or memory is short. */
static bool own_digest(const struct cubin *c, uint32_t text, uint64_t *digest)
{
	struct part *parts = NULL;
	struct xxh3_stream stream;
	size_t count = 0, room = 0;
	bool good = make_room(&parts, &room, 0, 1, sizeof(*parts));

	if (good)
		parts[count++] = (struct part){.section = text};
	for (uint32_t i = 0; good && i < c->count; i++) {
		const Elf64_Shdr *s = &c->sections[i];
		const char *name = name_of(c, s);
		if (s->sh_type != SHT_PROGBITS || s->sh_info != text || strncmp(name, CONSTANT, sizeof(CONSTANT) - 1))
			continue;
		if ((good = make_room(&parts, &room, count, 1, sizeof(*parts)))) {
			parts[count] = (struct part){.section = i};
			strncpy(parts[count].bank, name, BANK);
			for (size_t n = strlen(parts[count].bank); n && parts[count].bank[n - 1] == '.'; n--)
				parts[count].bank[n - 1] = 0;
			count++;
		}
	}
	if (good)
		qsort(parts, count, sizeof(*parts), by_bank);
	xxh3_stream_begin(&stream);
	for (size_t i = 0; good && i < count; i++) {
		const Elf64_Shdr *s = &c->sections[parts[i].section];
		const uint8_t *bytes = contents(c, s);
		if (!(good = bytes != NULL))
			break;
		xxh3_stream_add(&stream, parts[i].bank, strlen(parts[i].bank));
		xxh3_stream_add(&stream, &s->sh_size, sizeof(s->sh_size));
		xxh3_stream_add(&stream, bytes, s->sh_size);
	}
	if (good)
		*digest = xxh3_stream_end(&stream);
	free(parts);
	return good;
}

/* Adds the sections with instructions that the relocations of one lead to. */
static bool follow(const struct cubin *c, uint32_t text, uint8_t *reached, uint32_t *list, uint32_t *count)
{
	for (uint32_t i = 0; i < c->count; i++) {
		const Elf64_Shdr *s = &c->sections[i];
		if ((s->sh_type != SHT_REL && s->sh_type != SHT_RELA) || s->sh_info != text)
			continue;
		size_t each = s->sh_type == SHT_RELA ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);
		const uint8_t *entries = contents(c, s);
		const uint8_t *symbols = s->sh_link < c->count ? contents(c, &c->sections[s->sh_link]) : NULL;
		if (!entries || !symbols)
			return false;
		uint64_t most = c->sections[s->sh_link].sh_size / sizeof(Elf64_Sym);
		for (uint64_t e = 0; e < s->sh_size / each; e++) {
			Elf64_Rel entry;
			Elf64_Sym symbol;
			memcpy(&entry, entries + e * each, sizeof(entry));
			if (ELF64_R_SYM(entry.r_info) >= most)
				return false;
			memcpy(&symbol, symbols + ELF64_R_SYM(entry.r_info) * sizeof(symbol), sizeof(symbol));
			uint32_t target = symbol.st_shndx;
			if (target >= c->count || !is_code(&c->sections[target]) || reached[target])
				continue;
			reached[target] = 1;
			list[(*count)++] = target;
		}
	}
	return true;
}

static int by_bytes(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(uint64_t));
}

bool kernel_checksum(const void *cubin, size_t size, uint32_t text, uint64_t *checksum)
{
	struct cubin c;
	uint32_t count = 1;
	bool good = open_cubin(&c, cubin, size) && text && text < c.count;
	uint8_t *reached = good ? calloc(c.count, 1) : NULL;
	uint32_t *list = good ? malloc(c.count * sizeof(*list)) : NULL;
	uint64_t *digests = good ? malloc(c.count * sizeof(*digests)) : NULL;

	good = good && reached && list && digests;
	if (good) {
		list[0] = text;
		reached[text] = 1;
	}
	for (uint32_t i = 0; good && i < count; i++) {
		uint64_t digest;
		good = own_digest(&c, list[i], &digest) && follow(&c, list[i], reached, list, &count);
		digests[i] = good ? __builtin_bswap64(digest) : 0;
	}
	if (good) {
		qsort(digests + 1, count - 1, sizeof(*digests), by_bytes);
		*checksum = xxh3_64(digests, count * sizeof(*digests));
	}
	free(reached);
	free(list);
	free(digests);
	return good;
}
