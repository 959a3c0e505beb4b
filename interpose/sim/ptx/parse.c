/* Structure of PTX: modules, their variables, and headers of functions. */
#include "sim/ptx/parse.h"

#include <stdlib.h>
#include <string.h>

bool ptx_at_word(const struct ptx_source *s, const char *word)
{
	return s->token.kind == PTX_WORD && strlen(word) == s->token.length &&
	       !memcmp(word, s->token.text, s->token.length);
}

bool ptx_at(const struct ptx_source *s, char punctuation)
{
	return s->token.kind == PTX_PUNCTUATION && s->token.punctuation == punctuation;
}

bool ptx_take_word(struct ptx_source *s, const char *word)
{
	if (!ptx_at_word(s, word))
		return false;
	ptx_advance(s);
	return true;
}

bool ptx_take(struct ptx_source *s, char punctuation)
{
	if (!ptx_at(s, punctuation))
		return false;
	ptx_advance(s);
	return true;
}

void ptx_unexpected(struct ptx_source *s)
{
	if (s->token.kind == PTX_END)
		ptx_reject(s, s->token.line, "unexpected end of text");
	ptx_reject(s, s->token.line, "unexpected \"%.*s\"", (int)(s->token.length < 60 ? s->token.length : 60),
		   s->token.text);
}

void ptx_expect(struct ptx_source *s, char punctuation)
{
	if (!ptx_take(s, punctuation))
		ptx_unexpected(s);
}

const char *ptx_name(struct ptx_source *s)
{
	if (s->token.kind != PTX_WORD || *s->token.text == '.')
		ptx_unexpected(s);
	const char *name = ptx_arena_string(s, s->token.text, s->token.length);
	ptx_advance(s);
	return name;
}

uint64_t ptx_integer(struct ptx_source *s)
{
	uint64_t bits = s->token.bits;

	if (s->token.kind != PTX_INTEGER)
		ptx_unexpected(s);
	ptx_advance(s);
	return bits;
}

/* --- functions --- */

/* A list of parameters or return values: "(.param .b32 a, .reg .b32 b)". */
static struct ptx_variable **parse_parameters(struct ptx_source *s, bool entry, size_t *count)
{
	struct ptx_variable **list = NULL;
	size_t capacity = 0;

	*count = 0;
	ptx_expect(s, '(');
	while (!ptx_at(s, ')')) {
		enum ptx_space space = PTX_SPACE_FRAME;
		if (ptx_take_word(s, ".reg"))
			space = PTX_SPACE_REG;
		else if (ptx_take_word(s, ".param"))
			space = entry ? PTX_SPACE_PARAM : PTX_SPACE_FRAME;
		else
			ptx_unexpected(s);
		struct ptx_declaration d = ptx_parse_declaration(s);
		if (d.type == PTX_PRED)
			ptx_reject(s, s->token.line, "unsupported predicate parameter");
		list = ptx_arena_grow(s, list, *count, &capacity, sizeof(*list));
		struct ptx_variable *v = list[(*count)++] = ptx_parse_variable(s, &d, space);
		v->entry_parameter = entry;
		if (v->unsized)
			ptx_reject(s, v->line, "%s has no size", v->name);
		if (!ptx_take(s, ','))
			break;
	}
	ptx_expect(s, ')');
	return list;
}

struct ptx_table *ptx_parse_prototype(struct ptx_source *s)
{
	struct ptx_table *t = ptx_arena_take(s, sizeof(*t));
	struct ptx_variable **list;

	if (ptx_at(s, '(')) {
		list = parse_parameters(s, false, &t->return_count);
		t->returns = ptx_arena_take(s, t->return_count * sizeof(*t->returns));
		for (size_t i = 0; i < t->return_count; i++)
			t->returns[i] = *list[i];
	}
	ptx_name(s);
	if (ptx_at(s, '(')) {
		list = parse_parameters(s, false, &t->parameter_count);
		t->parameters = ptx_arena_take(s, t->parameter_count * sizeof(*t->parameters));
		for (size_t i = 0; i < t->parameter_count; i++)
			t->parameters[i] = *list[i];
	}
	while (!ptx_at(s, ';') && s->token.kind == PTX_WORD)
		ptx_advance(s); /* .noreturn and similar */
	ptx_expect(s, ';');
	return t;
}

struct ptx_table *ptx_parse_targets(struct ptx_source *s)
{
	struct ptx_table *t = ptx_arena_take(s, sizeof(*t));
	size_t capacity = 0;

	do {
		t->labels = ptx_arena_grow(s, t->labels, t->count, &capacity, sizeof(*t->labels));
		t->labels[t->count++] = ptx_name(s);
	} while (ptx_take(s, ','));
	ptx_expect(s, ';');
	return t;
}

bool ptx_space_word(struct ptx_source *s, enum ptx_space *space)
{
	static const struct {
		const char *word;
		enum ptx_space space;
	} words[] = {
		{".global", PTX_SPACE_GLOBAL}, {".const", PTX_SPACE_CONST}, {".shared", PTX_SPACE_SHARED},
		{".local", PTX_SPACE_LOCAL},   {".param", PTX_SPACE_FRAME},
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (ptx_take_word(s, words[i].word)) {
			*space = words[i].space;
			return true;
		}
	return false;
}

void ptx_add_variable(struct ptx_parser *p, struct ptx_variable *v)
{
	ptx_module *m = p->module;

	m->variables = ptx_arena_grow(p->source, m->variables, m->variable_count, &p->variable_capacity,
				      sizeof(*m->variables));
	m->variables[m->variable_count++] = v;
}

static struct ptx_name *module_name(struct ptx_parser *p, const char *name)
{
	struct ptx_name *n = ptx_map_get(&p->module->names, name);

	if (!n) {
		n = ptx_arena_take(p->source, sizeof(*n));
		ptx_map_put(p->source, &p->module->names, name, n);
	}
	return n;
}

static void layout_parameters(struct ptx_source *s, struct ptx_function *f)
{
	struct ptx_param *params = ptx_arena_take(s, (f->parameter_count + 1) * sizeof(*params));
	size_t at = 0;

	for (size_t i = 0; i < f->parameter_count; i++) {
		struct ptx_variable *v = f->parameters[i];
		at = ptx_align_up(at, v->align);
		if (v->size > 65536 || at > 65536)
			ptx_reject(s, v->line, "%s is too large", v->name);
		v->address = at;
		params[i] = (struct ptx_param){at, v->size};
		at += v->size;
	}
	f->info.params = params;
	f->info.param_count = f->parameter_count;
	f->info.param_bytes = at;
}

static void parse_directives(struct ptx_source *s, struct ptx_function *f)
{
	f->info.max_threads = 1024;
	while (s->token.kind == PTX_WORD && *s->token.text == '.') {
		bool threads = ptx_at_word(s, ".maxntid") || ptx_at_word(s, ".reqntid");
		bool cluster = ptx_at_word(s, ".reqnctapercluster");
		uint64_t product = 1;
		unsigned dimension = 0;
		ptx_advance(s);
		if (cluster)
			f->info.cluster[0] = f->info.cluster[1] = f->info.cluster[2] = 1;
		while (s->token.kind == PTX_INTEGER) {
			uint64_t n = ptx_integer(s);
			if (cluster && dimension < 3)
				f->info.cluster[dimension++] = n < UINT16_MAX ? (unsigned)n : UINT16_MAX;
			product = n <= 1024 && product <= 1024 ? product * n : 1025;
			if (!ptx_take(s, ','))
				break;
		}
		if (threads && product < f->info.max_threads)
			f->info.max_threads = (unsigned)product;
	}
}

static void parse_function(struct ptx_parser *p, bool entry)
{
	struct ptx_source *s = p->source;
	struct ptx_variable **returns = NULL, **parameters = NULL;
	size_t return_count = 0, parameter_count = 0;
	ptx_module *m = p->module;

	if (!entry && ptx_at(s, '('))
		returns = parse_parameters(s, false, &return_count);
	unsigned line = s->token.line;
	const char *name = ptx_name(s);
	struct ptx_name *n = module_name(p, name);
	if (ptx_at(s, '('))
		parameters = parse_parameters(s, entry, &parameter_count);
	if (n->variable || (n->function && n->function->entry != entry))
		ptx_reject(s, line, "%s is there twice", name);
	if (!n->function) {
		n->function = ptx_arena_take(s, sizeof(*n->function));
		n->function->name = name;
		n->function->module = m;
		n->function->entry = entry;
		n->function->index = (uint32_t)m->function_count;
		m->functions = ptx_arena_grow(s, m->functions, m->function_count, &p->function_capacity,
					      sizeof(*m->functions));
		m->functions[m->function_count++] = n->function;
	}
	struct ptx_function *f = n->function;
	struct ptx_function declared = {.info.name = name};
	parse_directives(s, &declared);
	if (ptx_at(s, '{') && f->defined)
		ptx_reject(s, line, "%s is there twice", name);
	if (f->defined) {
		ptx_expect(s, ';');
		return;
	}
	f->line = line;
	f->info = declared.info;
	f->parameters = parameters;
	f->parameter_count = parameter_count;
	f->returns = returns;
	f->return_count = return_count;
	if (entry)
		layout_parameters(s, f);
	if (!ptx_take(s, ';'))
		ptx_parse_body(p, f);
}

static void parse_module_variable(struct ptx_parser *p, enum ptx_space space, bool external)
{
	struct ptx_source *s = p->source;
	struct ptx_declaration d = ptx_parse_declaration(s);

	do {
		struct ptx_variable *v = ptx_parse_variable(s, &d, space);
		struct ptx_name *n = module_name(p, v->name);
		v->external = external;
		if (d.type == PTX_PRED || space == PTX_SPACE_FRAME || space == PTX_SPACE_LOCAL)
			ptx_reject(s, v->line, "%s cannot be declared here", v->name);
		if (v->unsized && !external)
			ptx_reject(s, v->line, "%s has no size", v->name);
		if (n->function || (n->variable && !n->variable->external && !external))
			ptx_reject(s, v->line, "%s is there twice", v->name);
		if (!n->variable || n->variable->external) {
			n->variable = v;
			ptx_add_variable(p, v);
		}
	} while (ptx_take(s, ','));
	ptx_expect(s, ';');
}

/* Debug sections do not affect what a kernel does. */
static void skip_section(struct ptx_source *s)
{
	unsigned depth = 0;

	while (s->token.kind == PTX_WORD)
		ptx_advance(s);
	if (!ptx_at(s, '{'))
		ptx_unexpected(s);
	do {
		if (ptx_at(s, '{'))
			depth++;
		else if (ptx_at(s, '}'))
			depth--;
		else if (s->token.kind == PTX_END)
			ptx_unexpected(s);
		ptx_advance(s);
	} while (depth);
}

/* A driver ignores those that it does not know, but not those that it knows to be newer than the text. */
void ptx_skip_pragma(struct ptx_source *s)
{
	for (; s->token.kind == PTX_STRING || ptx_at(s, ','); ptx_advance(s))
		if (s->version < 8.3 && !strncmp(s->token.text, "\"used_bytes_mask", 16))
			ptx_reject(s, s->token.line, "used_bytes_mask needs PTX 8.3");
	ptx_expect(s, ';');
}

static void parse_header(struct ptx_source *s)
{
	if (!ptx_take_word(s, ".version"))
		ptx_reject(s, s->token.line, "this is no PTX: it does not begin with .version");
	if (s->token.kind != PTX_FLOAT64 && s->token.kind != PTX_INTEGER)
		ptx_unexpected(s);
	s->version = strtod(s->token.text, NULL);
	ptx_advance(s);
}

void ptx_parse(struct ptx_source *s, ptx_module *m)
{
	struct ptx_parser p = {.source = s, .module = m};

	ptx_advance(s);
	parse_header(s);
	while (s->token.kind != PTX_END) {
		enum ptx_space space;
		bool external = false;
		if (ptx_take_word(s, ".target")) {
			do
				ptx_name(s);
			while (ptx_take(s, ','));
			continue;
		}
		if (ptx_take_word(s, ".address_size")) {
			if (ptx_integer(s) != 64)
				ptx_reject(s, s->token.line, "unsupported address size: it must be 64");
			continue;
		}
		if (ptx_at_word(s, ".file") || ptx_at_word(s, ".loc")) {
			ptx_skip_line(s);
			continue;
		}
		if (ptx_take_word(s, ".section")) {
			skip_section(s);
			continue;
		}
		if (ptx_take_word(s, ".pragma")) {
			ptx_skip_pragma(s);
			continue;
		}
		while (ptx_at_word(s, ".visible") || ptx_at_word(s, ".extern") || ptx_at_word(s, ".weak") ||
		       ptx_at_word(s, ".common")) {
			external |= ptx_at_word(s, ".extern");
			ptx_advance(s);
		}
		if (ptx_take_word(s, ".entry"))
			parse_function(&p, true);
		else if (ptx_take_word(s, ".func"))
			parse_function(&p, false);
		else if (ptx_space_word(s, &space))
			parse_module_variable(&p, space, external);
		else
			ptx_unexpected(s);
	}
}
