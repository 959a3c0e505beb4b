/*
 * A library's own function, whatever stands in front of it: dlsym and the program's links may
 * give what was preloaded, the library's symbol table does not.
 */
#ifndef BENCH_OWN_H
#define BENCH_OWN_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct own_search {
	const char *library, *symbol;
	void *found;
};

static uint32_t own_hash(const char *name)
{
	uint32_t h = 5381;

	while (*name)
		h = h * 33 + (unsigned char)*name++;
	return h;
}

/* The table that DT_GNU_HASH describes: buckets of chains, each chain's last hash is odd. */
static const ElfW(Sym) *own_lookup(const uint32_t *table, const ElfW(Sym) *symbols, const char *strings, const char *name)
{
	uint32_t count = table[0], first = table[1], filter = table[2], h = own_hash(name);
	const uint32_t *buckets = (const uint32_t *)((const uint64_t *)(table + 4) + filter), *chains = buckets + count;

	for (uint32_t i = buckets[h % count]; i >= first; i++) {
		if ((chains[i - first] | 1) == (h | 1) && !strcmp(strings + symbols[i].st_name, name))
			return &symbols[i];
		if (chains[i - first] & 1)
			break;
	}
	return NULL;
}

static int own_in(struct dl_phdr_info *object, size_t size, void *context)
{
	struct own_search *s = context;
	const ElfW(Sym) *symbols = NULL, *found;
	const uint32_t *table = NULL;
	const char *strings = NULL;

	(void)size;
	if (!strstr(object->dlpi_name, s->library))
		return 0;
	for (int i = 0; i < object->dlpi_phnum; i++) {
		if (object->dlpi_phdr[i].p_type != PT_DYNAMIC)
			continue;
		/* The loader has made the addresses in it absolute. */
		for (const ElfW(Dyn) *d = (void *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr); d->d_tag; d++)
			if (d->d_tag == DT_SYMTAB)
				symbols = (void *)d->d_un.d_ptr;
			else if (d->d_tag == DT_STRTAB)
				strings = (void *)d->d_un.d_ptr;
			else if (d->d_tag == DT_GNU_HASH)
				table = (void *)d->d_un.d_ptr;
	}
	if (symbols && strings && table && (found = own_lookup(table, symbols, strings, s->symbol)))
		s->found = (void *)(object->dlpi_addr + found->st_value);
	return s->found != NULL;
}

static void *own_symbol(const char *library, const char *symbol)
{
	struct own_search s = {library, symbol, NULL};

	dl_iterate_phdr(own_in, &s);
	if (!s.found) {
		fprintf(stderr, "%s: no %s in its symbol table\n", library, symbol);
		exit(1);
	}
	return s.found;
}

#endif
