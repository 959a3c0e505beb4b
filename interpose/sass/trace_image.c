/*
 * Makes cubins with a traced kernel. See trace_image.h for the invariant.
 *
 * Of the kernel's sections these change: its code, its parameters (.nv.constant0 and .nv.info), the number of its
 * registers and bytes of its stack (.nv.info of the cubin; the registers also in the high byte of the code section's
 * sh_info in older ones), its symbol. Code
 * has the addresses of variables from constant banks, or in its instructions, where the driver puts them by relocations.
 * Those of variables are replaced by the addresses of the program's variables.
 */
#include "sass/trace_image.h"

#include <stdlib.h>
#include <string.h>

#include "sass/patch.h"
#include "sass/rebuild.h"
#include "trace_ring.h"

#define PARAMETERS_BEGIN 0x210u /* in constant bank 0 of sm_90 */
#define PARAMETERS_MAX 4096u /* bytes */
#define PARAMETER_FLAGS 0x1f000u
#define MANAGED 0x04 /* in st_other */
#define ADDRESS 2u   /* relocation: an address of 64 bits */
#define LOW_WORD 0x38u  /* the number of an instruction is half of one */
#define HIGH_WORD 0x39u
#define REGISTERS_SHIFT 24 /* in sh_info */
#define REGISTERS_MAX 255u
#define WIDEST 16u         /* bytes of a constant that an instruction reads */

struct maker {
	struct cubin cubin; /* its bytes are a copy, which may be changed */
	const struct cubin_kernel *kernel;
	const struct trace_variables *variables;
	uint8_t *copy;
	uint32_t bank_section, bank_symbol; /* .nv.constant0 of the kernel */
	uint32_t begin, own, offset;     /* of parameters in the bank: of all, bytes of the kernel's, the additional one */
	uint32_t parameters, registers_at;  /* registers_at: place of their number in the file */
	uint32_t frame_at, stack_at;        /* places of the bytes of its stack; 0: unknown */
	uint32_t registers;
};

static uint16_t half(const struct cubin *c, size_t at)
{
	return (uint16_t)(c->bytes[at] | c->bytes[at + 1] << 8);
}

static const char *symbol_name(const struct cubin *c, Elf64_Sym y)
{
	const Elf64_Shdr *names = &c->sections[c->sections[c->symbol_table].sh_link];

	if (y.st_name >= names->sh_size || !memchr(c->bytes + names->sh_offset + y.st_name, 0, names->sh_size - y.st_name))
		return "";
	return (const char *)c->bytes + names->sh_offset + y.st_name;
}

static uint32_t symbol_count(const struct cubin *c)
{
	return (uint32_t)(c->sections[c->symbol_table].sh_size / sizeof(Elf64_Sym));
}

/* ---- what the kernel has ---- */

static const char *find_numbers(struct maker *m)
{
	const struct cubin *c = &m->cubin;
	struct attribute a;

	for (uint32_t i = 1; i < c->section_count; i++) {
		if (strcmp(cubin_section_name(c, i), ".nv.info") || !cubin_has_bytes(c, i))
			continue;
		for (size_t offset = 0; cubin_attribute(c, i, &offset, &a);)
			if (a.form == FORM_SIZED && a.value == 8 && cubin_word(c, a.data) == m->kernel->symbol) {
				uint32_t at = (uint32_t)a.data + 4;
				m->registers_at = a.kind == ATTRIBUTE_REGISTERS ? at : m->registers_at;
				m->frame_at = a.kind == ATTRIBUTE_FRAME ? at : m->frame_at;
				m->stack_at = a.kind == ATTRIBUTE_STACK ? at : m->stack_at;
			}
	}
	m->registers = m->registers_at ? cubin_word(c, m->registers_at) : 0;
	return m->registers && m->registers <= REGISTERS_MAX ? NULL : "its number of registers is unknown";
}

/* The section of the kernel's constant bank 0, and the symbol of that section. */
static const char *find_bank(struct maker *m)
{
	const struct cubin *c = &m->cubin;
	static const char prefix[] = ".nv.constant0.";

	for (uint32_t i = 1; i < c->section_count; i++)
		if (!strncmp(cubin_section_name(c, i), prefix, sizeof(prefix) - 1) &&
		    !strcmp(cubin_section_name(c, i) + sizeof(prefix) - 1, m->kernel->name))
			m->bank_section = i;
	for (uint32_t i = 1; m->bank_section && i < symbol_count(c); i++) {
		Elf64_Sym y = cubin_symbol(c, i);
		if (y.st_shndx == m->bank_section && ELF64_ST_TYPE(y.st_info) == STT_SECTION)
			m->bank_symbol = i;
	}
	bool alone = m->bank_symbol && cubin_has_bytes(c, m->bank_section) && cubin_stands_alone(c, m->bank_section);
	return alone ? NULL : "its constant bank is unknown";
}

static const char *find_parameters(struct maker *m)
{
	const struct cubin *c = &m->cubin;
	struct attribute a;

	m->begin = PARAMETERS_BEGIN;
	for (size_t offset = 0; m->kernel->info && cubin_attribute(c, m->kernel->info, &offset, &a);) {
		if (a.kind == ATTRIBUTE_PARAM_V2)
			return "its parameters have an unknown form";
		if (a.kind == ATTRIBUTE_PARAM && a.form == FORM_SIZED)
			m->parameters++;
		if (a.kind == ATTRIBUTE_PARAM_BYTES && a.form == FORM_HALF)
			m->own = a.value;
		if (a.kind == ATTRIBUTE_PARAM_BANK && a.form == FORM_SIZED && a.value == 8)
			m->begin = half(c, a.data + 4);
	}
	m->offset = (m->own + 7) & ~7u;
	if (!m->kernel->info || !cubin_stands_alone(c, m->kernel->info) || m->begin < PARAMETERS_BEGIN)
		return "its attributes are unknown";
	return m->offset + sizeof(struct tt_trace_param) <= PARAMETERS_MAX ? NULL : "it has no room for one more parameter";
}

/* ---- variables ---- */

static bool is_named(const char *name, const char *prefix)
{
	return !strncmp(name, prefix, strlen(prefix));
}

/* A string that code prints, or says where an assertion is: the new module's own is as good. */
static bool is_text(const char *name)
{
	return is_named(name, "$str") || is_named(name, "__unnamed_");
}

/* Instructions that may read part of a constant bank; one with an index may read any. */
struct constant_use {
	const struct cubin *cubin;
	unsigned bank;
	uint64_t begin, end;
	bool found;
};

/* Whether it has a number of 32 bits, where others have banks and offsets. */
static bool has_number(struct instruction i)
{
	unsigned form = i.low >> 8 & 0xf;

	return form == 4 || form == 8;
}

static void find_constant_use(void *user, const Elf64_Shdr *s)
{
	struct constant_use *use = user;
	struct instruction i;

	for (size_t at = 0; at + sizeof(i) <= s->sh_size; at += sizeof(i)) {
		memcpy(&i, use->cubin->bytes + s->sh_offset + at, sizeof(i));
		uint64_t offset = (i.low >> 40 & 0x3fff) * 4;
		bool indexed = (i.low >> 24 & 0xff) != 0xff;
		use->found |= !has_number(i) && (i.low >> 54 & 0x1f) == use->bank &&
			      (indexed || (offset < use->end && offset + WIDEST > use->begin));
	}
}

static bool may_read(const struct cubin *c, const struct cubin_kernel *k, uint32_t section, uint64_t begin, uint64_t size)
{
	struct constant_use use = {c, 0, begin, begin + size, false};

	use.bank = (unsigned)atoi(cubin_section_name(c, section) + strlen(".nv.constant"));
	patch_each_code(c, k, find_constant_use, &use);
	return use.found;
}

/* Where a relocation puts an address: so many bytes of it, from a bit on. */
struct place {
	uint64_t at; /* in its section */
	size_t size;
	unsigned from;
};

static bool find_place(const struct cubin *c, uint32_t section, const Elf64_Rela *r, struct place *p)
{
	const Elf64_Shdr *to = &c->sections[section];
	bool code = to->sh_flags & SHF_EXECINSTR;
	uint64_t type = ELF64_R_TYPE(r->r_info), size = code ? sizeof(struct instruction) : sizeof(uint64_t);
	struct instruction i;

	if (!cubin_has_bytes(c, section) || r->r_offset > to->sh_size || to->sh_size - r->r_offset < size)
		return false;
	if (!code) {
		*p = (struct place){r->r_offset, sizeof(uint64_t), 0};
		return type == ADDRESS;
	}
	memcpy(&i, c->bytes + to->sh_offset + r->r_offset, sizeof(i));
	*p = (struct place){r->r_offset + sizeof(uint32_t), sizeof(uint32_t), type == HIGH_WORD ? 32 : 0};
	return has_number(i) && (type == LOW_WORD || type == HIGH_WORD);
}

/* Replaces the relocation of an address by the address in the program's module. */
static const char *redirect(struct maker *m, uint32_t section, const Elf64_Rela *r, const char *name, bool *done)
{
	uint64_t address;
	struct place p;

	if (!find_place(&m->cubin, section, r, &p))
		return "it finds its variables in an unknown way";
	if (!(address = m->variables->address(m->variables->user, name)))
		return "the address of one of its module's variables is unknown";
	*done = true;
	address = (address + (uint64_t)r->r_addend) >> p.from;
	memcpy(m->copy + m->cubin.sections[section].sh_offset + p.at, &address, p.size);
	return NULL;
}

/* One relocation of section `to`, which code reads; sets *done if it is not needed any more. */
static const char *relocate(struct maker *m, uint32_t to, const Elf64_Rela *r, bool *done)
{
	const struct cubin *c = &m->cubin;
	uint32_t number = (uint32_t)ELF64_R_SYM(r->r_info);

	if (number >= symbol_count(c))
		return "the relocations are damaged";
	Elf64_Sym y = cubin_symbol(c, number);
	if (!y.st_shndx || y.st_shndx >= c->section_count || !is_named(cubin_section_name(c, y.st_shndx), ".nv.global") ||
	    is_text(symbol_name(c, y)))
		return NULL;
	if (!(c->sections[to].sh_flags & SHF_EXECINSTR) && !may_read(c, m->kernel, to, r->r_offset, sizeof(uint64_t)))
		return NULL;
	if (y.st_other & MANAGED)
		return "it uses managed variables";
	return redirect(m, to, r, symbol_name(c, y), done);
}

static bool is_read_by_code(const struct maker *m, uint32_t section)
{
	const struct cubin *c = &m->cubin;
	const char *name = cubin_section_name(c, section);

	if (c->sections[section].sh_flags & SHF_EXECINSTR) { /* of other kernels it does not matter */
		for (size_t i = 0; i < c->kernel_count; i++)
			if (c->kernels[i].section == section)
				return section == m->kernel->section;
		return true;
	}
	return is_named(name, ".nv.constant");
}

/* The relocations of a section: those that are done are removed. */
static const char *relocate_all(struct maker *m, Elf64_Shdr *s)
{
	size_t kept = s->sh_offset, end = s->sh_offset + s->sh_size;

	for (size_t at = s->sh_offset; at + sizeof(Elf64_Rela) <= end; at += sizeof(Elf64_Rela)) {
		bool done = false;
		Elf64_Rela r;
		memcpy(&r, m->copy + at, sizeof(r));
		const char *wrong = relocate(m, s->sh_info, &r, &done);
		if (wrong)
			return wrong;
		if (done)
			continue;
		memcpy(m->copy + kept, &r, sizeof(r));
		kept += sizeof(r);
	}
	s->sh_size = kept - s->sh_offset;
	return NULL;
}

static const char *redirect_variables(struct maker *m)
{
	const struct cubin *c = &m->cubin;
	const char *wrong = NULL;

	for (uint32_t i = 1; !wrong && i < c->section_count; i++) {
		Elf64_Shdr *s = &c->sections[i];
		if ((s->sh_type != SHT_RELA && s->sh_type != SHT_REL) || !s->sh_info || s->sh_info >= c->section_count ||
		    !s->sh_size || !is_read_by_code(m, s->sh_info))
			continue;
		wrong = s->sh_type == SHT_REL ? "its relocations have an unknown form" : relocate_all(m, s);
	}
	return wrong;
}

void trace_constants(const struct cubin *c, const struct cubin_kernel *k, void (*visit)(void *user, const char *name),
		     void *user)
{
	for (uint32_t i = 1; i < symbol_count(c); i++) {
		Elf64_Sym y = cubin_symbol(c, i);
		if (ELF64_ST_TYPE(y.st_info) == STT_OBJECT && y.st_shndx && y.st_shndx < c->section_count &&
		    !strcmp(cubin_section_name(c, y.st_shndx), ".nv.constant3") &&
		    may_read(c, k, y.st_shndx, y.st_value, y.st_size))
			visit(user, symbol_name(c, y));
	}
}

/* ---- the new cubin ---- */

static void add(uint8_t **to, uint8_t form, uint8_t kind, const void *data, uint16_t size)
{
	uint8_t *at = *to;

	at[0] = form;
	at[1] = kind;
	memcpy(at + 2, &size, sizeof(size));
	if (data)
		memcpy(at + 4, data, size);
	*to = at + 4 + (data ? size : 0);
}

static void add_parameter(const struct maker *m, uint8_t **to)
{
	const uint32_t parameter[3] = {0, m->parameters | m->offset << 16,
				       (uint32_t)sizeof(struct tt_trace_param) << 18 | PARAMETER_FLAGS};
	const uint32_t bank[2] = {m->bank_symbol, m->begin | (m->offset + (uint32_t)sizeof(struct tt_trace_param)) << 16};

	add(to, FORM_SIZED, ATTRIBUTE_PARAM, parameter, sizeof(parameter));
	add(to, FORM_HALF, ATTRIBUTE_PARAM_BYTES, NULL, (uint16_t)(bank[1] >> 16));
	add(to, FORM_SIZED, ATTRIBUTE_PARAM_BANK, bank, sizeof(bank));
}

/* The kernel's attributes with one more parameter, the first in the list. `to` has room for them. */
static size_t put_attributes(const struct maker *m, unsigned registers, uint8_t *to)
{
	const struct cubin *c = &m->cubin;
	uint8_t *begin = to;
	bool added = false;
	struct attribute a;

	for (size_t offset = 0; cubin_attribute(c, m->kernel->info, &offset, &a);) {
		if (a.kind == ATTRIBUTE_PARAM && !added) {
			add_parameter(m, &to);
			added = true;
		}
		if (a.kind == ATTRIBUTE_PARAM_BYTES || a.kind == ATTRIBUTE_PARAM_BANK)
			continue; /* added above, or below */
		bool fewer = a.kind == ATTRIBUTE_REGISTERS_MAX && a.form == FORM_HALF && a.value < registers;
		add(&to, a.form, a.kind, a.form == FORM_SIZED ? c->bytes + a.data : NULL,
		    fewer ? (uint16_t)registers : a.value);
	}
	if (!added)
		add_parameter(m, &to);
	return (size_t)(to - begin);
}

static void increase(struct maker *m, uint32_t at, uint32_t by)
{
	uint32_t value = cubin_word(&m->cubin, at) + by;

	memcpy(m->copy + at, &value, sizeof(value));
}

#define MORE_ATTRIBUTES 64u

static uint8_t *assemble(struct maker *m, const struct traced_code *code, size_t *size)
{
	struct cubin *c = &m->cubin;
	const Elf64_Shdr *info = &c->sections[m->kernel->info], *bank = &c->sections[m->bank_section];
	size_t bank_size = m->begin + m->offset + sizeof(struct tt_trace_param);
	uint8_t *attributes = calloc(1, info->sh_size + MORE_ATTRIBUTES), *constants = NULL, *out = NULL;
	Elf64_Shdr *text = &c->sections[m->kernel->section];
	uint32_t registers = code->registers;

	if (bank_size < bank->sh_size)
		bank_size = bank->sh_size;
	constants = calloc(1, bank_size);
	if (attributes && constants) {
		memcpy(constants, c->bytes + bank->sh_offset, bank->sh_size);
		patch_tell(c, m->kernel, code->moved, code->count * SASS_INSTRUCTION, m->copy);
		increase(m, m->registers_at, registers - m->registers);
		if (code->stack) {
			increase(m, m->frame_at, code->stack);
			increase(m, m->stack_at, code->stack);
		}
		if (text->sh_info >> REGISTERS_SHIFT)
			text->sh_info += (registers - m->registers) << REGISTERS_SHIFT;
		size_t attribute_size = put_attributes(m, registers, attributes);
		const struct section_contents contents[] = {
			{m->kernel->section, (const uint8_t *)code->code, code->count * SASS_INSTRUCTION},
			{m->kernel->info, attributes, attribute_size},
			{m->bank_section, constants, bank_size},
		};
		out = cubin_rebuild(c, contents, sizeof(contents) / sizeof(*contents), size);
	}
	free(attributes);
	free(constants);
	return out;
}

struct use {
	const struct cubin *cubin;
	struct trace_used *used;
};

static void note_use(void *user, const Elf64_Shdr *s)
{
	const struct use *use = user;
	struct instruction i;

	for (size_t at = 0; at + sizeof(i) <= s->sh_size; at += sizeof(i)) {
		memcpy(&i, use->cubin->bytes + s->sh_offset + at, sizeof(i));
		trace_use(use->cubin->architecture, i, use->used);
	}
}

static const char *make(struct maker *m, const struct patch_kernel *p, struct trace_point *points,
			const struct trace_wish *wish, struct traced_image *out)
{
	const struct cubin_kernel *k = m->kernel;
	struct trace_kernel from = {.architecture = m->cubin.architecture,
				    .registers = m->registers,
				    .parameter = m->begin + m->offset,
				    .count = k->size / SASS_INSTRUCTION,
				    .fixed = patch_fixed(p),
				    .wish = *wish};
	struct instruction *code = malloc(k->size);
	struct traced_code traced;

	if (!code)
		return "no host memory";
	from.code = memcpy(code, m->cubin.bytes + k->code, k->size);
	patch_each_code(&m->cubin, k, note_use, &(struct use){&m->cubin, &from.used});
	const char *wrong = trace_insert(&from, points, &traced);
	if (!wrong && traced.stack && !(m->frame_at && m->stack_at))
		wrong = "the size of its stack is unknown";
	if (!wrong && !(out->bytes = assemble(m, &traced, &out->size)))
		wrong = "no host memory";
	if (!wrong) {
		out->parameters = m->parameters;
		out->offset = m->offset;
		out->registers = traced.registers;
		out->of_threads = traced.of_threads;
		out->points = traced.points;
		out->slots = traced.slots;
		out->slot_count = traced.slot_count;
		out->stride = traced.stride;
		out->copies = traced.copies;
		traced.slots = NULL;
	}
	free(code);
	traced_code_free(&traced);
	return wrong;
}

const char *trace_image(const struct cubin *c, const struct cubin_kernel *k, struct trace_point *points,
			const struct trace_wish *wish, const struct trace_variables *variables, struct traced_image *out)
{
	struct maker m = {.kernel = k, .variables = variables};
	struct patch_kernel *p = NULL;
	const char *wrong;

	*out = (struct traced_image){0};
	if (!trace_kinds(c->architecture))
		return "no recording code for its architecture (--way sanitizer has some: pip install 'ttanalyze[instrument]')";
	if (!(m.copy = malloc(c->size)) || cubin_open(&m.cubin, memcpy(m.copy, c->bytes, c->size), c->size)) {
		free(m.copy);
		return "no host memory";
	}
	wrong = patch_open(&m.cubin, k, &p);
	wrong = wrong ? wrong : find_numbers(&m);
	wrong = wrong ? wrong : find_bank(&m);
	wrong = wrong ? wrong : find_parameters(&m);
	wrong = wrong ? wrong : redirect_variables(&m);
	wrong = wrong ? wrong : make(&m, p, points, wish, out);
	patch_close(p);
	cubin_close(&m.cubin);
	free(m.copy);
	return wrong;
}

void traced_image_free(struct traced_image *image)
{
	free(image->bytes);
	free(image->slots);
	*image = (struct traced_image){0};
}
