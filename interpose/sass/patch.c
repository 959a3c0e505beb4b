/*
 * Patches cubins. See patch.h for the invariant.
 *
 * Attributes of the kernel have offsets of instructions, and follow moved instructions. So do relocations, but their
 * instructions are not moved.
 */
#include "sass/patch.h"

#include <stdlib.h>
#include <string.h>

#include "sass/blocks.h"
#include "sass/rebuild.h"

#define ALIGN 128u /* alignment of code */
#define ALIGN_MAX 4096u
#define CODE_MAX (1u << 28)

/*
 * What the data of an attribute refers to: no instructions, or records of that size that begin with the offset of
 * one. Unlisted attributes may refer to anything.
 */
enum { SAYS_ANYTHING, SAYS_NOTHING, SAYS_OFFSETS = 4, SAYS_PAIRS = 8, SAYS_FOURS = 16 };

static const uint8_t says[256] = {
	[0x05] = SAYS_NOTHING, /* MAX_THREADS */
	[0x0a] = SAYS_NOTHING, /* PARAM_CBANK */
	[0x0f] = SAYS_NOTHING, /* EXTERNS */
	[0x10] = SAYS_NOTHING, /* REQNTID */
	[0x11] = SAYS_NOTHING, /* FRAME_SIZE */
	[0x12] = SAYS_NOTHING, /* MIN_STACK_SIZE */
	[0x17] = SAYS_NOTHING, /* KPARAM_INFO */
	[0x18] = SAYS_NOTHING, /* SMEM_PARAM_SIZE */
	[0x1c] = SAYS_OFFSETS, /* EXIT_INSTR_OFFSETS */
	[0x1d] = SAYS_OFFSETS, /* S2RCTAID_INSTR_OFFSETS */
	[0x1e] = SAYS_NOTHING, /* CRS_STACK_SIZE */
	[0x23] = SAYS_NOTHING, /* MAX_STACK_SIZE */
	[0x25] = SAYS_OFFSETS, /* LD_CACHEMOD_INSTR_OFFSETS */
	[0x27] = SAYS_OFFSETS, /* ATOM_SYS_INSTR_OFFSETS */
	[0x28] = SAYS_OFFSETS, /* COOP_GROUP_INSTR_OFFSETS */
	[0x29] = SAYS_NOTHING, /* COOP_GROUP_MASK_REGIDS */
	[0x2e] = SAYS_PAIRS,   /* ATOM16_EMUL_INSTR_REG_MAP: also a register */
	[0x31] = SAYS_OFFSETS, /* INT_WARP_WIDE_INSTR_OFFSETS */
	[0x34] = SAYS_NOTHING, /* INDIRECT_BRANCH_TARGETS: branches, which are not moved, and their targets */
	[0x36] = SAYS_NOTHING, /* SW_WAR: flags */
	[0x37] = SAYS_NOTHING, /* CUDA_API_VERSION */
	[0x39] = SAYS_FOURS,   /* MBARRIER_INSTR_OFFSETS: also the barrier and its use */
	[0x3d] = SAYS_NOTHING, /* CTA_PER_CLUSTER */
	[0x3f] = SAYS_NOTHING, /* MAX_CLUSTER_RANK */
	[0x44] = SAYS_PAIRS,   /* UNUSED_LOAD_BYTE_OFFSET: also the unused bytes */
	[0x45] = SAYS_NOTHING, /* KPARAM_INFO_V2 */
	[0x46] = SAYS_OFFSETS, /* SYSCALL_OFFSETS */
	[0x55] = SAYS_NOTHING, /* ANNOTATIONS: remarks for people */
	[0x66] = SAYS_NOTHING, /* of CUDA 13.4, for which no tool has a name; 3 in every kernel, so no offset */
};

struct patch_kernel {
	const struct cubin *cubin;
	const struct cubin_kernel *kernel;
	struct spare spare;   /* registers for delays */
	const char *no_delays;   /* why there are none */
	bool *fixed;             /* by instruction: as patch_fixed */
};

static const char *check_image(const struct cubin *c)
{
	const Elf64_Ehdr *h = &c->header;

	if (!code_known(c->architecture))
		return "unknown architecture";
	if (h->e_type != ET_EXEC)
		return "the cubin is not linked";
	if (h->e_phnum && (h->e_phentsize != sizeof(Elf64_Phdr) || h->e_phoff > c->size ||
			   (c->size - h->e_phoff) / sizeof(Elf64_Phdr) < h->e_phnum))
		return "the program headers are damaged";
	for (uint32_t i = 1; i < c->section_count; i++)
		if (c->sections[i].sh_addralign > ALIGN_MAX || c->sections[i].sh_addr)
			return "unknown section layout";
	return NULL;
}

static const char *check_attributes(const struct cubin *c, const struct cubin_kernel *k)
{
	struct attribute a;

	for (size_t offset = 0; k->info && cubin_attribute(c, k->info, &offset, &a);)
		if (a.form == FORM_SIZED &&
		    (says[a.kind] == SAYS_ANYTHING || (says[a.kind] > SAYS_NOTHING && a.value % says[a.kind])))
			return "unknown attribute";
	return NULL;
}

static const char *note_relocations(struct patch_kernel *p)
{
	const struct cubin *c = p->cubin;
	const struct cubin_kernel *k = p->kernel;

	for (uint32_t i = 1; i < c->section_count; i++) {
		const Elf64_Shdr *s = &c->sections[i];
		size_t each = s->sh_type == SHT_RELA ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);
		if ((s->sh_type != SHT_RELA && s->sh_type != SHT_REL) || s->sh_info != k->section)
			continue;
		if (s->sh_size % each)
			return "the relocations are damaged";
		for (size_t at = 0; at < s->sh_size; at += each) {
			Elf64_Addr offset;
			memcpy(&offset, c->bytes + s->sh_offset + at, sizeof(offset));
			if (offset >= k->size)
				return "the relocations are damaged";
			p->fixed[offset / SASS_INSTRUCTION] = true;
		}
	}
	return NULL;
}

static struct instruction read_instruction(const struct cubin *c, size_t at)
{
	struct instruction i;

	memcpy(&i, c->bytes + at, sizeof(i));
	return i;
}

void patch_each_code(const struct cubin *c, const struct cubin_kernel *k, void (*visit)(void *user, const Elf64_Shdr *s),
		     void *user)
{
	size_t kernel = 0;

	for (uint32_t i = 1; i < c->section_count; i++) {
		const Elf64_Shdr *s = &c->sections[i];
		while (kernel < c->kernel_count && c->kernels[kernel].section < i)
			kernel++;
		bool other = kernel < c->kernel_count && c->kernels[kernel].section == i && i != k->section;
		if (s->sh_type == SHT_PROGBITS && s->sh_flags & SHF_EXECINSTR && !other)
			visit(user, s);
	}
}

struct uniform_use {
	const struct cubin *cubin;
	struct uniforms written;
};

static void note_uniforms(void *user, const Elf64_Shdr *s)
{
	struct uniform_use *use = user;
	const struct cubin *c = use->cubin;

	for (size_t at = 0; at + SASS_INSTRUCTION <= s->sh_size; at += SASS_INSTRUCTION)
		code_uniforms(c->architecture, read_instruction(c, s->sh_offset + at), &use->written);
}

/* Registers that neither the kernel nor any function of the cubin, which it may call, ever writes. */
static const char *find_spare(const struct cubin *c, const struct cubin_kernel *k, struct spare *out)
{
	struct uniform_use use = {.cubin = c};

	patch_each_code(c, k, note_uniforms, &use);
	return code_spare(&use.written, out) ? NULL : "no free uniform registers";
}

const char *patch_open(const struct cubin *c, const struct cubin_kernel *k, struct patch_kernel **out)
{
	const char *wrong = check_image(c);

	*out = NULL;
	if (!wrong && (k->size % SASS_INSTRUCTION || k->size > CODE_MAX || !cubin_stands_alone(c, k->section)))
		wrong = "unknown section layout";
	if (!wrong && cubin_symbol(c, k->symbol).st_size != k->size)
		wrong = "the symbol does not cover its section";
	if (!wrong)
		wrong = check_attributes(c, k);
	if (wrong)
		return wrong;
	struct patch_kernel *p = calloc(1, sizeof(*p));
	bool *fixed = calloc(k->size / SASS_INSTRUCTION, sizeof(*fixed));
	struct instruction *code = malloc(k->size);
	if (!p || !fixed || !code) {
		free(p);
		free(fixed);
		free(code);
		return "no host memory";
	}
	*p = (struct patch_kernel){.cubin = c, .kernel = k, .fixed = fixed};
	memcpy(code, c->bytes + k->code, k->size);
	code_collective(c->architecture, code, k->size / SASS_INSTRUCTION, fixed);
	free(code);
	p->no_delays = find_spare(c, k, &p->spare);
	if ((wrong = note_relocations(p)))
		patch_close(p);
	else
		*out = p;
	return wrong;
}

const bool *patch_fixed(const struct patch_kernel *p)
{
	return p->fixed;
}

void patch_close(struct patch_kernel *p)
{
	if (p)
		free(p->fixed);
	free(p);
}

static struct instruction instruction_at(const struct patch_kernel *p, size_t offset)
{
	return read_instruction(p->cubin, p->kernel->code + offset);
}

const char *patch_refused(const struct patch_kernel *p, uint32_t offset, const struct delay *d)
{
	const char *pinned;

	if (offset % SASS_INSTRUCTION || offset + SASS_INSTRUCTION >= p->kernel->size)
		return "no instruction at this offset";
	if ((pinned = code_pinned(p->cubin->architecture, instruction_at(p, offset))))
		return pinned;
	if (p->fixed[offset / SASS_INSTRUCTION])
		return "the instruction has a relocation, or is part of a collective operation";
	if (d->ns > DELAY_MAX_NS || d->min_ns > d->ns)
		return "the delay is too long";
	if (code_needs_clusters(d->mode) && p->cubin->architecture < 90)
		return "the architecture has no clusters";
	return d->mode == DELAY_NONE ? NULL : p->no_delays;
}

/* The new code of one kernel. */
struct rewritten {
	const struct cubin_kernel *kernel;
	size_t size; /* bytes */
	uint8_t *code;
	uint32_t *moved; /* by instruction: its new offset, 0 if not moved */
};

static void rewritten_free(struct rewritten *r)
{
	free(r->code);
	free(r->moved);
	*r = (struct rewritten){0};
}

static void store(struct rewritten *r, size_t at, struct instruction i)
{
	memcpy(r->code + at, &i, sizeof(i));
}

/* Writes one detour at offset `to`, and returns the offset after it. */
static size_t detour(const struct patch_kernel *p, struct rewritten *r, const struct patch_point *point, size_t to)
{
	unsigned architecture = p->cubin->architecture;
	size_t from = point->offset;

	store(r, from, code_branch(architecture, from, to));
	if (from) {
		struct instruction before;
		memcpy(&before, r->code + from - SASS_INSTRUCTION, sizeof(before));
		store(r, from - SASS_INSTRUCTION, code_without_reuse(before));
	}
	to += SASS_INSTRUCTION * code_delay(architecture, &point->delay, p->spare, (void *)(r->code + to));
	r->moved[from / SASS_INSTRUCTION] = (uint32_t)to;
	store(r, to, code_without_reuse(instruction_at(p, from)));
	to += SASS_INSTRUCTION;
	store(r, to, code_branch(architecture, to, from + SASS_INSTRUCTION));
	return to + SASS_INSTRUCTION;
}

/* The points of a kernel: the requested ones if all are possible, or all possible ones. */
static struct patch_point *points_of(const struct patch_kernel *p, struct patch *want)
{
	static const struct delay none = {0};
	size_t room = want->everywhere ? p->kernel->size / SASS_INSTRUCTION : want->count;
	struct patch_point *points = calloc(room, sizeof(*points));

	want->moved = 0;
	if (!points) {
		want->refused = "no host memory";
		return NULL;
	}
	for (uint32_t i = 0; i < room; i++) {
		struct patch_point *to = &points[want->moved];
		*to = want->everywhere ? (struct patch_point){i * SASS_INSTRUCTION, none} : want->points[i];
		const char *refused = patch_refused(p, to->offset, &to->delay);
		if (!refused && want->moved && to->offset <= to[-1].offset)
			refused = "points are not in ascending order";
		if (!refused) {
			want->moved++;
		} else if (!want->everywhere) {
			want->refused = refused;
			want->refused_at = to->offset;
			free(points);
			return NULL;
		}
	}
	if (!want->moved)
		want->refused = "no instruction that can be moved";
	return points;
}

static const char *rewrite(const struct patch_kernel *p, const struct patch_point *points, size_t count, size_t align,
			   struct rewritten *r)
{
	const struct cubin_kernel *k = p->kernel;
	unsigned architecture = p->cubin->architecture;
	size_t room = k->size + SASS_INSTRUCTION, to = k->size;

	*r = (struct rewritten){.kernel = k};
	for (size_t i = 0; i < count; i++)
		room += SASS_INSTRUCTION * (2 + code_delay(architecture, &points[i].delay, p->spare, NULL));
	r->size = k->size + (room - k->size + align - 1) / align * align;
	if (r->size > CODE_MAX)
		return "too much code";
	r->code = malloc(r->size);
	r->moved = calloc(k->size / SASS_INSTRUCTION, sizeof(*r->moved));
	if (!r->code || !r->moved) {
		rewritten_free(r);
		return "no host memory";
	}
	memcpy(r->code, p->cubin->bytes + k->code, k->size);
	for (size_t i = 0; i < count; i++)
		to = detour(p, r, &points[i], to);
	store(r, to, code_branch(architecture, to, to)); /* execution must not continue past the end */
	for (to += SASS_INSTRUCTION; to < r->size; to += SASS_INSTRUCTION)
		store(r, to, code_nop());
	return NULL;
}

static void follow(const struct cubin *c, const struct attribute *a, const struct cubin_kernel *k, const uint32_t *moved,
		   uint8_t *copy)
{
	for (size_t at = a->data; says[a->kind] > SAYS_NOTHING && at < a->data + a->value; at += says[a->kind]) {
		uint32_t offset = cubin_word(c, at);
		if (offset < k->size && offset % SASS_INSTRUCTION == 0 && moved[offset / SASS_INSTRUCTION])
			memcpy(copy + at, &moved[offset / SASS_INSTRUCTION], sizeof(offset));
	}
}

void patch_tell(const struct cubin *c, const struct cubin_kernel *k, const uint32_t *moved, size_t size, uint8_t *copy)
{
	struct attribute a;
	Elf64_Sym y = cubin_symbol(c, k->symbol);

	y.st_size = size;
	memcpy(copy + c->sections[c->symbol_table].sh_offset + k->symbol * sizeof(y), &y, sizeof(y));
	for (size_t offset = 0; k->info && cubin_attribute(c, k->info, &offset, &a);)
		if (a.form == FORM_SIZED)
			follow(c, &a, k, moved, copy);
}

static uint8_t *assemble(const struct cubin *c, const struct rewritten *all, size_t count, size_t *size)
{
	struct section_contents *contents = calloc(count, sizeof(*contents));
	uint8_t *edited = malloc(c->size), *out = NULL;

	if (contents && edited) {
		struct cubin told = *c;
		told.bytes = memcpy(edited, c->bytes, c->size);
		for (size_t i = 0; i < count; i++) {
			patch_tell(c, all[i].kernel, all[i].moved, all[i].size, edited);
			contents[i] = (struct section_contents){all[i].kernel->section, all[i].code, all[i].size};
		}
		out = cubin_rebuild(&told, contents, count, size);
	}
	free(edited);
	free(contents);
	return out;
}

static const char *patch_one(const struct cubin *c, const struct cubin_kernel *k, struct patch *want, size_t align,
			     struct rewritten *r)
{
	struct patch_kernel *p;
	struct patch_point *points = NULL;

	want->refused_at = UINT32_MAX;
	want->refused = patch_open(c, k, &p);
	if (!want->refused)
		points = points_of(p, want);
	if (!want->refused)
		want->refused = rewrite(p, points, want->moved, align, r);
	if (want->refused)
		want->moved = 0;
	free(points);
	patch_close(p);
	return want->refused;
}

uint8_t *patch_apply(const struct cubin *c, struct patch *patches, size_t *size)
{
	struct rewritten *all = calloc(c->kernel_count + 1, sizeof(*all));
	uint8_t *out = NULL;
	size_t count = 0, align = ALIGN;

	for (uint32_t i = 1; i < c->section_count; i++)
		while (align < c->sections[i].sh_addralign && align < ALIGN_MAX)
			align *= 2; /* keeps the alignment of what follows */
	for (size_t i = 0; all && i < c->kernel_count; i++)
		if ((patches[i].everywhere || patches[i].count) &&
		    !patch_one(c, &c->kernels[i], &patches[i], align, &all[count]))
			count++;
	if (count)
		out = assemble(c, all, count, size);
	for (size_t i = 0; !out && i < c->kernel_count; i++)
		if (patches[i].moved || !all) {
			patches[i].refused = "no host memory";
			patches[i].moved = 0;
		}
	for (size_t i = 0; i < count; i++)
		rewritten_free(&all[i]);
	free(all);
	return out;
}
