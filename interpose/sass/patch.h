/*
 * Inserts code before instructions of a cubin's kernels.
 *
 * An instruction with inserted code is replaced by a branch to the end of its section, which grows by this code,
 * the instruction itself and a branch back. All other instructions stay in place, so no branch of the kernel
 * changes.
 *
 * Invariant: a kernel is patched as requested, or its bytes stay unchanged and there is a reason. Input and output
 * are in memory; nothing else is read, kept or changed.
 */
#ifndef TT_SASS_PATCH_H
#define TT_SASS_PATCH_H

#include "sass/code.h"
#include "sass/cubin.h"

struct patch_point {
	uint32_t offset; /* byte offset of the instruction in its kernel */
	struct delay delay;
};

/* A request for a kernel, and its result. */
struct patch {
	const struct patch_point *points; /* sorted by offset */
	size_t count;
	bool everywhere;     /* instead: an empty detour at every instruction that can be moved */
	const char *refused; /* why it is unchanged; NULL: it was patched */
	uint32_t refused_at; /* the instruction of that reason, UINT32_MAX: the whole kernel */
	uint32_t moved;      /* number of moved instructions */
};

struct patch_kernel;

/* Returns NULL, or why the kernel can't be patched at all. */
const char *patch_open(const struct cubin *c, const struct cubin_kernel *k, struct patch_kernel **out);
/* Why a delay can't be inserted before an instruction, or NULL. */
const char *patch_refused(const struct patch_kernel *p, uint32_t offset, const struct delay *d);
/* By instruction, whether it has to stay where it is: it has a relocation, or is part of a collective operation. */
const bool *patch_fixed(const struct patch_kernel *p);
void patch_close(struct patch_kernel *p);
/*
 * Updates references to a kernel of `size` bytes in a copy of the file: its symbol, and offsets of moved instructions.
 * moved: as in traced_code.
 */
void patch_tell(const struct cubin *c, const struct cubin_kernel *k, const uint32_t *moved, size_t size, uint8_t *copy);
/* Calls visit with each section whose code the kernel may run. */
void patch_each_code(const struct cubin *c, const struct cubin_kernel *k, void (*visit)(void *user, const Elf64_Shdr *s),
		     void *user);

/*
 * patches[i] is for c->kernels[i]; a patch without points and without `everywhere` changes nothing. Returns the new
 * image, which the caller frees, or NULL: none is possible.
 */
uint8_t *patch_apply(const struct cubin *c, struct patch *patches, size_t *size);

#endif
