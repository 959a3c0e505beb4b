/*
 * Bodies of PTX functions: scopes, registers, labels, statements and operands.
 *
 * Invariant: after ptx_parse_body every register and local variable is resolved. Labels, functions, module
 * variables and special registers stay names until the whole module is known.
 */
#include "sim/ptx/parse.h"

#include <stdio.h>
#include <string.h>

#define MOST_REGISTERS (1u << 20) /* of one function */

struct symbol {
	const char *name;
	size_t length;
	unsigned count; /* of registers name0, name1, …; 0: a single register with this name */
	uint32_t reg;
	const struct ptx_variable *variable;
};

struct body {
	struct ptx_source *source;
	struct ptx_function *function;
	struct symbol *symbols;
	size_t symbol_count, symbol_capacity, register_capacity, statement_capacity, scope_capacity, shared_capacity;
	size_t frame; /* bytes in use in the current scope */
	unsigned scope, depth;
};

/* --- names of a body --- */

static struct symbol *add_symbol(struct body *b, const char *name)
{
	b->symbols = ptx_arena_grow(b->source, b->symbols, b->symbol_count, &b->symbol_capacity, sizeof(*b->symbols));
	struct symbol *y = &b->symbols[b->symbol_count++];
	*y = (struct symbol){.name = name, .length = strlen(name)};
	return y;
}

static uint32_t add_register(struct body *b, enum ptx_type type)
{
	struct ptx_function *f = b->function;

	if (f->register_count == MOST_REGISTERS)
		ptx_reject(b->source, b->source->token.line, "too many registers");
	f->registers = ptx_arena_grow(b->source, f->registers, f->register_count, &b->register_capacity,
				      sizeof(*f->registers));
	struct ptx_register *r = &f->registers[f->register_count];
	r->type = (uint8_t)type;
	if (type == PTX_PRED)
		r->row = f->predicates++;
	else if (ptx_type_size(type) == 8)
		r->row = PTX_ROW(PTX_FILE_64, f->rows64++ * PTX_WARP * 8);
	else
		r->row = PTX_ROW(PTX_FILE_32, f->rows32++ * PTX_WARP * 4);
	return (uint32_t)f->register_count++;
}

static void parse_registers(struct body *b)
{
	struct ptx_source *s = b->source;
	struct ptx_declaration d = ptx_parse_declaration(s);

	if (d.vector != 1)
		ptx_reject(s, s->token.line, "unsupported vector register");
	do {
		struct symbol *y = add_symbol(b, ptx_name(s));
		unsigned line = s->token.line;
		if (ptx_take(s, '<')) {
			uint64_t n = ptx_integer(s);
			if (n > MOST_REGISTERS)
				ptx_reject(s, line, "too many registers");
			y->count = (unsigned)n;
			y->reg = (uint32_t)b->function->register_count;
			for (unsigned i = 0; i < y->count; i++)
				add_register(b, d.type);
			ptx_expect(s, '>');
			if (!n)
				b->symbol_count--;
		} else {
			y->reg = add_register(b, d.type);
		}
	} while (ptx_take(s, ','));
}

static bool matches(const struct symbol *y, const char *name, size_t length, uint32_t *reg)
{
	unsigned n = 0;

	*reg = y->reg;
	if (!y->count)
		return y->length == length && !memcmp(y->name, name, length);
	if (length <= y->length || length - y->length > 7 || memcmp(y->name, name, y->length))
		return false;
	if (name[y->length] == '0' && length - y->length > 1)
		return false;
	for (size_t i = y->length; i < length; i++) {
		if (name[i] < '0' || name[i] > '9')
			return false;
		n = n * 10 + (unsigned)(name[i] - '0');
	}
	*reg += n;
	return n < y->count;
}

static const struct symbol *find_symbol(const struct body *b, const char *name, uint32_t *reg)
{
	size_t length = strlen(name);

	for (size_t i = b->symbol_count; i-- > 0;)
		if (matches(&b->symbols[i], name, length, reg))
			return &b->symbols[i];
	return NULL;
}

static uint32_t named_register(struct body *b, unsigned line, const char *name)
{
	uint32_t reg;
	const struct symbol *y = find_symbol(b, name, &reg);

	if (!y || y->variable)
		ptx_reject(b->source, line, "no register is named %s", name);
	return reg;
}

static void place_in_frame(struct body *b, struct ptx_variable *v)
{
	struct ptx_function *f = b->function;

	b->frame = ptx_align_up(b->frame, v->align);
	v->address = b->frame;
	b->frame += v->size;
	if (b->frame > PTX_WINDOW / 2)
		ptx_reject(b->source, v->line, "%s is too large", v->name);
	if (b->frame > f->frame_bytes)
		f->frame_bytes = b->frame;
}

static void declare(struct body *b, struct ptx_variable *v)
{
	if (v->space == PTX_SPACE_FRAME || v->space == PTX_SPACE_LOCAL)
		place_in_frame(b, v);
	add_symbol(b, v->name)->variable = v;
}

/* --- operands --- */

static struct ptx_operand parse_operand(struct body *b, unsigned depth);

static void parse_elements(struct body *b, struct ptx_operand *o, char close, unsigned depth)
{
	size_t capacity = 0;

	if (depth > PTX_NESTING)
		ptx_reject(b->source, b->source->token.line, "operands are nested too deeply");
	while (!ptx_at(b->source, close)) {
		o->elements = ptx_arena_grow(b->source, o->elements, o->count, &capacity, sizeof(*o->elements));
		o->elements[o->count] = parse_operand(b, depth + 1);
		o->count++;
		if (!ptx_take(b->source, ','))
			break;
	}
	ptx_expect(b->source, close);
}

static struct ptx_operand parse_named(struct body *b)
{
	struct ptx_source *s = b->source;
	struct ptx_operand o = {.kind = PTX_OPERAND_NAME};
	unsigned line = s->token.line;

	o.name = ptx_name(s);
	if (!strcmp(o.name, "_")) {
		o.kind = PTX_OPERAND_SINK;
	} else {
		const struct symbol *y = find_symbol(b, o.name, &o.reg);
		if (y && y->variable) {
			o.kind = PTX_OPERAND_VARIABLE;
			o.variable = y->variable;
		} else if (y) {
			o.kind = PTX_OPERAND_REGISTER;
		}
	}
	if (ptx_take(s, '|')) {
		o.paired = true;
		o.pair = named_register(b, line, ptx_name(s));
	}
	if (ptx_take(s, '+')) {
		bool negative = ptx_take(s, '-');
		uint64_t n = ptx_integer(s);
		o.bits = negative ? 0 - n : n;
	} else if (ptx_take(s, '-')) {
		o.bits = 0 - ptx_integer(s);
	}
	return o;
}

static struct ptx_operand parse_operand(struct body *b, unsigned depth)
{
	struct ptx_source *s = b->source;
	struct ptx_operand o = {0};

	if (ptx_take(s, '!')) {
		o = parse_named(b);
		o.negated = true;
		return o;
	}
	if (ptx_take(s, '{')) {
		o.kind = PTX_OPERAND_VECTOR;
		parse_elements(b, &o, '}', depth);
		return o;
	}
	if (ptx_take(s, '(')) {
		o.kind = PTX_OPERAND_LIST;
		parse_elements(b, &o, ')', depth);
		return o;
	}
	if (ptx_take(s, '[')) {
		o.kind = PTX_OPERAND_ADDRESS;
		parse_elements(b, &o, ']', depth);
		if (!o.count)
			ptx_reject(s, s->token.line, "empty address");
		return o;
	}
	if (s->token.kind == PTX_WORD)
		return parse_named(b);
	bool negative = ptx_take(s, '-');
	struct ptx_token t = s->token;
	if (t.kind == PTX_INTEGER) {
		o.kind = PTX_OPERAND_INTEGER;
		o.bits = negative ? 0 - t.bits : t.bits;
	} else if (t.kind == PTX_FLOAT32 || t.kind == PTX_FLOAT64) {
		o.kind = t.kind == PTX_FLOAT32 ? PTX_OPERAND_FLOAT32 : PTX_OPERAND_FLOAT64;
		o.bits = t.bits ^ (uint64_t)negative << (t.kind == PTX_FLOAT32 ? 31 : 63);
	} else {
		ptx_unexpected(s);
	}
	ptx_advance(s);
	return o;
}

static void parse_label(struct body *b, const char *name, unsigned line)
{
	struct ptx_source *s = b->source;
	struct ptx_label *l = ptx_arena_take(s, sizeof(*l));
	size_t room = strlen(name) + 16;
	char *key = ptx_arena_take(s, room);

	snprintf(key, room, "%s@%u", name, b->scope);
	l->statement = b->function->statement_count;
	if (ptx_take_word(s, ".branchtargets") || ptx_take_word(s, ".calltargets"))
		l->table = ptx_parse_targets(s);
	else if (ptx_take_word(s, ".callprototype"))
		l->table = ptx_parse_prototype(s);
	if (ptx_map_get(&b->function->labels, key))
		ptx_reject(s, line, "label %s is there twice", name);
	ptx_map_put(s, &b->function->labels, key, l);
}

static void parse_instruction(struct body *b)
{
	struct ptx_source *s = b->source;
	struct ptx_function *f = b->function;
	struct ptx_statement t = {.line = s->token.line, .scope = b->scope};
	size_t capacity = 0;

	if (ptx_take(s, '@')) {
		t.guarded = true;
		t.guard_negated = ptx_take(s, '!');
		t.guard = named_register(b, t.line, ptx_name(s));
		if (f->registers[t.guard].type != PTX_PRED)
			ptx_reject(s, t.line, "the guard is no predicate");
	}
	t.line = s->token.line;
	t.opcode = ptx_name(s);
	if (!t.guarded && ptx_take(s, ':')) {
		parse_label(b, t.opcode, t.line);
		return;
	}
	if (!ptx_instruction(t.opcode))
		ptx_reject(s, t.line, "PTX has no instruction %s", t.opcode);
	while (!ptx_at(s, ';')) {
		t.operands = ptx_arena_grow(s, t.operands, t.count, &capacity, sizeof(*t.operands));
		t.operands[t.count] = parse_operand(b, 0);
		t.count++;
		if (!ptx_take(s, ','))
			break;
	}
	ptx_expect(s, ';');
	f->statements = ptx_arena_grow(s, f->statements, f->statement_count, &b->statement_capacity,
				       sizeof(*f->statements));
	f->statements[f->statement_count++] = t;
}

static void parse_body_variable(struct ptx_parser *p, struct body *b, enum ptx_space space)
{
	struct ptx_source *s = b->source;
	struct ptx_declaration d = ptx_parse_declaration(s);

	do {
		struct ptx_variable *v = ptx_parse_variable(s, &d, space);
		struct ptx_function *f = b->function;
		if (d.type == PTX_PRED || v->unsized)
			ptx_reject(s, v->line, "%s has no size", v->name);
		if (space == PTX_SPACE_SHARED) {
			f->shared = ptx_arena_grow(s, f->shared, f->shared_count, &b->shared_capacity,
						   sizeof(*f->shared));
			f->shared[f->shared_count++] = v;
		} else if (space == PTX_SPACE_GLOBAL || space == PTX_SPACE_CONST) {
			ptx_add_variable(p, v);
		}
		declare(b, v);
	} while (ptx_take(s, ','));
	ptx_expect(s, ';');
}

static void parse_scope(struct ptx_parser *p, struct body *b)
{
	struct ptx_source *s = b->source;
	struct ptx_function *f = b->function;
	size_t symbols = b->symbol_count, frame = b->frame;
	unsigned parent = b->scope;
	enum ptx_space space;

	f->scopes = ptx_arena_grow(s, f->scopes, f->scope_count, &b->scope_capacity, sizeof(*f->scopes));
	b->scope = (unsigned)f->scope_count++;
	f->scopes[b->scope] = parent;
	if (++b->depth > PTX_NESTING)
		ptx_reject(s, s->token.line, "scopes are nested too deeply");
	ptx_expect(s, '{');
	while (!ptx_take(s, '}')) {
		if (ptx_at(s, '{')) {
			parse_scope(p, b);
		} else if (ptx_take_word(s, ".reg")) {
			parse_registers(b);
			ptx_expect(s, ';');
		} else if (ptx_at_word(s, ".loc") || ptx_at_word(s, ".file")) {
			ptx_skip_line(s);
		} else if (ptx_take_word(s, ".pragma")) {
			ptx_skip_pragma(s);
		} else if (ptx_space_word(s, &space)) {
			parse_body_variable(p, b, space);
		} else {
			parse_instruction(b);
		}
	}
	b->depth--;
	b->scope = parent;
	b->symbol_count = symbols;
	b->frame = frame;
}

void ptx_parse_body(struct ptx_parser *p, struct ptx_function *f)
{
	struct body b = {.source = p->source, .function = f};
	struct ptx_variable **lists[] = {f->parameters, f->returns};
	size_t counts[] = {f->parameter_count, f->return_count};

	f->defined = true;
	f->predicates = 1; /* PTX_TRUE */
	for (int l = 0; l < 2; l++)
		for (size_t i = 0; i < counts[l]; i++) {
			struct ptx_variable *v = lists[l][i];
			if (v->space == PTX_SPACE_REG) {
				v->reg = add_register(&b, v->type);
				add_symbol(&b, v->name)->reg = v->reg;
				place_in_frame(&b, v);
			} else {
				declare(&b, v);
			}
		}
	parse_scope(p, &b);
	ptx_share_rows(p->source, f);
}

