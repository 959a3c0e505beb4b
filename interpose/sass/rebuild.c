/*
 * Makes cubins with other contents. See rebuild.h.
 *
 * A section grows in the file by a multiple of the largest alignment, so that what follows keeps its own.
 */
#include "sass/rebuild.h"

#include <stdlib.h>
#include <string.h>

#define ALIGN 128u /* of code */
#define ALIGN_MAX 4096u

static bool overlap(uint64_t a, uint64_t a_size, uint64_t b, uint64_t b_size)
{
	return a_size && b_size && a < b + b_size && b < a + a_size;
}

bool cubin_stands_alone(const struct cubin *c, uint32_t section)
{
	const Elf64_Ehdr *h = &c->header;
	const Elf64_Shdr *s = &c->sections[section];

	if (overlap(s->sh_offset, s->sh_size, 0, sizeof(*h)) ||
	    overlap(s->sh_offset, s->sh_size, h->e_shoff, (uint64_t)h->e_shnum * h->e_shentsize) ||
	    overlap(s->sh_offset, s->sh_size, h->e_phoff, (uint64_t)h->e_phnum * h->e_phentsize))
		return false;
	for (uint32_t i = 1; i < c->section_count; i++) {
		const Elf64_Shdr *o = &c->sections[i];
		if (i != section && o->sh_type != SHT_NOBITS && overlap(s->sh_offset, s->sh_size, o->sh_offset, o->sh_size))
			return false;
	}
	return true;
}

/* Contents with their place in the old file. */
struct grown {
	const struct section_contents *contents;
	size_t begin, old, added; /* added: bytes of the file */
};

struct growth {
	struct grown *all;
	size_t count;
};

/* By how much an offset of the old file has moved. */
static size_t shift(const struct growth *g, uint64_t offset)
{
	size_t shift = 0;

	for (size_t i = 0; i < g->count && g->all[i].begin + g->all[i].old <= offset; i++)
		shift += g->all[i].added;
	return shift;
}

static int by_offset(const void *a, const void *b)
{
	const struct grown *x = a, *y = b;

	return (x->begin > y->begin) - (x->begin < y->begin);
}

static void put(uint8_t *out, size_t at, const void *what, size_t size)
{
	memcpy(out + at, what, size);
}

static void move_headers(const struct cubin *c, const struct growth *g, uint8_t *out)
{
	Elf64_Ehdr h = c->header;

	h.e_shoff += shift(g, h.e_shoff);
	h.e_phoff += h.e_phnum ? shift(g, h.e_phoff) : 0;
	put(out, 0, &h, sizeof(h));
	for (uint32_t i = 0; i < c->section_count; i++) {
		Elf64_Shdr s = c->sections[i];
		s.sh_offset += shift(g, s.sh_offset);
		for (size_t k = 0; k < g->count; k++)
			if (g->all[k].contents->section == i)
				s.sh_size = g->all[k].contents->size;
		put(out, h.e_shoff + i * sizeof(s), &s, sizeof(s));
	}
	for (uint32_t i = 0; i < h.e_phnum; i++) {
		Elf64_Phdr s;
		memcpy(&s, c->bytes + c->header.e_phoff + i * sizeof(s), sizeof(s));
		size_t begin = shift(g, s.p_offset);
		size_t added = s.p_filesz ? shift(g, s.p_offset + s.p_filesz) - begin : 0;
		s.p_offset += begin;
		s.p_filesz += added;
		s.p_memsz += added;
		put(out, h.e_phoff + i * sizeof(s), &s, sizeof(s));
	}
}

static size_t alignment(const struct cubin *c)
{
	size_t align = ALIGN;

	for (uint32_t i = 1; i < c->section_count; i++)
		while (align < c->sections[i].sh_addralign && align < ALIGN_MAX)
			align *= 2;
	return align;
}

/* Fills in where the contents go; returns by how many bytes the file grows. */
static size_t measure(const struct cubin *c, const struct section_contents *contents, struct growth *g)
{
	size_t align = alignment(c), added = 0;

	for (size_t i = 0; i < g->count; i++) {
		const Elf64_Shdr *s = &c->sections[contents[i].section];
		size_t more = (contents[i].size - s->sh_size + align - 1) / align * align;
		g->all[i] = (struct grown){&contents[i], s->sh_offset, s->sh_size, more};
		added += more;
	}
	qsort(g->all, g->count, sizeof(*g->all), by_offset);
	return added;
}

uint8_t *cubin_rebuild(const struct cubin *c, const struct section_contents *contents, size_t count, size_t *size)
{
	struct growth g = {calloc(count + 1, sizeof(*g.all)), count};
	size_t from = 0, to = 0;

	if (!g.all)
		return NULL;
	size_t added = measure(c, contents, &g);
	uint8_t *out = calloc(1, c->size + added);
	for (size_t i = 0; out && i < count; i++) {
		const struct grown *one = &g.all[i];
		put(out, to, c->bytes + from, one->begin - from);
		to += one->begin - from;
		put(out, to, one->contents->bytes, one->contents->size);
		to += one->old + one->added;
		from = one->begin + one->old;
	}
	if (out) {
		put(out, to, c->bytes + from, c->size - from);
		move_headers(c, &g, out);
		*size = c->size + added;
	}
	free(g.all);
	return out;
}
