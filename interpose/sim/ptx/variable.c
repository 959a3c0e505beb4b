/*
 * Declarations of PTX variables: type, alignment, dimensions, initial value.
 *
 * Invariant: init, if there is one, has exactly size bytes, and every relocation lies within it.
 */
#include "sim/ptx/parse.h"

#include <string.h>

#define LARGEST ((size_t)1 << 40)       /* of a variable */
#define LARGEST_INIT ((size_t)1 << 30)
#define DIMENSIONS 8

static const struct {
	const char *name;
	uint8_t size;
} types[] = {
	[PTX_NONE] = {"", 0},
	[PTX_B8] = {"b8", 1},
	[PTX_U8] = {"u8", 1},
	[PTX_S8] = {"s8", 1},
	[PTX_B16] = {"b16", 2},
	[PTX_U16] = {"u16", 2},
	[PTX_S16] = {"s16", 2},
	[PTX_F16] = {"f16", 2},
	[PTX_B32] = {"b32", 4},
	[PTX_U32] = {"u32", 4},
	[PTX_S32] = {"s32", 4},
	[PTX_F32] = {"f32", 4},
	[PTX_F16X2] = {"f16x2", 4},
	[PTX_B64] = {"b64", 8},
	[PTX_U64] = {"u64", 8},
	[PTX_S64] = {"s64", 8},
	[PTX_F64] = {"f64", 8},
	[PTX_PRED] = {"pred", 0},
};

size_t ptx_type_size(enum ptx_type t)
{
	return types[t].size;
}

enum ptx_type ptx_type_named(const char *name, size_t length)
{
	for (unsigned t = PTX_NONE + 1; t <= PTX_PRED; t++)
		if (strlen(types[t].name) == length && !memcmp(types[t].name, name, length))
			return t;
	return PTX_NONE;
}

struct ptx_declaration ptx_parse_declaration(struct ptx_source *s)
{
	struct ptx_declaration d = {.vector = 1};
	bool pointer = false; /* attributes after .ptr describe the target of the pointer */

	for (;;) {
		if (ptx_take_word(s, ".align")) {
			size_t align = (size_t)ptx_integer(s);
			if (!align || align & (align - 1) || align > 65536)
				ptx_reject(s, s->token.line, "alignment is no power of 2");
			if (!pointer)
				d.align = align;
		} else if (ptx_take_word(s, ".attribute")) {
			ptx_expect(s, '(');
			while (!ptx_at(s, ')') && s->token.kind != PTX_END) {
				d.managed |= ptx_at_word(s, ".managed");
				ptx_advance(s);
			}
			ptx_expect(s, ')');
		} else if (ptx_take_word(s, ".ptr")) {
			pointer = true;
		} else if (pointer && (ptx_take_word(s, ".global") || ptx_take_word(s, ".const") ||
				      ptx_take_word(s, ".shared") || ptx_take_word(s, ".local"))) {
			continue;
		} else if (ptx_take_word(s, ".v2")) {
			d.vector = 2;
		} else if (ptx_take_word(s, ".v4")) {
			d.vector = 4;
		} else if (s->token.kind == PTX_WORD && *s->token.text == '.' && !d.type) {
			d.type = ptx_type_named(s->token.text + 1, s->token.length - 1);
			if (!d.type)
				ptx_unexpected(s);
			ptx_advance(s);
		} else {
			break;
		}
	}
	if (!d.type)
		ptx_unexpected(s);
	return d;
}

struct initial {
	struct ptx_variable *v;
	size_t element, capacity, relocation_capacity, at; /* at: bytes written */
	size_t dimension[DIMENSIONS];
	unsigned dimensions;
};

static void reserve(struct ptx_source *s, struct initial *i, size_t bytes)
{
	if (bytes > LARGEST_INIT)
		ptx_reject(s, s->token.line, "initial value is too large");
	if (bytes <= i->capacity)
		return;
	size_t n = bytes > i->capacity * 2 ? bytes : i->capacity * 2;
	uint8_t *bigger = ptx_arena_take(s, n);
	if (i->capacity)
		memcpy(bigger, i->v->init, i->capacity);
	i->v->init = bigger;
	i->capacity = n;
}

static void relocation(struct ptx_source *s, struct initial *i, uint64_t mask)
{
	struct ptx_variable *v = i->v;

	v->relocations = ptx_arena_grow(s, v->relocations, v->relocation_count, &i->relocation_capacity,
					sizeof(*v->relocations));
	struct ptx_relocation *r = &v->relocations[v->relocation_count++];
	*r = (struct ptx_relocation){.offset = i->at, .width = i->element, .mask = mask, .line = s->token.line};
	if (ptx_take_word(s, "generic")) {
		ptx_expect(s, '(');
		r->name = ptx_name(s);
		ptx_expect(s, ')');
	} else {
		r->name = ptx_name(s);
	}
	if (ptx_take(s, '+'))
		r->addend = (int64_t)ptx_integer(s);
	else if (ptx_take(s, '-'))
		r->addend = (int64_t)(0 - ptx_integer(s));
}

static void scalar(struct ptx_source *s, struct initial *i)
{
	bool negative = ptx_take(s, '-');
	struct ptx_token t = s->token;
	uint64_t bits = t.bits;

	reserve(s, i, i->at + i->element);
	if (t.kind == PTX_WORD && !negative) {
		relocation(s, i, 0);
		bits = 0;
	} else if (t.kind == PTX_INTEGER || t.kind == PTX_FLOAT32 || t.kind == PTX_FLOAT64) {
		enum ptx_type type = i->v->type;
		ptx_advance(s);
		if (t.kind == PTX_INTEGER && ptx_take(s, '(')) {
			if (negative || !bits)
				ptx_unexpected(s);
			relocation(s, i, bits);
			ptx_expect(s, ')');
			bits = 0;
		} else {
			double value = 0;
			if (t.kind == PTX_INTEGER) {
				value = negative ? -(double)bits : (double)bits;
				bits = negative ? 0 - bits : bits;
			} else if (t.kind == PTX_FLOAT32) {
				float f;
				memcpy(&f, &bits, sizeof(f));
				value = negative ? -f : f;
			} else {
				memcpy(&value, &bits, sizeof(value));
				value = negative ? -value : value;
			}
			if (type == PTX_F64 || (t.kind != PTX_INTEGER && i->element == 8)) {
				memcpy(&bits, &value, sizeof(value));
			} else if (type == PTX_F32 || t.kind != PTX_INTEGER) {
				float f = (float)value;
				bits = 0;
				memcpy(&bits, &f, sizeof(f));
				if (t.kind == PTX_FLOAT32)
					bits = t.bits ^ (negative ? 0x80000000u : 0);
			}
		}
	} else {
		ptx_unexpected(s);
	}
	memcpy(i->v->init + i->at, &bits, i->element);
	i->at += i->element;
}

/* A list at a depth covers one row of that dimension, whatever its number of values. */
static void list(struct ptx_source *s, struct initial *i, unsigned depth)
{
	size_t start = i->at, row = i->element;

	for (unsigned d = depth; d < i->dimensions; d++)
		row *= i->dimension[d];
	ptx_expect(s, '{');
	while (!ptx_at(s, '}')) {
		if (ptx_at(s, '{')) {
			if (depth + 1 >= i->dimensions)
				ptx_unexpected(s);
			list(s, i, depth + 1);
		} else {
			scalar(s, i);
		}
		if (row && i->at - start > row)
			ptx_reject(s, s->token.line, "more initial values than %s has room for", i->v->name);
		if (!ptx_take(s, ','))
			break;
	}
	ptx_expect(s, '}');
	if (row) {
		reserve(s, i, start + row);
		i->at = start + row;
	}
}

struct ptx_variable *ptx_parse_variable(struct ptx_source *s, const struct ptx_declaration *d, enum ptx_space space)
{
	struct ptx_variable *v = ptx_arena_take(s, sizeof(*v));
	struct initial i = {.v = v, .element = ptx_type_size(d->type)};

	v->line = s->token.line;
	v->name = ptx_name(s);
	if (!i.element)
		ptx_reject(s, v->line, "%s is of a type that has no size in memory", v->name);
	v->space = (uint8_t)space;
	v->type = (uint8_t)d->type;
	v->managed = d->managed;
	v->size = i.element * d->vector;
	v->align = d->align ? d->align : v->size;
	if (d->vector > 1)
		i.dimension[i.dimensions++] = d->vector;
	unsigned outer = i.dimensions;
	while (ptx_take(s, '[')) {
		size_t n = 0;
		if (i.dimensions == DIMENSIONS)
			ptx_reject(s, v->line, "%s has too many dimensions", v->name);
		if (!ptx_at(s, ']')) {
			n = (size_t)ptx_integer(s);
			if (n && v->size > LARGEST / n)
				ptx_reject(s, v->line, "%s is too large", v->name);
		} else if (i.dimensions > outer) {
			ptx_unexpected(s);
		}
		v->unsized |= !n;
		i.dimension[i.dimensions++] = n;
		v->size *= n;
		ptx_expect(s, ']');
	}
	/* Dimensions are written before the size of the vector. */
	if (outer && i.dimensions > 1) {
		memmove(i.dimension, i.dimension + 1, (i.dimensions - 1) * sizeof(i.dimension[0]));
		i.dimension[i.dimensions - 1] = d->vector;
	}
	if (ptx_take(s, '=')) {
		if (space != PTX_SPACE_GLOBAL && space != PTX_SPACE_CONST)
			ptx_reject(s, v->line, "%s can have no initial value", v->name);
		if (ptx_at(s, '{')) {
			if (!i.dimensions)
				i.dimension[i.dimensions++] = 1;
			list(s, &i, 0);
		} else {
			scalar(s, &i);
		}
		if (v->unsized) {
			v->size = i.at;
			v->unsized = false;
		}
		reserve(s, &i, v->size);
	}
	return v;
}
