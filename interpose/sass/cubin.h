/*
 * Cubins in memory: ELF files with machine code for one architecture.
 *
 * Invariant: an image comes from the program and may contain anything. If cubin_open accepts it, its sections,
 * symbols and attributes are inside the image; nothing here reads outside it.
 */
#ifndef TT_SASS_CUBIN_H
#define TT_SASS_CUBIN_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SASS_INSTRUCTION 16u /* bytes */

/* Kinds of attributes in .nv.info sections, as NVIDIA's disassembler names them. */
enum {
	ATTRIBUTE_PARAM_BANK = 0x0a,  /* symbol of the constant bank, u16 offset, u16 size */
	ATTRIBUTE_FRAME = 0x11,       /* symbol of the kernel, bytes; in .nv.info */
	ATTRIBUTE_STACK = 0x12,       /* the same with the functions that it calls */
	ATTRIBUTE_PARAM = 0x17,       /* index, u16 ordinal, u16 offset, size << 18 and flags */
	ATTRIBUTE_PARAM_BYTES = 0x19, /* FORM_HALF */
	ATTRIBUTE_REGISTERS_MAX = 0x1b, /* FORM_HALF */
	ATTRIBUTE_REGISTERS = 0x2f,   /* symbol of the kernel, number; in .nv.info */
	ATTRIBUTE_CLUSTER = 0x3d,
	ATTRIBUTE_PARAM_V2 = 0x45,
};

/* Where an attribute has its value: none, in the header's last byte or two, or after it. */
enum { FORM_NONE = 1, FORM_BYTE, FORM_HALF, FORM_SIZED };

struct attribute {
	uint8_t form, kind;
	uint16_t value; /* of FORM_SIZED: bytes of data */
	size_t data; /* its offset in the image */
};

struct cubin_kernel {
	const char *name;
	uint32_t section, symbol, info; /* numbers of its .text, symbol and .nv.info; info 0: none */
	size_t code, size;  /* offset in the image, and bytes */
	uint32_t cluster;   /* blocks in each cluster; 0: not stated */
};

struct cubin {
	const uint8_t *bytes;
	size_t size;
	unsigned architecture; /* 90 for sm_90 and sm_90a */
	Elf64_Ehdr header;
	Elf64_Shdr *sections;
	uint32_t section_count, symbol_table; /* symbol_table: number of .symtab */
	struct cubin_kernel *kernels;
	size_t kernel_count;
};

/* Returns NULL, or why the image can't be read; then c is empty. */
const char *cubin_open(struct cubin *c, const void *image, size_t size);
void cubin_close(struct cubin *c);

/* Whether the section has bytes in the file. If not, its offset may be anything. */
bool cubin_has_bytes(const struct cubin *c, uint32_t section);
const char *cubin_section_name(const struct cubin *c, uint32_t section);
Elf64_Sym cubin_symbol(const struct cubin *c, uint32_t symbol);
/* Iterates over the attributes of a section; *offset is 0 at first. False: the end, or invalid. */
bool cubin_attribute(const struct cubin *c, uint32_t section, size_t *offset, struct attribute *a);
uint32_t cubin_word(const struct cubin *c, size_t at);

#endif
