/*
 * Delays of statements: a warp that comes to one is held up, while others run.
 *
 * Time is counted in instructions of the grid, one a nanosecond. When all warps wait, it goes on to the end of the
 * first delay, and as long passes for the host.
 *
 * Invariant: without clocks, a launch with delays always does the same.
 */
#include "sim/ptx/internal.h"
#include "sim/ptx/parse.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t added(uint64_t hash, const void *data, size_t size)
{
	const uint8_t *bytes = data;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ bytes[i]) * 0x100000001b3u; /* FNV-1a */
	return hash;
}

/* Of opcodes, guards and operands: not of names, comments or lines. */
static uint64_t checksum(const struct ptx_function *f)
{
	uint64_t hash = 0xcbf29ce484222325u;

	for (size_t i = 0; i < f->statement_count; i++) {
		const struct ptx_statement *t = &f->statements[i];
		uint32_t guard = t->guarded ? t->guard << 1 | t->guard_negated : 0;
		hash = added(hash, t->opcode, strlen(t->opcode) + 1);
		hash = added(hash, &guard, sizeof(guard));
		for (unsigned j = 0; j < t->count; j++) {
			const struct ptx_operand *o = &t->operands[j];
			uint64_t words[] = {o->kind, o->reg, o->bits};
			hash = added(hash, words, sizeof(words));
		}
	}
	return hash;
}

static void choose_in(ptx_module *m, const struct ptx_function *f, const struct tt_sim_delays *choose)
{
	void *kernel = choose->kernel(f->name, checksum(f));

	for (size_t i = 0; kernel && i < f->statement_count; i++) {
		const char *opcode = f->statements[i].opcode;
		uint32_t pc = f->first_of[i];
		if (choose->statement(kernel, i, ptx_instruction(opcode), opcode, &m->delays[pc]) && m->delays[pc].ns)
			m->delayed[pc] = m->any_delays = true;
	}
	if (kernel)
		choose->done(kernel);
}

bool ptx_delay(ptx_module *m, const struct tt_sim_delays *choose)
{
	m->delays = calloc(m->code_count + 1, sizeof(*m->delays));
	m->delayed = calloc(m->code_count + 1, 1);
	if (!m->delays || !m->delayed)
		return false;
	for (size_t i = 0; i < m->entry_count; i++)
		choose_in(m, m->entries[i], choose);
	return true;
}

static uint64_t mixed(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

/* Whether this block is the delayed one of its cluster. */
static bool is_chosen(const struct ptx_cta *cta, const struct tt_sim_delay *d)
{
	uint64_t rank = 0, size = 1;

	for (unsigned i = 0; i < 3; i++) {
		unsigned n = cta->run->config->cluster[i] ? cta->run->config->cluster[i] : 1;
		rank += cta->id[i] % n * size;
		size *= n;
	}
	return rank == (d->block ? d->block - 1 : mixed(d->seed) % size);
}

bool ptx_hold(struct ptx_warp *w, struct ptx_group *g)
{
	const struct ptx_cta *cta = w->cta;
	struct ptx_run *run = cta->run;
	const struct tt_sim_delay *d = &run->kernel->module->delays[g->pc];
	uint64_t ns = d->min_ns;

	g->delayed = !g->delayed;
	if (!g->delayed || (d->cluster && !is_chosen(cta, d)))
		return g->delayed = false;
	if (ns < d->ns)
		ns += mixed(mixed(d->seed ^ cta->block << 20 ^ w->index) + w->clock) % (d->ns - ns + 1);
	w->until = run->now + ns;
	return true;
}

static void pass(const struct ptx_run *run, uint64_t ns)
{
	struct timespec begin, now, rest = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

	if (!run->config->pause) {
		nanosleep(&rest, NULL);
		return;
	}
	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		run->config->pause(true);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((uint64_t)(now.tv_sec - begin.tv_sec) * 1000000000u + (uint64_t)now.tv_nsec < ns + (uint64_t)begin.tv_nsec);
}

bool ptx_pass_time(struct ptx_run *run)
{
	uint64_t first = UINT64_MAX;

	for (size_t s = 0; s < run->slot_count; s++)
		for (unsigned i = 0; run->slots[s]->resident && i < run->warps; i++) {
			const struct ptx_warp *w = &run->slots[s]->warps[i];
			if (w->runnable && w->until > run->now && w->until < first)
				first = w->until;
		}
	if (first == UINT64_MAX)
		return false;
	pass(run, first - run->now);
	run->now = first;
	return true;
}
