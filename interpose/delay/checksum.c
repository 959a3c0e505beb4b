/*
 * Computes checksums of kernels. See checksum.h for the invariant.
 *
 * A checksum covers the section with instructions, its constants, which name it in sh_info, and all sections that
 * its relocations name, directly or indirectly.
 */
#include "delay/checksum.h"

#include <stdlib.h>
#include <string.h>

#include "util/xxh3_stream.h"
#include "util/vector.h"

#define CONSTANT ".nv.constant"
#define BANK (sizeof(CONSTANT) + 1) /* and the number of the bank */

struct part {
	char bank[BANK + 1];
	uint32_t section;
};

static const uint8_t *contents(const struct cubin *c, const Elf64_Shdr *s)
{
	return s->sh_type == SHT_NOBITS ? NULL : c->bytes + s->sh_offset;
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

/* False: a section of its constants is incomplete, or no memory. */
static bool own_digest(const struct cubin *c, uint32_t text, uint64_t *digest)
{
	struct part *parts = NULL;
	struct xxh3_stream stream;
	size_t count = 0, room = 0;
	bool good = make_room(&parts, &room, 0, 1, sizeof(*parts));

	if (good)
		parts[count++] = (struct part){.section = text};
	for (uint32_t i = 0; good && i < c->section_count; i++) {
		const Elf64_Shdr *s = &c->sections[i];
		const char *name = cubin_section_name(c, i);
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

/* Adds the sections with instructions that the relocations of one name. */
static bool follow(const struct cubin *c, uint32_t text, uint8_t *reached, uint32_t *list, uint32_t *count)
{
	for (uint32_t i = 0; i < c->section_count; i++) {
		const Elf64_Shdr *s = &c->sections[i];
		if ((s->sh_type != SHT_REL && s->sh_type != SHT_RELA) || s->sh_info != text)
			continue;
		size_t each = s->sh_type == SHT_RELA ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);
		const uint8_t *entries = contents(c, s);
		const uint8_t *symbols = s->sh_link < c->section_count ? contents(c, &c->sections[s->sh_link]) : NULL;
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
			if (target >= c->section_count || !is_code(&c->sections[target]) || reached[target])
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

bool kernel_checksum(const struct cubin *c, uint32_t text, uint64_t *checksum)
{
	uint32_t count = 1;
	uint8_t *reached = calloc(c->section_count, 1);
	uint32_t *list = malloc(c->section_count * sizeof(*list));
	uint64_t *digests = malloc(c->section_count * sizeof(*digests));
	bool good = reached && list && digests;

	if (good) {
		list[0] = text;
		reached[text] = 1;
	}
	for (uint32_t i = 0; good && i < count; i++) {
		uint64_t digest;
		good = own_digest(c, list[i], &digest) && follow(c, list[i], reached, list, &count);
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
