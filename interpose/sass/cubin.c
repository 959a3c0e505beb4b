/*
 * Reads cubins. See cubin.h for the invariant.
 *
 * The layout is that of 64-bit ELF. A kernel K has its instructions in `.text.K`, whose sh_info
 * names its symbol in the low 24 bits, and attributes in `.nv.info.K`, whose sh_info names the
 * former.
 */
#include "sass/cubin.h"

#include <stdlib.h>
#include <string.h>

#define MACHINE_CUDA 190
#define KERNEL 0x10 /* in st_other */
#define TYPE_NV_INFO 0x70000000u

static const char *const no_cubin = "not a supported cubin";
static const char *const damaged = "the cubin is damaged";
static const char *const no_memory = "no host memory";

static bool lies_in(const struct cubin *c, uint64_t offset, uint64_t size)
{
	return offset <= c->size && size <= c->size - offset;
}

uint32_t cubin_word(const struct cubin *c, size_t at)
{
	uint32_t word;

	memcpy(&word, c->bytes + at, sizeof(word));
	return word;
}

/* The ABI byte tells two generations apart, which have the architecture at different offsets. */
static bool read_architecture(struct cubin *c)
{
	const Elf64_Ehdr *h = &c->header;
	const unsigned char *id = h->e_ident;

	if (id[EI_OSABI] == 0x33 && id[EI_ABIVERSION] == 7)
		c->architecture = h->e_flags & 0xff;
	else if (id[EI_OSABI] == 0x41 && id[EI_ABIVERSION] == 8)
		c->architecture = h->e_flags >> 8 & 0xff;
	return c->architecture;
}

bool cubin_has_bytes(const struct cubin *c, uint32_t section)
{
	return c->sections[section].sh_type != SHT_NOBITS;
}

static const char *read_sections(struct cubin *c)
{
	const Elf64_Ehdr *h = &c->header;
	size_t size = (size_t)h->e_shnum * sizeof(*c->sections);

	if (h->e_shentsize != sizeof(*c->sections) || !h->e_shnum || h->e_shstrndx >= h->e_shnum ||
	    !lies_in(c, h->e_shoff, size))
		return damaged;
	if (!(c->sections = malloc(size)))
		return no_memory;
	memcpy(c->sections, c->bytes + h->e_shoff, size);
	c->section_count = h->e_shnum;
	for (uint32_t i = 0; i < c->section_count; i++) {
		const Elf64_Shdr *s = &c->sections[i];
		if (cubin_has_bytes(c, i) && !lies_in(c, s->sh_offset, s->sh_size))
			return damaged;
	}
	const Elf64_Shdr *names = &c->sections[h->e_shstrndx];
	if (names->sh_type != SHT_STRTAB || !names->sh_size || c->bytes[names->sh_offset + names->sh_size - 1])
		return damaged;
	for (uint32_t i = 0; i < c->section_count; i++)
		if (c->sections[i].sh_name >= names->sh_size)
			return damaged;
	return NULL;
}

const char *cubin_section_name(const struct cubin *c, uint32_t section)
{
	return (const char *)c->bytes + c->sections[c->header.e_shstrndx].sh_offset + c->sections[section].sh_name;
}

static const char *read_symbols(struct cubin *c)
{
	for (uint32_t i = 1; i < c->section_count; i++) {
		if (c->sections[i].sh_type == SHT_SYMTAB) {
			if (c->symbol_table)
				return no_cubin;
			c->symbol_table = i;
		}
	}
	const Elf64_Shdr *t = &c->sections[c->symbol_table];
	if (!c->symbol_table || t->sh_entsize != sizeof(Elf64_Sym) || t->sh_size % sizeof(Elf64_Sym))
		return no_cubin;
	return t->sh_link < c->section_count && cubin_has_bytes(c, t->sh_link) ? NULL : damaged;
}

static uint32_t symbol_count(const struct cubin *c)
{
	return (uint32_t)(c->sections[c->symbol_table].sh_size / sizeof(Elf64_Sym));
}

Elf64_Sym cubin_symbol(const struct cubin *c, uint32_t symbol)
{
	Elf64_Sym s;

	memcpy(&s, c->bytes + c->sections[c->symbol_table].sh_offset + symbol * sizeof(s), sizeof(s));
	return s;
}

bool cubin_attribute(const struct cubin *c, uint32_t section, size_t *offset, struct attribute *a)
{
	const Elf64_Shdr *s = &c->sections[section];

	if (s->sh_size - *offset < 4)
		return false;
	const uint8_t *at = c->bytes + s->sh_offset + *offset;
	*a = (struct attribute){at[0], at[1], (uint16_t)(at[2] | at[3] << 8), s->sh_offset + *offset + 4};
	size_t data = a->form == FORM_SIZED ? a->value : 0;
	if (a->form < FORM_NONE || a->form > FORM_SIZED || data > s->sh_size - *offset - 4)
		return false;
	*offset += 4 + data;
	return true;
}

/* Whether all of a section's attributes can be read. */
static bool attributes_whole(const struct cubin *c, uint32_t section)
{
	struct attribute a;
	size_t offset = 0;

	while (cubin_attribute(c, section, &offset, &a))
		continue;
	return offset == c->sections[section].sh_size;
}

static uint32_t product(const struct cubin *c, const struct attribute *a)
{
	uint64_t n = 1;

	for (size_t i = 0; i + 4 <= a->value && i < 12; i += 4)
		if ((n *= cubin_word(c, a->data + i)) > UINT32_MAX)
			return UINT32_MAX;
	return (uint32_t)n;
}

static void read_attributes(const struct cubin *c, struct cubin_kernel *k)
{
	struct attribute a;

	for (size_t offset = 0; k->info && cubin_attribute(c, k->info, &offset, &a);)
		if (a.kind == ATTRIBUTE_CLUSTER && a.form == FORM_SIZED && a.value == 12)
			k->cluster = product(c, &a);
}

static bool is_kernel(const struct cubin *c, uint32_t symbol, uint32_t section)
{
	if (symbol >= symbol_count(c))
		return false;
	Elf64_Sym y = cubin_symbol(c, symbol);
	return ELF64_ST_TYPE(y.st_info) == STT_FUNC && y.st_other & KERNEL && y.st_shndx == section && !y.st_value;
}

/* Its symbol; 0: it is no kernel. cuBLAS has cubins whose sections name none. */
static uint32_t kernel_symbol(const struct cubin *c, uint32_t section)
{
	uint32_t named = c->sections[section].sh_info & 0xffffff;

	if (named)
		return is_kernel(c, named, section) ? named : 0;
	for (uint32_t i = 1; i < symbol_count(c); i++)
		if (is_kernel(c, i, section))
			return i;
	return 0;
}

static bool read_kernel(const struct cubin *c, uint32_t section, struct cubin_kernel *k)
{
	static const char text[] = ".text.";
	const Elf64_Shdr *s = &c->sections[section];
	const char *name = cubin_section_name(c, section);

	if (s->sh_type != SHT_PROGBITS || !(s->sh_flags & SHF_EXECINSTR) || !s->sh_size ||
	    strncmp(name, text, sizeof(text) - 1))
		return false;
	uint32_t symbol = kernel_symbol(c, section);
	if (!symbol)
		return false;
	*k = (struct cubin_kernel){.name = name + sizeof(text) - 1,
				   .section = section,
				   .symbol = symbol,
				   .code = s->sh_offset,
				   .size = s->sh_size};
	return true;
}

static const char *read_kernels(struct cubin *c)
{
	if (!(c->kernels = calloc(c->section_count, sizeof(*c->kernels))))
		return no_memory;
	/* by section, because attributes come before their code */
	uint32_t *infos = calloc(c->section_count, sizeof(*infos));
	if (!infos)
		return no_memory;
	for (uint32_t i = 1; i < c->section_count; i++) {
		const Elf64_Shdr *s = &c->sections[i];
		if (s->sh_type == TYPE_NV_INFO && s->sh_info && s->sh_info < c->section_count)
			infos[s->sh_info] = i;
	}
	for (uint32_t i = 1; i < c->section_count; i++) {
		struct cubin_kernel *k = &c->kernels[c->kernel_count];
		if (!read_kernel(c, i, k))
			continue;
		k->info = infos[i];
		if (k->info && !attributes_whole(c, k->info)) {
			free(infos);
			return damaged;
		}
		read_attributes(c, k);
		c->kernel_count++;
	}
	free(infos);
	return NULL;
}

const char *cubin_open(struct cubin *c, const void *image, size_t size)
{
	const char *wrong = NULL;

	*c = (struct cubin){.bytes = image, .size = size};
	if (size >= sizeof(c->header))
		memcpy(&c->header, image, sizeof(c->header));
	const unsigned char *id = c->header.e_ident;
	if (memcmp(id, ELFMAG, SELFMAG) || id[EI_CLASS] != ELFCLASS64 || id[EI_DATA] != ELFDATA2LSB ||
	    c->header.e_machine != MACHINE_CUDA || !read_architecture(c))
		wrong = no_cubin;
	if (!wrong)
		wrong = read_sections(c);
	if (!wrong)
		wrong = read_symbols(c);
	if (!wrong)
		wrong = read_kernels(c);
	if (wrong)
		cubin_close(c);
	return wrong;
}

void cubin_close(struct cubin *c)
{
	free(c->sections);
	free(c->kernels);
	*c = (struct cubin){0};
}
