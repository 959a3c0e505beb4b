/*
 * Records values that accesses bring or take. See trace_code.h for the invariant.
 *
 * A piece begins the record with its addresses and says where values go, code from here stores the registers, and another
 * piece completes the record. What is brought by a load is recorded behind it, with the addresses from before it.
 */
#include <string.h>

#include "sass/trace_parts.h"

#define RZ 255u
#define SUM_OF_FLOATS 0x9a3u /* ATOMG of floats; its values have other types than those of integers */
#define LESS_FLOATS 0x9a6u   /* REDG */
#define COMPARES_GLOBAL 0x3a9u
#define COMPARES_SHARED 0x38du
#define LANES_BYTES 128u /* a value of each lane */

/* ISETP.NE.AND P0, PT, a, RZ, PT; ULDC.64 d, c[0x0][0x208]; LOP3.LUT d, a, imm, RZ, 0xc0; @P0 STG.E desc[c][a], b */
static const struct instruction encoding_if_set = {0x000000ff0000720c, 0x03f05270};
static const struct instruction encoding_descriptor = {0x0000820000007ab9, 0x0a00};
static const struct instruction encoding_and = {0x0000000000007812, 0x078ec0ff};
static const struct instruction encoding_store = {0x0000000000000986, 0x0c101900};

struct values {
	unsigned first, words; /* registers */
	uint32_t mask;         /* of what counts of the only word */
	bool after;            /* the instruction brings them */
};

static bool is(struct instruction i, const struct trace_kernel *k, const char *prefix)
{
	const char *mnemonic = code_mnemonic(k->architecture, i);

	return mnemonic && !strncmp(mnemonic, prefix, strlen(prefix));
}

static void find_size(struct instruction i, bool atomic, struct values *v)
{
	static const unsigned sizes[8] = {1, 1, 1, 1, 1, 2, 4, 0}, integers[8] = {1, 1, 2, 2}, floats[8] = {[1] = 1, [7] = 2};
	static const uint32_t masks[8] = {0xff, 0xff, 0xffff, 0xffff};
	unsigned opcode = i.low & 0xfff, type = i.high >> 9 & 7;

	v->mask = atomic || !masks[type] ? UINT32_MAX : masks[type];
	v->words = !atomic ? sizes[type] : opcode == SUM_OF_FLOATS || opcode == LESS_FLOATS ? floats[type] : integers[type];
}

static struct values values_of(const struct trace_kernel *k, struct instruction i)
{
	unsigned opcode = i.low & 0xfff, to = i.low >> 16 & 0xff, from = i.low >> 32 & 0xff;
	bool compares = opcode == COMPARES_GLOBAL || opcode == COMPARES_SHARED;
	struct values v = {0};

	if (!trace_memory(i, false))
		return v;
	bool load = is(i, k, "LD"), atomic = is(i, k, "ATOM"), reduction = is(i, k, "RED");
	v.after = load || (atomic && to != RZ);
	find_size(i, atomic || reduction, &v);
	v.first = v.after ? to : compares ? (unsigned)(i.high & 0xff) : from;
	return v;
}

bool trace_has_values(const struct trace_kernel *k, struct instruction i)
{
	return values_of(k, i).words;
}

/* Stores the registers where the first piece said. */
static void put_stores(struct writer *w, const struct values *v)
{
	const struct layout *l = w->layout;
	unsigned descriptor = l->uniform[0];

	trace_put(w, trace_with(encoding_if_set, 0, l->tag, 0, 0), SETTLED);
	trace_put(w, trace_with(encoding_descriptor, descriptor, 0, 0, 0), SETTLED);
	for (unsigned i = 0; i < v->words; i++) {
		unsigned from = v->first == RZ ? RZ : v->first + i;
		if (v->mask != UINT32_MAX && from != RZ) {
			trace_put(w, trace_with(encoding_and, l->one, from, v->mask, 0), SETTLED);
			from = l->one;
		}
		struct instruction store = trace_with(encoding_store, 0, l->pair, from, descriptor);
		store.low |= (uint64_t)(LANES_BYTES * i) << 40;
		trace_put(w, store, STORES);
	}
}

static struct input in_register(unsigned r)
{
	return (struct input){false, r};
}

size_t trace_put_values(struct writer *w, struct instruction i, uint32_t number)
{
	const struct layout *l = w->layout;
	struct values v = values_of(w->kernel, i);
	struct inputs in = {.output = l->pair, .outputs = 3};
	size_t at = 0;

	if (v.after) {
		at = w->count;
		w->out[w->count++] = code_without_reuse(i);
		trace_put_wait(w);
	}
	in.of[SOURCE_INSTRUCTION] = (struct input){true, number};
	in.of[SOURCE_BYTES] = (struct input){true, v.words * LANES_BYTES};
	in.of[SOURCE_ZERO] = (struct input){true, 0};
	in.of[SOURCE_MASK] = in_register(l->mask);
	in.of[SOURCE_TAG] = in_register(l->tag);
	in.of[SOURCE_ADDRESS_LOW] = in_register(l->pair);
	in.of[SOURCE_ADDRESS_HIGH] = in_register(l->pair + 1);
	trace_put_piece(w, TT_TRACE_VALUES, &in);
	put_stores(w, &v);
	trace_put_piece(w, VALUES_END, &in);
	return at;
}
