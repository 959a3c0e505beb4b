/*
 * Keeps heartbeats in kernels: see struct tt_heartbeat. See trace_code.h for the invariant.
 *
 * Three registers above the kernel's own are kept while it runs: the address of the warp's heartbeat and a state. Where
 * the kernel begins, they get their values. Barriers say that the warp waits, and that it waits no longer. Lanes that exit
 * say so.
 *
 * A branch back goes through a detour that adds to a uniform register, and mostly goes on. Only after each 1024th pass, which
 * the carry tells, a hash of all registers is kept, and compared with those of the next passes. If one of these is equal,
 * the loop is repeated: nothing but memory can end it. A loop that ends whatever memory has is left as it is, see
 * trace_loops.c.
 */
#include <stddef.h>
#include <string.h>

#include "sass/blocks.h"
#include "sass/trace_parts.h"
#include "trace_ring.h"

#define EXIT 0x94du
#define BARRIER 0xb1du          /* its operands are numbers */
#define BARRIER_REGISTER 0x31du /* of both operands, which are the same register */
#define ARRIVES (1ull << 13)    /* and does not wait */
#define NUMBER_SHIFT 54
#define THREADS_SHIFT 42
#define RZ 255u
#define UNIFORM_MAX 63u
#define URZ 63u
#define PREDICATES 7u
#define CONSTANT(offset) ((uint32_t)(offset) / 4 << 8)
#define DESCRIPTOR 0x208u
#define FETCH 0x7b2ull /* writes its register late, which scoreboard 5 says */

#define EACH_PASS 0x00400000u /* added at a pass: 1 / 1024 */
#define EACH_WAIT 0x04000000u /* where a pass may wait for long: 1 / 64 */
#define HASH_FACTOR 0x9e3779b1u
#define WINDOW 16u /* passes that a pass is compared with */
/* The state: whether a pass is compared with those that follow, its hash, and how many passes are left. */
#define IN_WINDOW 0xffc00000u
#define HASH_MASK 0x003fffe0u
#define LEFT_MASK 0x1fu
#define HASH_SHIFT 10u
#define EXIT_COST 10u
#define BARRIER_COST 16u
#define PASS_COST 64u

/* ULDC.64 d, c[0x0][0x208]; UIADD3 d, UP, a, imm, URZ; R2UR d, a; BRA.U UP */
static const struct instruction encoding_descriptor = {0x0000820000007ab9, 0x0a00};
/* LDC d, c[0x0][imm]; LDC.64 */
static const struct instruction encoding_load = {0x00000000ff007b82, 0x0800};
static const struct instruction encoding_load_2 = {0x00000000ff007b82, 0x0a00};
static const struct instruction encoding_count = {0x0000000000007890, 0x0ff1e03f};
static const struct instruction encoding_to_uniform = {0x00000000000072ca, 0x000e0000};
static const struct instruction encoding_if_due = {0x0000000100007547, 0x0b800000};
/* IMAD d, a, imm, c; IADD3 d, a, UR, RZ; IADD3 d, a, imm, RZ */
static const struct instruction encoding_mix = {0x0000000000007824, 0x078e0200};
static const struct instruction encoding_add_uniform = {0x0000000000007c10, 0x0fffe0ff};
static const struct instruction encoding_add = {0x0000000000007810, 0x07ffe0ff};
/* MOV d, imm */
static const struct instruction encoding_number = {0x0000000000007802, 0xf00};
/* CS2R.32 d, SR_CLOCKLO; LOP3.LUT d, a, imm, RZ, 0xc0; the same with 0xfc; SHF.R.U32.HI d, RZ, imm, c */
static const struct instruction encoding_clock = {0x0000000000007805, 0x5000};
static const struct instruction encoding_and = {0x0000000000007812, 0x078ec0ff};
static const struct instruction encoding_or = {0x0000000000007812, 0x078efcff};
static const struct instruction encoding_shift = {0x00000000ff007819, 0x00011600};
/* VOTE.ANY d, PT, PT; MOV d, b; VOTE.ALL P0, P0; ELECT P1, URZ, PT */
static const struct instruction encoding_active = {0x0000000000007806, 0x038e0100};
static const struct instruction encoding_copy = {0x0000000000007202, 0xf00};
static const struct instruction encoding_all = {0x0000000000ff7806, 0};
static const struct instruction encoding_elect = {0x00000000003f782f, 0x03820000};
/* ISETP, with its comparison: of two registers, and of a register and a number */
static const struct instruction encoding_compare = {0x000000000000720c, 0x00700000};
static const struct instruction encoding_compare_number = {0x000000000000780c, 0x00700000};
/* STG.E.128, STG.E.64, STG.E.STRONG.GPU desc[c][a], b; REDG.E.ADD.64.STRONG.GPU desc[c][a], b */
static const struct instruction encoding_store_4 = {0x0000000000007986, 0x0c10fd00};
static const struct instruction encoding_store_2 = {0x0000000000007986, 0x0c10fb00};
static const struct instruction encoding_store = {0x0000000000007986, 0x0c10f900};
static const struct instruction encoding_exited = {0x000000000000798e, 0x0f10e180}; /* REDG.E.OR.STRONG.GPU */
static const struct instruction encoding_increase = {0x000000000000798e, 0x0c10e580};

enum comparison { EQUAL = 0x2070, UP_TO_OR = 0x3470, NOT_EQUAL = 0x5070, FROM_AND = 0x6070 }; /* of numbers without sign */

#define MEMBER(name) offsetof(struct tt_heartbeat, name)
#define ALWAYS 7u  /* a predicate */
#define NOT 8u     /* added to one */

static bool is_fixed(const struct trace_kernel *k, size_t at)
{
	return k->fixed && k->fixed[at];
}

/* A branch to itself where nothing comes is only there to stop instructions from being fetched. */
static bool is_end(const struct trace_kernel *k, size_t at)
{
	unsigned before = at ? k->code[at - 1].low & 0xffff : EXIT | UNGUARDED;

	return before == (EXIT | UNGUARDED);
}

static bool is_barrier(struct instruction i)
{
	unsigned opcode = i.low & 0xfff;
	bool same = (i.low >> 24 & 0xff) == (i.low >> 32 & 0xff);

	return (opcode == BARRIER || (opcode == BARRIER_REGISTER && same)) && !(i.high & ARRIVES);
}

enum beat_point trace_beat_point(const struct trace_kernel *k, size_t at)
{
	struct instruction i = k->code[at];
	int64_t target;

	if (!k->wish.beats || is_fixed(k, at))
		return BEAT_NONE;
	if ((i.low & 0xfff) == EXIT)
		return BEAT_AT_EXIT;
	if (is_barrier(i) && at + 1 < k->count)
		return BEAT_AT_BARRIER;
	bool back = code_branch_target(i, at, &target) && target >= 0 && target <= (int64_t)at;
	if (!back || (target == (int64_t)at && is_end(k, at)) || trace_loop_ends(k, (size_t)target, at))
		return BEAT_NONE;
	return BEAT_AT_LOOP;
}

unsigned trace_enter_piece(const struct trace_kernel *k)
{
	return k->wish.flat ? BEAT_ENTER_FLAT : BEAT_ENTER;
}

static bool has_passes(const struct trace_kernel *k)
{
	for (size_t i = 0; i < k->count; i++)
		if (trace_beat_point(k, i) == BEAT_AT_LOOP)
			return true;
	return false;
}

bool trace_counts_barriers(const struct trace_kernel *k)
{
	const uint64_t same = (15ull << NUMBER_SHIFT) | (0xfffull << THREADS_SHIFT);
	const struct instruction *first = NULL;

	for (size_t at = 0; at < k->count; at++) {
		struct instruction i = k->code[at];
		const char *mnemonic = code_mnemonic(k->architecture, i);
		if (!mnemonic || strcmp(mnemonic, "BAR"))
			continue;
		first = first ? first : &k->code[at];
		if (trace_beat_point(k, at) != BEAT_AT_BARRIER || (i.low & 0xfff) != BARRIER ||
		    (i.low >> THREADS_SHIFT & 0xfff) || (i.low & same) != (first->low & same))
			return false;
	}
	return first && !has_passes(k); /* a warp in a loop does not say how many barriers it has passed */
}

const char *trace_kept_plan(const struct trace_kernel *k, struct layout *l, uint64_t *used)
{
	uint32_t predicates = k->used.uniforms.predicates;
	unsigned predicate = PREDICATES;

	l->descriptor = trace_take_uniforms(used, 2);
	l->passes = k->wish.beats ? trace_take_uniforms(used, 1) : 0;
	if (l->descriptor == NO_UNIFORM || l->passes == NO_UNIFORM)
		return "no free uniform registers";
	if (l->counting.pairs)
		predicates |= 1u << l->counting.part | 1u << l->counting.any;
	while (predicate && predicates & 1u << (predicate - 1))
		predicate--;
	l->due = predicate - 1;
	if (k->wish.beats && !predicate)
		return "no free uniform predicates";
	if (is_fixed(k, 0) || trace_beat_point(k, 0) || code_pinned(k->architecture, k->code[0]))
		return "its first instruction is bound to its place";
	return NULL;
}

size_t trace_beat_room(const struct trace_kernel *k)
{
	size_t room = k->wish.beats ? trace_template(BEAT_ENTER)->count + PASS_COST : 0;

	for (size_t i = 0; k->wish.beats && i < k->count; i++)
		switch (trace_beat_point(k, i)) {
		case BEAT_AT_EXIT:
			room += EXIT_COST;
			break;
		case BEAT_AT_BARRIER:
			room += BARRIER_COST;
			break;
		case BEAT_AT_LOOP:
			room += k->registers + 2 * UNIFORM_MAX + PASS_COST;
			break;
		default:
			break;
		}
	return room;
}

static struct instruction guarded(struct instruction i, unsigned predicate)
{
	i.low = (i.low & ~GUARD) | (uint64_t)predicate << 12;
	return i;
}

/* What goes to a member of the heartbeat, from registers. */
static void put_member(struct writer *w, struct instruction i, size_t member, unsigned from, unsigned predicate)
{
	i = guarded(trace_with(i, 0, w->layout->beat, from, w->layout->descriptor), predicate);
	i.low |= (uint64_t)member << 40;
	trace_put(w, i, STORES);
}

static void put_number(struct writer *w, unsigned to, uint32_t number, uint64_t schedule)
{
	trace_put(w, trace_with(encoding_number, to, 0, number, 0), schedule);
}

/* The descriptor of memory, and that no pass is due. */
static void put_kept(struct writer *w, uint64_t schedule)
{
	const struct layout *l = w->layout;

	trace_put(w, trace_with(encoding_descriptor, l->descriptor, 0, 0, 0), schedule);
	if (!has_passes(w->kernel))
		return;
	struct instruction none = trace_with(encoding_count, l->passes, URZ, 0, 0);
	none.high |= (uint64_t)l->due << 17;
	trace_put(w, none, schedule);
}

/*
 * Has the lines of constants come that the piece and the kernel read, all at once. Only what follows the piece waits for
 * the registers.
 */
static void put_fetch(struct writer *w)
{
	const struct layout *l = w->layout;
	size_t own = w->kernel->parameter + offsetof(struct tt_trace_param, heartbeat);

	trace_put(w, trace_with(encoding_load_2, l->base + 2, 0, CONSTANT(own), 0), FETCH);
	trace_put(w, trace_with(encoding_load, l->saved, 0, CONSTANT(DESCRIPTOR), 0), FETCH);
	trace_put(w, trace_with(encoding_load, l->one, 0, CONSTANT(0), 0), FETCH);
}

void trace_put_enter(struct writer *w)
{
	const struct layout *l = w->layout;
	struct inputs in = {.output = l->beat, .outputs = 2};

	struct layout own = *l; /* its own registers are free there */

	own.base = 0;
	for (unsigned u = 0; u < UNIFORMS_MAX; u++)
		own.uniform[u] = (uint8_t)(OF_PIECES + u);
	if (!w->kernel->wish.beats) {
		put_kept(w, SETTLED);
	} else {
		const struct template *t = trace_template(trace_enter_piece(w->kernel));
		put_fetch(w);
		bool apart = l->descriptor >= t->uniforms && l->passes >= t->uniforms;
		if (apart)
			put_kept(w, AT_ONCE); /* the piece takes longer */
		put_number(w, l->state, 0, AT_ONCE);
		if (l->barriers)
			put_number(w, l->barriers, 0, AT_ONCE);
		put_number(w, l->base, TT_WARP_RUNS, AT_ONCE);
		w->layout = &own;
		trace_put_straight(w, trace_enter_piece(w->kernel), &in);
		w->layout = l;
		if (!apart)
			put_kept(w, SETTLED);
		put_member(w, encoding_store, MEMBER(state), l->base, ALWAYS);
		w->out[w->count - 1].high |= AFTER_STORE << SCHEDULE; /* what was fetched has come */
	}
	if (l->counting.pairs)
		trace_put_first_counts(w);
}

/*
 * The kernel's last stores may still read its registers, and no scoreboard says until when: so only a register above them
 * is used.
 */
void trace_put_exit(struct writer *w)
{
	unsigned lanes = w->layout->base;

	trace_put(w, trace_with(encoding_active, lanes, 0, 0, 0), AT_ONCE | AFTER_STORE);
	trace_put(w, encoding_elect, SETTLED);
	put_member(w, encoding_exited, MEMBER(exited), lanes, 1);
}

/* ---- barriers ---- */

/* Puts the state of a warp that waits at the barrier into a register. `with` is free. */
static void put_barrier_state(struct writer *w, struct instruction i, unsigned to, unsigned with)
{
	unsigned from = i.low >> 24 & 0xff;

	if ((i.low & 0xfff) == BARRIER) {
		put_number(w, to, TT_WARP_AT(i.low >> NUMBER_SHIFT & 15, i.low >> THREADS_SHIFT & 0xfff), QUICK);
		return;
	}
	trace_put(w, trace_with(encoding_and, to, from, 15, 0), QUICK);
	trace_put(w, trace_with(encoding_and, with, from, 0xfffu << TT_WARP_THREADS_SHIFT, 0), QUICK);
	trace_put(w, trace_with(encoding_mix, to, to, 1u << TT_WARP_NUMBER_SHIFT, with), QUICK);
	trace_put(w, trace_with(encoding_or, to, to, TT_WARP_AT(0, 0), 0), QUICK);
}

/*
 * A count of barriers tells which warps wait. Without one, a state behind the barrier says that this one does not. It has
 * the clock, so that it is never twice the same.
 */
size_t trace_put_barrier(struct writer *w, struct instruction i, uint32_t number)
{
	unsigned at_barrier = w->layout->base, behind = at_barrier + 2, guard = i.low >> 12 & 15, count = w->layout->barriers;

	if (count)
		trace_put(w, guarded(trace_with(encoding_add, count, count, 1u << TT_WARP_COUNT_SHIFT, 0), guard), QUICK);
	put_number(w, at_barrier, number, AT_ONCE | AFTER_STORE);
	if (!count)
		put_barrier_state(w, i, at_barrier + 1, behind);
	else
		trace_put(w, trace_with(encoding_add, at_barrier + 1, count, TT_WARP_AT(i.low >> NUMBER_SHIFT & 15, 0), 0),
			  QUICK);
	put_member(w, encoding_store_2, MEMBER(instruction), at_barrier, guard);
	size_t at = w->count;
	w->out[w->count++] = code_without_reuse(i);
	if (count)
		return at;
	trace_put(w, trace_with(encoding_clock, behind, 0, 0, 0), QUICK);
	trace_put(w, trace_with(encoding_or, behind, behind, TT_WARP_RUNS_ON, 0), QUICK);
	put_member(w, encoding_store, MEMBER(state), behind, guard);
	return at;
}

/* ---- loops ---- */

static bool begins(const char *mnemonic, const char *const *words, size_t count)
{
	for (size_t i = 0; mnemonic && i < count; i++)
		if (!strncmp(mnemonic, words[i], strlen(words[i])))
			return true;
	return false;
}

/* How likely a loop waits for what the instruction reads; 0: not. */
static unsigned waits_for(unsigned architecture, struct instruction i)
{
	const char *mnemonic = code_mnemonic(architecture, i);

	if (!mnemonic || !trace_memory(i, true))
		return 0;
	return !strcmp(mnemonic, "SYNCS") ? 3 : !strncmp(mnemonic, "ATOM", 4) ? 2 : !strncmp(mnemonic, "LD", 2);
}

unsigned trace_writes(unsigned architecture, struct instruction i, unsigned *first)
{
	static const char *const none[] = {"ST",       "RED",  "BRA",       "BSYNC",  "BSSY",   "NOP",
					   "WARPSYNC", "BAR",  "SYNCS",     "MEMBAR", "YIELD",  "CCTL",
					   "ERRBAR",   "EXIT", "NANOSLEEP", "FENCE",  "LDGSTS", "LDGDEPBAR"};
	const char *mnemonic = code_mnemonic(architecture, i);
	unsigned to = i.low >> 16 & 0xff, size = i.high >> 9 & 7;

	*first = to;
	if (!mnemonic)
		return RZ;
	if (to == RZ || code_is_uniform(architecture, i) || begins(mnemonic, none, sizeof(none) / sizeof(*none)) ||
	    strstr(mnemonic, "SETP"))
		return 0;
	if (strstr(mnemonic, "MMA"))
		return RZ;
	if (!strncmp(mnemonic, "LD", 2) || !strncmp(mnemonic, "ATOM", 4))
		return size == 6 ? 4 : size == 5 ? 2 : 1;
	return 2;
}

/* Whether its address is the same at the end of the loop. */
static bool keeps_address(const struct trace_kernel *k, size_t begin, size_t end, size_t at)
{
	const struct memory *m = trace_memory(k->code[at], true);
	struct uniforms written = {0};
	unsigned first;

	for (size_t i = begin; i <= end; i++) {
		unsigned count = trace_writes(k->architecture, k->code[i], &first);
		if (count && trace_address_uses(k->code[at], m, first, count))
			return false;
		code_uniforms(k->architecture, k->code[i], &written);
	}
	return !written.registers;
}

struct loop {
	size_t begin, end, access; /* access: what it may wait for; begin + count: nothing */
	bool waits, known;         /* known: the address of that */
};

static struct loop find_loop(const struct trace_kernel *k, size_t end)
{
	struct loop loop = {.end = end};
	unsigned best = 0;
	int64_t target;

	code_branch_target(k->code[end], end, &target);
	loop.begin = (size_t)target;
	for (size_t i = loop.begin; i <= end; i++) {
		const char *mnemonic = code_mnemonic(k->architecture, k->code[i]);
		unsigned likely = waits_for(k->architecture, k->code[i]);
		loop.waits |= mnemonic && (!strcmp(mnemonic, "SYNCS") || !strcmp(mnemonic, "NANOSLEEP"));
		if (likely > best) {
			best = likely;
			loop.access = i;
		}
	}
	loop.known = best && keeps_address(k, loop.begin, end, loop.access);
	return loop;
}

/* A hash of all that the kernel has in registers, apart from that of other loops. */
static void put_hash(struct writer *w, size_t loop)
{
	const struct layout *l = w->layout;
	const struct trace_kernel *k = w->kernel;
	unsigned own = k->registers > SPARE ? k->registers - SPARE : 0;

	trace_put_number(w, l->one, (uint32_t)loop);
	trace_put(w, trace_with(encoding_mix, l->one, l->one, HASH_FACTOR, l->saved), QUICK);
	for (unsigned r = 0; r < own; r++)
		trace_put(w, trace_with(encoding_mix, l->one, l->one, HASH_FACTOR, r), QUICK);
	for (unsigned u = 0; u < UNIFORM_MAX; u++) {
		if (!(k->used.uniforms.registers >> u & 1))
			continue;
		trace_put(w, trace_with(encoding_add_uniform, l->one, l->one, u, 0), SETTLED);
		trace_put(w, trace_with(encoding_mix, l->one, l->one, HASH_FACTOR, RZ), QUICK);
	}
}

static struct instruction compare(struct instruction i, enum comparison how, unsigned to, unsigned with)
{
	i.high |= how | (uint64_t)to << 17 | (uint64_t)with << 23;
	return i;
}

/* Makes a predicate false where another one holds. */
static void put_clear(struct writer *w, unsigned predicate, unsigned where)
{
	struct instruction i = trace_with(encoding_compare, 0, RZ, RZ, 0);

	trace_put(w, guarded(compare(i, NOT_EQUAL, predicate, ALWAYS), where), SETTLED);
}

/*
 * Compares the hash with that of the state, and makes the next state. Sets P0: all lanes have the same, and P2, in one lane:
 * this was the last comparison.
 */
static void put_comparison(struct writer *w)
{
	const struct layout *l = w->layout;
	unsigned hash = l->one, other = l->base;

	trace_put(w, trace_with(encoding_shift, hash, 0, HASH_SHIFT, hash), SETTLED);
	trace_put(w, trace_with(encoding_and, hash, hash, HASH_MASK, 0), SETTLED);
	trace_put(w, trace_with(encoding_and, other, l->state, HASH_MASK, 0), SETTLED);
	trace_put(w, compare(trace_with(encoding_compare, 0, other, hash, 0), EQUAL, 0, ALWAYS), SETTLED);
	trace_put(w, encoding_all, SETTLED);
	trace_put(w, trace_with(encoding_and, other, l->state, LEFT_MASK, 0), SETTLED);
	trace_put(w, compare(trace_with(encoding_compare_number, 0, other, 1, 0), UP_TO_OR, 2, 0), SETTLED);
	trace_put(w, compare(trace_with(encoding_compare_number, 0, l->state, IN_WINDOW, 0), FROM_AND, 2, 2), SETTLED);
	trace_put(w, compare(trace_with(encoding_compare_number, 0, l->state, IN_WINDOW, 0), FROM_AND, 1, ALWAYS), SETTLED);
	trace_put(w, trace_with(encoding_or, hash, hash, IN_WINDOW | WINDOW, 0), SETTLED);
	trace_put(w, guarded(trace_with(encoding_add, hash, l->state, UINT32_MAX, 0), 1), SETTLED);
	trace_put(w, guarded(trace_with(encoding_number, hash, 0, 0, 0), 2), SETTLED);
	trace_put(w, trace_with(encoding_copy, l->state, 0, hash, 0), SETTLED);
	trace_put(w, encoding_elect, SETTLED);
	put_clear(w, 2, 1 | NOT);
}

/* Writes the heartbeat, where P2 says so. */
static void put_beat(struct writer *w, const struct loop *loop)
{
	unsigned four = w->layout->base;

	put_number(w, four, (uint32_t)loop->end, SETTLED);
	put_number(w, four + 1, TT_WARP_RUNS, SETTLED);
	for (unsigned i = 2; i < 4 && !loop->known; i++)
		put_number(w, four + i, UINT32_MAX, SETTLED);
	put_member(w, encoding_store_4, MEMBER(instruction), four, 2);
	put_number(w, four, (uint32_t)loop->access, SETTLED | AFTER_STORE);
	put_number(w, four + 1, (uint32_t)loop->begin, SETTLED);
	put_member(w, encoding_store_2, MEMBER(access), four, 2);
	put_number(w, four + 2, (uint32_t)loop->end, SETTLED | AFTER_STORE);
	put_member(w, encoding_store, MEMBER(last), four + 2, 2);
	put_number(w, four, 1, SETTLED | AFTER_STORE);
	put_number(w, four + 1, 0, SETTLED);
	put_member(w, encoding_increase, MEMBER(count), four, 2);
	trace_put(w, compare(trace_with(encoding_compare, 0, RZ, RZ, 0), EQUAL, 1, 2), SETTLED);
	put_clear(w, 1, 0);
	put_clear(w, 2, 0 | NOT);
	put_member(w, encoding_increase, MEMBER(changed), four, 1);
	put_member(w, encoding_increase, MEMBER(repeated), four, 2);
}

static void put_look(struct writer *w, const struct loop *loop)
{
	const struct layout *l = w->layout;
	struct layout address = *l;

	trace_put_wait(w);
	trace_put_save(w);
	put_hash(w, loop->end);
	put_comparison(w);
	if (loop->known) {
		address.pair = l->base + 2;
		w->layout = &address;
		trace_put_address(w, w->kernel->code[loop->access], trace_memory(w->kernel->code[loop->access], true));
		w->layout = l;
	}
	put_beat(w, loop);
	/* in a window each pass is looked at: the state's high bits make the next addition carry */
	trace_put(w, trace_with(encoding_to_uniform, l->passes, l->state, 0, 0), SETTLED);
	trace_put_restore(w);
}

/* Whether a pass is looked at is known one pass later, so nothing waits for it. */
void trace_put_pass(struct writer *w, size_t at)
{
	const struct layout *l = w->layout;
	unsigned architecture = w->kernel->architecture;
	struct loop loop = find_loop(w->kernel, at);
	struct instruction count = trace_with(encoding_count, l->passes, l->passes, loop.waits ? EACH_WAIT : EACH_PASS, 0);
	struct instruction due = trace_with(encoding_if_due, 0, l->due, 0, 0);

	count.high |= (uint64_t)l->due << 17;
	w->out[at] = code_retarget(architecture, w->kernel->code[at], at * SASS_BYTES, w->count * SASS_BYTES);
	trace_put(w, code_retarget(architecture, due, w->count * SASS_BYTES, (w->count + 3) * SASS_BYTES), BRANCHES);
	trace_put(w, count, QUICK);
	trace_put_branch(w, loop.begin);
	put_look(w, &loop);
	trace_put(w, count, QUICK);
	trace_put_branch(w, loop.begin);
}
