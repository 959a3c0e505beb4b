/*
 * Chooses which instructions get recording code, and which share a count. See trace_code.h for the invariant.
 */
#include <string.h>

#include "sass/blocks.h"
#include "sass/trace_parts.h"

#define WITH_BRANCHES (1u << TT_TRACE_OPCODE | 1u << TT_TRACE_REGISTERS | 1u << TT_TRACE_COUNT)
#define NEVER 0xf000ull /* the guard @!PT */

static const char *point_refused(const struct trace_kernel *k, size_t at, uint32_t kinds)
{
	struct instruction i = k->code[at];

	if (at + 1 >= k->count)
		return "nothing follows it";
	const char *pinned = code_pinned(k->architecture, i);
	if (pinned && !(code_branch_moves(i) && !(kinds & ~WITH_BRANCHES) && !k->wish.beats))
		return pinned;
	if (k->fixed && k->fixed[at])
		return "the instruction has a relocation, or is part of a collective operation";
	if (k->levels && !trace_levels_at(k->levels, at))
		return "the number of its registers is unknown there";
	if (kinds & ~trace_kinds(k->architecture))
		return "no code records this kind";
	if (kinds & ACCESSES && !trace_memory(i, false))
		return "it has no address, or one of an unknown form";
	if (kinds & 1u << TT_TRACE_VALUES && !trace_has_values(k, i))
		return "the size of its values is unknown";
	if (kinds & 1u << TT_TRACE_TMA && !trace_copies(i))
		return "it is no copy";
	return NULL;
}

static bool is_guarded(struct instruction i)
{
	return (i.low & GUARD) != UNGUARDED;
}

/* Whether it may write the predicate of a guard, or the uniform one: where instructions that write predicates have them. */
static bool writes_guard(const struct trace_kernel *k, struct instruction i, uint64_t guard)
{
	const char *mnemonic = code_mnemonic(k->architecture, i);
	unsigned predicate = guard >> 12 & 7;

	return !mnemonic || !strcmp(mnemonic, "R2P") || !strcmp(mnemonic, "UR2UP") || (i.high >> 17 & 7) == predicate ||
	       (i.high >> 20 & 7) == predicate;
}

/*
 * Gives those that are to be counted, from the guarded one at `first` to the end of its block, and have its guard with the
 * same value, one slot.
 */
static void share_guarded(const struct trace_kernel *k, const struct trace_point *points, size_t first, size_t end,
			  uint32_t *kinds, struct traced_code *out)
{
	const uint64_t guard = k->code[first].low & GUARD;
	const bool uniform = code_has_uniform_guard(k->architecture, k->code[first]);

	kinds[first] |= 1u << TT_TRACE_COUNT;
	out->slots[first] = ++out->slot_count;
	for (size_t i = first; i + 1 < end && !writes_guard(k, k->code[i], guard); i++)
		if ((k->code[i + 1].low & GUARD) == guard && points[i + 1].kinds & 1u << TT_TRACE_COUNT &&
		    code_has_uniform_guard(k->architecture, k->code[i + 1]) == uniform)
			out->slots[i + 1] = out->slots[first];
}

/*
 * Gives each instruction that is to be counted a slot. All of a block without a guard have the slot of the first of them
 * that can have recording code, and so have those with the same guard.
 */
static void share_counts(const struct trace_kernel *k, struct trace_point *points, const uint32_t *block, uint32_t *kinds,
			 struct traced_code *out)
{
	const uint32_t count = 1u << TT_TRACE_COUNT;

	for (size_t begin = 0, end; begin < k->count; begin = end) {
		uint32_t shared = 0;
		size_t first = k->count;
		bool any = false;
		for (end = begin; end < k->count && block[end] == block[begin]; end++) {
			bool guarded = is_guarded(k->code[end]), possible = !point_refused(k, end, count);
			any |= points[end].kinds & count && !guarded;
			first = first == k->count && possible && !guarded ? end : first;
		}
		for (size_t i = begin; i < end; i++)
			if (points[i].kinds & count && is_guarded(k->code[i]) && (k->code[i].low & GUARD) != NEVER &&
			    !out->slots[i] && !point_refused(k, i, count))
				share_guarded(k, points, i, end, kinds, out);
		if (any && first < k->count) {
			kinds[first] |= count;
			shared = ++out->slot_count;
		}
		for (size_t i = begin; shared && i < end; i++)
			if (i == first || (points[i].kinds & count && !is_guarded(k->code[i])))
				out->slots[i] = shared;
	}
}

/* Fills in which kinds of recording code each instruction gets. */
void trace_choose(const struct trace_kernel *k, struct trace_point *points, uint32_t *kinds, struct traced_code *out)
{
	uint32_t *block = kinds + k->count;

	for (size_t i = 0; i < k->count; i++) {
		const char *refused = NULL;
		for (unsigned kind = TT_TRACE_OPCODE; kind < TT_TRACE_END; kind++) {
			const char *wrong = points[i].kinds & 1u << kind ? point_refused(k, i, 1u << kind) : NULL;
			kinds[i] |= points[i].kinds & 1u << kind && !wrong ? 1u << kind : 0;
			refused = wrong ? wrong : refused;
		}
		points[i].refused = kinds[i] ? NULL : refused;
		kinds[i] &= ~(1u << TT_TRACE_COUNT);
	}
	code_blocks(k->architecture, k->code, k->count, block);
	share_counts(k, points, block, kinds, out);
	for (size_t i = 0; i < k->count; i++)
		if (kinds[i] || (out->slots[i] && points[i].kinds == 1u << TT_TRACE_COUNT))
			points[i].refused = NULL;
}
