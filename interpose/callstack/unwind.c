/*
 * Unwinds with kept rules. See unwind.h for the invariant.
 *
 * Almost all code is compiled so that a frame ends at a constant distance from the stack pointer or the frame pointer,
 * with the return address and the caller's frame pointer there. This is a rule of 64 bits for each address. It comes
 * from the call frame information that the exception unwinder finds (DWARF 5, section 6.4), and is kept with the code
 * before the address, because other code may be loaded there later.
 */
#include "callstack/unwind.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "util/compiler.h"

#if defined(__x86_64__)

#define RULES 8192
#define SAVED 4 /* most states that call frame information may remember */
#define FRAME_MOST ((uintptr_t)16 << 20)
enum register_number { RBP = 6, RSP = 7, RETURN = 16 };

/* Where a value is: at `offset` from the end of the frame, or from the frame pointer. */
enum place { UNCHANGED, FROM_END, FROM_FRAME_POINTER, NOWHERE_KNOWN };
/* The end of the frame: at `offset` from a register, or the word there. */
enum end { OF_RSP, OF_RBP, IN_WORD_OF_RBP, OUTERMOST, HARD };

struct rule {
	uint8_t end, caller_rbp; /* enum end, enum place */
	int16_t rbp_offset;
	int32_t end_offset;
};
_Static_assert(sizeof(struct rule) == sizeof(uint64_t), "kept as a word");

/* Two words that other threads may write: key belongs to rule, or the entry has none. */
static struct {
	_Atomic uint64_t key, rule;
} rules[RULES];

struct bases {
	void *text, *data, *function;
};
static const uint8_t *(*find_description)(void *pc, struct bases *bases);

void unwind_open(void *library)
{
	*(void **)&find_description = library ? dlsym(library, "_Unwind_Find_FDE") : NULL;
}

/* ---- reading call frame information ---- */

struct reader {
	const uint8_t *at, *end;
	bool bad;
};

static uint64_t fixed(struct reader *r, unsigned size)
{
	uint64_t value = 0;

	if (r->end - r->at < (ptrdiff_t)size) {
		r->bad = true;
		r->at = r->end;
		return 0;
	}
	memcpy(&value, r->at, size);
	r->at += size;
	return value;
}

/* LEB128 */
static int64_t number(struct reader *r, bool is_signed)
{
	uint64_t value = 0;
	unsigned shift = 0;
	uint8_t byte;

	do {
		byte = (uint8_t)fixed(r, 1);
		if (shift < 64)
			value |= (uint64_t)(byte & 0x7f) << shift;
		shift += 7;
	} while (byte & 0x80);
	if (is_signed && shift < 64 && byte & 0x40)
		value |= ~UINT64_C(0) << shift;
	return (int64_t)value;
}

static uint64_t count(struct reader *r)
{
	return (uint64_t)number(r, false);
}

static struct reader block(struct reader *r)
{
	uint64_t size = count(r);
	struct reader inside = {r->at, r->at + size, false};

	if (size > (uint64_t)(r->end - r->at)) {
		r->bad = true;
		inside.end = r->end;
	}
	r->at = inside.end;
	return inside;
}

/* Of an encoded pointer; 0: unknown. */
static unsigned pointer_size(uint8_t encoding)
{
	static const uint8_t sizes[16] = {8, 0, 2, 4, 8, 0, 0, 0, 8, 0, 2, 4, 8};

	return encoding == 0x50 ? 0 : sizes[encoding & 15]; /* 0x50: aligned */
}

struct state {
	enum end end;
	int64_t end_offset;
	struct {
		enum place place;
		int64_t offset;
	} rbp, back; /* where the caller's is, and the return address */
};

struct program {
	struct state now, initial, saved[SAVED];
	unsigned depth;
	uint64_t code_unit;
	int64_t data_unit;
	uintptr_t at, target;
};

static void set(struct state *s, uint64_t which, enum place place, int64_t offset)
{
	if (which == RBP)
		s->rbp.place = place, s->rbp.offset = offset;
	if (which == RETURN)
		s->back.place = place, s->back.offset = offset;
}

static void restore(struct program *p, uint64_t which)
{
	if (which == RBP)
		p->now.rbp = p->initial.rbp;
	if (which == RETURN)
		p->now.back = p->initial.back;
}

static void set_end(struct state *s, uint64_t which, int64_t offset)
{
	s->end = which == RSP ? OF_RSP : which == RBP ? OF_RBP : HARD;
	s->end_offset = offset;
}

/* What functions have that align their stack: the frame pointer and an offset, and for the end the word there. */
static bool near_frame_pointer(struct reader e, bool word, int64_t *offset)
{
	bool matches = fixed(&e, 1) == 0x76; /* DW_OP_breg6 */

	*offset = number(&e, true);
	return matches && (!word || fixed(&e, 1) == 0x06) && !e.bad && e.at == e.end; /* DW_OP_deref */
}

static void end_by_expression(struct state *s, struct reader e)
{
	s->end = near_frame_pointer(e, true, &s->end_offset) ? IN_WORD_OF_RBP : HARD;
}

static void place_by_expression(struct state *s, uint64_t which, struct reader e)
{
	int64_t offset;
	bool near = near_frame_pointer(e, false, &offset);

	set(s, which, near ? FROM_FRAME_POINTER : NOWHERE_KNOWN, offset);
}

/* Instructions about one register, which is their first operand. False: unknown. */
static bool of_register(struct program *p, uint8_t what, struct reader *r)
{
	struct state *s = &p->now;
	uint64_t which = count(r);

	switch (what) {
	case 0x05: /* DW_CFA_offset_extended */
		set(s, which, FROM_END, (int64_t)count(r) * p->data_unit);
		return true;
	case 0x06: /* DW_CFA_restore_extended */
		restore(p, which);
		return true;
	case 0x07: /* DW_CFA_undefined */
	case 0x08: /* DW_CFA_same_value */
		set(s, which, UNCHANGED, 0);
		return true;
	case 0x09: /* DW_CFA_register */
		count(r);
		set(s, which, NOWHERE_KNOWN, 0);
		return true;
	case 0x0c: /* DW_CFA_def_cfa */
		set_end(s, which, (int64_t)count(r));
		return true;
	case 0x0d: /* DW_CFA_def_cfa_register */
		set_end(s, which, s->end_offset);
		return true;
	case 0x10: /* DW_CFA_expression */
		place_by_expression(s, which, block(r));
		return true;
	case 0x11: /* DW_CFA_offset_extended_sf */
		set(s, which, FROM_END, number(r, true) * p->data_unit);
		return true;
	case 0x12: /* DW_CFA_def_cfa_sf */
		set_end(s, which, number(r, true) * p->data_unit);
		return true;
	default:
		return false;
	}
}

/* Instructions whose operands are in the following bytes. False: unknown. */
static bool extended(struct program *p, uint8_t what, struct reader *r)
{
	struct state *s = &p->now;

	switch (what) {
	case 0x00: /* DW_CFA_nop */
		return true;
	case 0x02: /* DW_CFA_advance_loc1, 2 and 4 */
	case 0x03:
	case 0x04:
		p->at += fixed(r, 1u << (what - 2)) * p->code_unit;
		return true;
	case 0x0a: /* DW_CFA_remember_state */
		if (p->depth == SAVED)
			return false;
		p->saved[p->depth++] = *s;
		return true;
	case 0x0b: /* DW_CFA_restore_state */
		if (!p->depth)
			return false;
		*s = p->saved[--p->depth];
		return true;
	case 0x0e: /* DW_CFA_def_cfa_offset */
		s->end_offset = (int64_t)count(r);
		return true;
	case 0x0f: /* DW_CFA_def_cfa_expression */
		end_by_expression(s, block(r));
		return true;
	case 0x13: /* DW_CFA_def_cfa_offset_sf */
		s->end_offset = number(r, true) * p->data_unit;
		return true;
	case 0x2e: /* DW_CFA_GNU_args_size */
		count(r);
		return true;
	default:
		return of_register(p, what, r);
	}
}

static bool run(struct program *p, struct reader r)
{
	while (r.at < r.end && p->at <= p->target) {
		uint8_t what = (uint8_t)fixed(&r, 1);
		if (what >> 6 == 1) /* DW_CFA_advance_loc */
			p->at += (what & 63) * p->code_unit;
		else if (what >> 6 == 2) /* DW_CFA_offset */
			set(&p->now, what & 63, FROM_END, (int64_t)count(&r) * p->data_unit);
		else if (what >> 6 == 3) /* DW_CFA_restore */
			restore(p, what & 63);
		else if (!extended(p, what, &r))
			return false;
	}
	return !r.bad;
}

static struct reader entry(const uint8_t *at)
{
	uint32_t size;

	memcpy(&size, at, sizeof(size));
	return (struct reader){at + 4, at + 4 + size, size == UINT32_MAX};
}

/* What functions have in common. False: not understood. pointers: the encoding of theirs. */
static bool read_common(struct program *p, struct reader *r, uint8_t *pointers, bool *augmented)
{
	fixed(r, 4);
	uint8_t version = (uint8_t)fixed(r, 1);
	const char *letters = (const char *)r->at;

	if (!memchr(r->at, 0, (size_t)(r->end - r->at)))
		return false;
	r->at += strlen(letters) + 1;
	p->code_unit = count(r);
	p->data_unit = number(r, true);
	if ((version == 1 ? fixed(r, 1) : count(r)) != RETURN || (*letters && *letters != 'z'))
		return false;
	*augmented = *letters;
	if (!*augmented)
		return !r->bad;
	struct reader values = block(r);
	for (letters++; *letters; letters++) {
		uint8_t encoding = (uint8_t)fixed(&values, 1);
		if (*letters == 'R')
			*pointers = encoding;
		else if (*letters == 'P' && pointer_size(encoding))
			fixed(&values, pointer_size(encoding));
		else if (*letters != 'L')
			return false; /* 'S': a frame that a signal interrupted */
	}
	return !values.bad && !r->bad;
}

static bool read_state(struct program *p, const uint8_t *description, uintptr_t function)
{
	uint8_t pointers = 0;
	bool augmented;
	int32_t distance;
	struct reader own = entry(description);

	memcpy(&distance, own.at, sizeof(distance));
	struct reader common = entry(own.at - distance);
	if (own.bad || common.bad || !read_common(p, &common, &pointers, &augmented) || !pointer_size(pointers))
		return false;
	p->at = 0;
	if (!run(p, common))
		return false;
	p->initial = p->now;
	fixed(&own, 4);
	fixed(&own, 2 * pointer_size(pointers));
	if (augmented)
		block(&own);
	p->at = function;
	return run(p, own);
}

static struct rule make_rule(uintptr_t pc)
{
	struct program p = {.target = pc - 1};
	struct bases bases;
	const uint8_t *description = find_description((void *)(pc - 1), &bases);

	if (!description)
		return (struct rule){.end = OUTERMOST};
	if (!read_state(&p, description, (uintptr_t)bases.function))
		return (struct rule){.end = HARD};
	struct state *s = &p.now;
	if (s->back.place == UNCHANGED)
		return (struct rule){.end = OUTERMOST};
	bool plain = s->back.place == FROM_END && s->back.offset == -8 && s->rbp.place != NOWHERE_KNOWN &&
		     s->rbp.offset == (int16_t)s->rbp.offset && s->end_offset == (int32_t)s->end_offset;
	return (struct rule){.end = plain ? s->end : HARD,
			     .caller_rbp = s->rbp.place,
			     .rbp_offset = (int16_t)s->rbp.offset,
			     .end_offset = (int32_t)s->end_offset};
}

/* ---- walking ---- */

/* The code before an address, on its page. */
static UNWATCHED uint64_t code_before(uintptr_t pc)
{
	typedef uint64_t __attribute__((may_alias, aligned(1))) word;

	return pc % 4096 < 8 ? 0 : *(const word *)(pc - 8);
}

static struct rule rule_of(uintptr_t pc)
{
	uint64_t named = pc ^ code_before(pc) * 0x9e3779b97f4a7c15u;
	size_t i = (pc * 0x9e3779b97f4a7c15u >> 32) % RULES;
	uint64_t word = atomic_load_explicit(&rules[i].rule, memory_order_relaxed);
	struct rule r;

	if (likely((atomic_load_explicit(&rules[i].key, memory_order_relaxed) ^ word) == named)) {
		memcpy(&r, &word, sizeof(r));
		return r;
	}
	r = make_rule(pc);
	memcpy(&word, &r, sizeof(word));
	atomic_store_explicit(&rules[i].key, named ^ word, memory_order_relaxed);
	atomic_store_explicit(&rules[i].rule, word, memory_order_relaxed);
	return r;
}

static UNWATCHED uintptr_t word_at(uintptr_t address)
{
	typedef uintptr_t __attribute__((may_alias)) word;

	return *(const word *)address;
}

bool unwind_frames(bool (*visit)(void *to, uintptr_t pc, uintptr_t stack), void *to)
{
	uintptr_t pc, rsp, rbp;

	if (!find_description)
		return false;
	__asm__ volatile("lea 0(%%rip), %0\n\tmov %%rsp, %1\n\tmov %%rbp, %2" : "=&r"(pc), "=&r"(rsp), "=&r"(rbp));
	for (pc++;;) { /* as if a call ended here */
		struct rule r = rule_of(pc);
		if (r.end == HARD)
			return false;
		if (r.end == OUTERMOST)
			return true;
		uintptr_t end = (r.end == OF_RSP ? rsp : rbp) + (uintptr_t)(intptr_t)r.end_offset;
		if (r.end == IN_WORD_OF_RBP)
			end = word_at(end);
		if (end <= rsp || end - rsp > FRAME_MOST || end % 8) /* on another stack */
			return false;
		if (r.caller_rbp)
			rbp = word_at((r.caller_rbp == FROM_END ? end : rbp) + (uintptr_t)(intptr_t)r.rbp_offset);
		pc = word_at(end - 8);
		rsp = end;
		if (!visit(to, pc, rsp) || !pc)
			return true;
	}
}

#else

void unwind_open(void *library)
{
	(void)library;
}

bool unwind_frames(bool (*visit)(void *to, uintptr_t pc, uintptr_t stack), void *to)
{
	(void)visit;
	(void)to;
	return false;
}

#endif
