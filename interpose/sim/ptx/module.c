/*
 * Loaded modules: from text to variables in device memory and executable code.
 *
 * Invariant: a module loads completely, or leaves only the variables that its loader placed. Then it is
 * read-only.
 */
#include "sim/ptx/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEEPEST 100 /* chain of variables with addresses of each other */

/* --- who uses what --- */

static void add_callee(struct ptx_source *s, struct ptx_function *f, const struct ptx_function *callee)
{
	for (size_t i = 0; i < f->callee_count; i++)
		if (f->callees[i] == callee)
			return;
	f->callees = ptx_arena_grow(s, f->callees, f->callee_count, &f->callee_capacity, sizeof(*f->callees));
	f->callees[f->callee_count++] = callee;
}

static void note_operand(struct ptx_source *s, const ptx_module *m, struct ptx_function *f,
			 const struct ptx_operand *o)
{
	for (unsigned i = 0; i < o->count; i++)
		note_operand(s, m, f, &o->elements[i]);
	if (o->kind != PTX_OPERAND_NAME)
		return;
	const struct ptx_name *n = ptx_map_get(&m->names, o->name);
	if (n && n->function)
		add_callee(s, f, n->function);
	else if (n && n->variable->space == PTX_SPACE_SHARED && !n->variable->unsized)
		f->uses_common_shared = true;
}

static void note_uses(struct ptx_source *s, const ptx_module *m, struct ptx_function *f)
{
	for (size_t i = 0; i < f->statement_count; i++) {
		const struct ptx_statement *t = &f->statements[i];
		for (unsigned j = 0; j < t->count; j++)
			note_operand(s, m, f, &t->operands[j]);
		if (!strncmp(t->opcode, "call", 4) && t->count)
			for (unsigned j = 0; j < t->count && j < 2; j++)
				f->calls_by_address |= t->operands[j].kind == PTX_OPERAND_REGISTER;
	}
	f->uses_common_shared |= f->calls_by_address || (!f->entry && f->shared_count);
}

/* Adds f and all functions that it calls to list, which has room for every function. */
static size_t reachable(const ptx_module *m, struct ptx_function *f, struct ptx_function **list)
{
	size_t count = 1;

	for (size_t i = 0; i < m->function_count; i++)
		m->functions[i]->reached = false;
	list[0] = f;
	f->reached = true;
	for (size_t i = 0; i < count; i++)
		for (size_t j = 0; j < list[i]->callee_count; j++) {
			struct ptx_function *callee = m->functions[list[i]->callees[j]->index];
			if (!callee->reached)
				list[count++] = callee;
			callee->reached = true;
		}
	return count;
}

static void place_shared(struct ptx_source *s, struct ptx_variable *v, size_t *at)
{
	*at = ptx_align_up(*at, v->align);
	v->address = *at;
	*at += v->size;
	if (*at > PTX_WINDOW / 2)
		ptx_reject(s, v->line, "%s is too large", v->name);
}

/* Variables that several kernels may use come first, at fixed offsets; each kernel's own follow. */
static void layout_shared(struct ptx_source *s, ptx_module *m, struct ptx_function **list)
{
	m->dynamic_align = 16;
	for (size_t i = 0; i < m->variable_count; i++) {
		struct ptx_variable *v = m->variables[i];
		if (v->space == PTX_SPACE_SHARED && !v->unsized)
			place_shared(s, v, &m->common_shared);
		else if (v->space == PTX_SPACE_SHARED && v->align > m->dynamic_align)
			m->dynamic_align = v->align;
	}
	for (size_t i = 0; i < m->function_count; i++)
		for (size_t j = 0; !m->functions[i]->entry && j < m->functions[i]->shared_count; j++)
			place_shared(s, m->functions[i]->shared[j], &m->common_shared);
	for (size_t i = 0; i < m->function_count; i++) {
		struct ptx_function *f = m->functions[i];
		if (!f->entry || !f->defined)
			continue;
		size_t at = 0, count = reachable(m, f, list);
		for (size_t j = 0; j < count; j++)
			if (list[j]->uses_common_shared)
				at = m->common_shared;
		for (size_t j = 0; j < f->shared_count; j++)
			place_shared(s, f->shared[j], &at);
		f->info.shared_bytes = (unsigned)at;
	}
}

/* --- variables in device memory --- */

static void place(struct ptx_source *s, ptx_module *m, struct ptx_variable *v, const ptx_loader *loader,
		  unsigned depth);

static uint64_t address_of(struct ptx_source *s, ptx_module *m, const struct ptx_relocation *r,
			   const ptx_loader *loader, unsigned depth)
{
	const struct ptx_name *n = ptx_map_get(&m->names, r->name);

	if (!n)
		ptx_reject(s, r->line, "nothing is named %s", r->name);
	if (n->function)
		return PTX_CODE_WINDOW + 16 * (uint64_t)(n->function->index + 1);
	if (n->variable->space != PTX_SPACE_GLOBAL && n->variable->space != PTX_SPACE_CONST)
		ptx_reject(s, r->line, "%s has no fixed address", r->name);
	place(s, m, n->variable, loader, depth + 1);
	return n->variable->address;
}

static void relocate(struct ptx_source *s, ptx_module *m, struct ptx_variable *v, const ptx_loader *loader,
		     unsigned depth)
{
	if (v->placing)
		ptx_reject(s, v->line, "unsupported initial value: %s refers to itself", v->name);
	if (depth > DEEPEST)
		ptx_reject(s, v->line, "unsupported initial value: too long a chain of variables");
	v->placing = true;
	for (size_t i = 0; i < v->relocation_count; i++) {
		const struct ptx_relocation *r = &v->relocations[i];
		uint64_t value = address_of(s, m, r, loader, depth) + (uint64_t)r->addend;
		if (r->mask)
			value = (value & r->mask) >> __builtin_ctzll(r->mask);
		memcpy(v->init + r->offset, &value, r->width);
	}
}

/* Variables whose addresses an initial value contains are placed before it is used. */
static void place(struct ptx_source *s, ptx_module *m, struct ptx_variable *v, const ptx_loader *loader,
		  unsigned depth)
{
	if (v->placed)
		return;
	if (v->external)
		ptx_reject(s, v->line, "extern variable %s is defined nowhere", v->name);
	relocate(s, m, v, loader, depth);
	ptx_global g = {
		.name = v->name,
		.size = v->size,
		.align = v->align,
		.init = v->init,
		.constant = v->space == PTX_SPACE_CONST,
		.managed = v->managed,
	};
	v->address = v->size ? loader->place_global(loader->user, &g) : 0;
	if (v->size && !v->address)
		ptx_reject(s, v->line, "no memory for variable %s of %zu bytes", v->name, v->size);
	v->placed = true;
}

static void place_variables(struct ptx_source *s, ptx_module *m, const ptx_loader *loader)
{
	for (size_t i = 0; i < m->variable_count; i++) {
		struct ptx_variable *v = m->variables[i];
		const struct ptx_name *n = ptx_map_get(&m->names, v->name);
		bool superseded = n && n->variable != v && v->external;
		if (!superseded && (v->space == PTX_SPACE_GLOBAL || v->space == PTX_SPACE_CONST))
			place(s, m, v, loader, 0);
	}
}

static void list_entries(struct ptx_source *s, ptx_module *m, struct ptx_function **list)
{
	m->entries = ptx_arena_take(s, (m->function_count + 1) * sizeof(*m->entries));
	for (size_t i = 0; i < m->function_count; i++) {
		struct ptx_function *f = m->functions[i];
		if (!f->entry || !f->defined)
			continue;
		m->entries[m->entry_count++] = f;
		f->info.local_bytes = (unsigned)f->frame_bytes;
		size_t count = reachable(m, f, list);
		for (size_t j = 0; j < count && !f->unsupported; j++)
			f->unsupported = list[j]->unsupported;
	}
}

static bool load(struct ptx_source *s, ptx_module *m, const ptx_loader *loader)
{
	if (setjmp(s->escape))
		return false;
	ptx_parse(s, m);
	for (size_t i = 0; i < m->function_count; i++)
		note_uses(s, m, m->functions[i]);
	struct ptx_function **list = ptx_arena_take(s, (m->function_count + 1) * sizeof(*list));
	layout_shared(s, m, list);
	place_variables(s, m, loader);
	ptx_decode(s, m);
	list_entries(s, m, list);
	return true;
}

ptx_module *ptx_load(const char *text, const ptx_loader *loader, char *error, size_t error_size)
{
	ptx_module *m = calloc(1, sizeof(*m));
	struct ptx_source *s = calloc(1, sizeof(*s));
	bool loaded = false;

	if (m && s) {
		s->at = text;
		s->line = 1;
		s->arena = &m->arena;
		s->error = error;
		s->error_size = error_size;
		loaded = load(s, m, loader);
	} else {
		snprintf(error, error_size, "out of memory");
	}
	free(s);
	if (loaded)
		return m;
	ptx_unload(m);
	return NULL;
}

void ptx_unload(ptx_module *m)
{
	if (!m)
		return;
	ptx_arena_release(&m->arena);
	free(m->delayed);
	free(m->delays);
	free(m);
}

const ptx_function *ptx_find_function(const ptx_module *m, const char *name)
{
	const struct ptx_name *n = ptx_map_get(&m->names, name);

	return n && n->function && n->function->entry && n->function->defined ? n->function : NULL;
}

size_t ptx_function_count(const ptx_module *m)
{
	return m->entry_count;
}

const ptx_function *ptx_function_at(const ptx_module *m, size_t index)
{
	return index < m->entry_count ? m->entries[index] : NULL;
}

const ptx_function_info *ptx_info(const ptx_function *f)
{
	return &f->info;
}

bool ptx_find_global(const ptx_module *m, const char *name, uint64_t *address, size_t *size)
{
	const struct ptx_name *n = ptx_map_get(&m->names, name);

	if (!n || !n->variable || !n->variable->placed)
		return false;
	*address = n->variable->address;
	*size = n->variable->size;
	return true;
}
