/*
 * Frames of the functions that a warp's threads are in.
 *
 * Threads that made one call share a frame until the last of them has returned. Frames of one depth may
 * overlap in memory: each thread accesses only its own lane of rows, its own bit of predicates and its own
 * stack, so threads in different functions never interfere.
 */
#include "sim/ptx/internal.h"

#include <stdlib.h>
#include <string.h>

#define ROW32 (PTX_WARP * 4)
#define ROW64 (PTX_WARP * 8)
#define STACK_ALIGN 128
#define MOST_STACK ((size_t)512 << 10) /* of one thread */
#define MOST_ROWS ((size_t)256 << 20)
#define MOST_DEPTH 65536

void ptx_enter_frame(struct ptx_warp *w, struct ptx_frame *f)
{
	w->frame = f;
	w->file[PTX_FILE_32] = w->rows32 + f->row32;
	w->file[PTX_FILE_64] = w->rows64 + f->row64;
	w->predicate = w->predicates + f->predicate;
}

static size_t larger(size_t wanted, size_t have)
{
	return wanted > 2 * have ? wanted : 2 * have;
}

static bool grow_rows(uint8_t **rows, size_t *have, size_t wanted)
{
	if (wanted <= *have)
		return true;
	if (wanted > MOST_ROWS)
		return false;
	size_t n = ptx_align_up(larger(wanted, *have), 64);
	uint8_t *bigger = aligned_alloc(64, n);
	if (!bigger)
		return false;
	if (*have)
		memcpy(bigger, *rows, *have);
	memset(bigger + *have, 0, n - *have);
	free(*rows);
	*rows = bigger;
	*have = n;
	return true;
}

static bool grow_predicates(struct ptx_warp *w, size_t wanted)
{
	if (wanted <= w->predicate_count)
		return true;
	size_t n = larger(wanted, w->predicate_count);
	uint32_t *bigger = realloc(w->predicates, n * sizeof(*bigger));
	if (!bigger)
		return false;
	memset(bigger + w->predicate_count, 0, (n - w->predicate_count) * sizeof(*bigger));
	w->predicates = bigger;
	w->predicate_count = n;
	return true;
}

/* Stacks are contiguous, so growth moves each of them. */
static bool grow_local(struct ptx_warp *w, size_t wanted)
{
	if (wanted <= w->local_bytes)
		return true;
	if (wanted > MOST_STACK)
		return false;
	size_t n = ptx_align_up(larger(wanted, w->local_bytes), STACK_ALIGN);
	uint8_t *bigger = aligned_alloc(STACK_ALIGN, n * PTX_WARP);
	if (!bigger)
		return false;
	memset(bigger, 0, n * PTX_WARP);
	for (size_t i = 0; i < PTX_WARP && w->local_bytes; i++)
		memcpy(bigger + i * n, w->local + i * w->local_bytes, w->local_bytes);
	free(w->local);
	w->local = bigger;
	w->local_bytes = n;
	return true;
}

static bool make_room(struct ptx_warp *w, const struct ptx_frame *f)
{
	const struct ptx_function *function = f->function;

	/* One more row: missing operands are read as row 0. */
	return grow_rows(&w->rows32, &w->rows32_bytes, f->row32 + (function->rows32 + (size_t)1) * ROW32) &&
	       grow_rows(&w->rows64, &w->rows64_bytes, f->row64 + (function->rows64 + (size_t)1) * ROW64) &&
	       grow_predicates(w, f->predicate + function->predicates) &&
	       grow_local(w, f->local + function->frame_bytes);
}

static struct ptx_frame *take_frame(struct ptx_warp *w)
{
	struct ptx_frame *f = w->spare;

	if (f)
		w->spare = f->parent;
	else
		f = malloc(sizeof(*f));
	if (f)
		*f = (struct ptx_frame){.references = 1};
	return f;
}

void ptx_frame_drop(struct ptx_warp *w, struct ptx_frame *f)
{
	while (f && --f->references == 0) {
		struct ptx_frame *parent = f->parent;
		f->parent = w->spare;
		w->spare = f;
		f = parent;
	}
}

/* The kernel's own frame is all zero, so that runs do not depend on earlier ones. */
bool ptx_frames_begin(struct ptx_warp *w)
{
	const struct ptx_function *kernel = w->cta->run->kernel;
	struct ptx_frame *f = take_frame(w);

	if (!f)
		return false;
	f->function = kernel;
	w->frame = f;
	if (!make_room(w, f)) {
		ptx_frame_drop(w, f);
		return false;
	}
	if (kernel->rows32)
		memset(w->rows32, 0, kernel->rows32 * (size_t)ROW32);
	if (kernel->rows64)
		memset(w->rows64, 0, kernel->rows64 * (size_t)ROW64);
	memset(w->predicates, 0, kernel->predicates * sizeof(*w->predicates));
	for (size_t i = 0; i < PTX_WARP && kernel->frame_bytes; i++)
		memset(w->local + i * w->local_bytes, 0, kernel->frame_bytes);
	w->predicates[PTX_TRUE] = PTX_EVERYONE;
	w->file[PTX_FILE_SPECIAL] = w->special;
	w->file[PTX_FILE_CONSTANT] = kernel->module->constants;
	ptx_enter_frame(w, f);
	return true;
}

void ptx_frames_release(struct ptx_warp *w)
{
	for (struct ptx_frame *f = w->spare, *next; f; f = next) {
		next = f->parent;
		free(f);
	}
	free(w->rows32);
	free(w->rows64);
	free(w->predicates);
	free(w->local);
}

static void copy_between(struct ptx_warp *w, uint32_t mask, size_t to, size_t from, size_t size)
{
	for (; mask; mask &= mask - 1) {
		uint8_t *stack = w->local + (size_t)__builtin_ctz(mask) * w->local_bytes;
		memmove(stack + to, stack + from, size);
	}
}

static bool signatures_agree(const struct ptx_call *call, const struct ptx_function *callee)
{
	if (call->argument_count != callee->parameter_count || call->result_count != callee->return_count)
		return false;
	for (size_t i = 0; i < call->argument_count; i++)
		if (call->arguments[i]->size != callee->parameters[i]->size)
			return false;
	for (size_t i = 0; i < call->result_count; i++)
		if (call->results[i]->size != callee->returns[i]->size)
			return false;
	return true;
}

bool ptx_call(struct ptx_warp *w, struct ptx_group *g, const struct ptx_op *op, const struct ptx_function *callee)
{
	struct ptx_frame *caller = g->frame, *f;
	const struct ptx_call *call = op->call;

	if (!signatures_agree(call, callee)) {
		ptx_fault(w, op, g->mask, PTX_TRAP, "call of %s with other parameters than it has", callee->name);
		return false;
	}
	f = take_frame(w);
	if (f) {
		f->parent = caller; /* takes over the group's reference */
		f->function = callee;
		f->call = op;
		f->return_pc = g->pc + 1;
		f->depth = caller->depth + 1;
		f->row32 = caller->row32 + caller->function->rows32 * (size_t)ROW32;
		f->row64 = caller->row64 + caller->function->rows64 * (size_t)ROW64;
		f->predicate = caller->predicate + caller->function->predicates;
		f->local = ptx_align_up(caller->local + caller->function->frame_bytes, STACK_ALIGN);
		g->frame = f;
	}
	if (!f || f->depth > MOST_DEPTH || !make_room(w, f)) {
		ptx_fault(w, op, g->mask, PTX_BAD_ADDRESS, "stack overflow in the call of %s", callee->name);
		return false;
	}
	for (size_t i = 0; i < call->argument_count; i++)
		copy_between(w, g->mask, f->local + callee->parameters[i]->address,
			     caller->local + call->arguments[i]->address, call->arguments[i]->size);
	w->predicates[f->predicate + PTX_TRUE] |= g->mask;
	g->pc = callee->first;
	return true;
}

void ptx_return(struct ptx_warp *w, struct ptx_group *g)
{
	struct ptx_frame *f = g->frame;
	const struct ptx_call *call = f->call->call;

	for (size_t i = 0; i < call->result_count; i++)
		copy_between(w, g->mask, f->parent->local + call->results[i]->address,
			     f->local + f->function->returns[i]->address, call->results[i]->size);
	g->pc = f->return_pc;
	g->frame = f->parent;
	f->parent->references++;
	ptx_frame_drop(w, f);
}

const struct ptx_function *ptx_function_of(const ptx_module *m, uint64_t address)
{
	uint64_t index = (address - PTX_CODE_WINDOW) / 16 - 1;

	if (address < PTX_CODE_WINDOW || address % 16 || index >= m->function_count)
		return NULL;
	const struct ptx_function *f = m->functions[index];
	return f->defined && !f->entry ? f : NULL;
}
