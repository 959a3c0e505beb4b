/*
 * What the parts of the PTX parser share: modules (parse.c), bodies of functions
 * (body.c), names of instructions (instructions.c) and declarations of variables
 * (variable.c).
 */
#ifndef TT_SIM_PTX_PARSE_H
#define TT_SIM_PTX_PARSE_H

#include "sim/ptx/internal.h"

struct ptx_parser {
	struct ptx_source *source;
	ptx_module *module;
	size_t function_capacity, variable_capacity;
};

bool ptx_at_word(const struct ptx_source *s, const char *word);
bool ptx_at(const struct ptx_source *s, char punctuation);
bool ptx_take_word(struct ptx_source *s, const char *word);
bool ptx_take(struct ptx_source *s, char punctuation);
void ptx_expect(struct ptx_source *s, char punctuation);
const char *ptx_name(struct ptx_source *s);
uint64_t ptx_integer(struct ptx_source *s);
void ptx_skip_pragma(struct ptx_source *s); /* after .pragma */
_Noreturn void ptx_unexpected(struct ptx_source *s);

struct ptx_declaration {
	size_t align; /* 0: as the type */
	unsigned vector;
	enum ptx_type type;
	bool managed;
};

/* Alignment, attributes and type, which stand before the names. */
struct ptx_declaration ptx_parse_declaration(struct ptx_source *s);
/* One name with its dimensions and initial value. */
struct ptx_variable *ptx_parse_variable(struct ptx_source *s, const struct ptx_declaration *d, enum ptx_space space);

/* A word such as .shared; .param gives PTX_SPACE_FRAME. */
bool ptx_space_word(struct ptx_source *s, enum ptx_space *space);
void ptx_add_variable(struct ptx_parser *p, struct ptx_variable *v);
struct ptx_table *ptx_parse_prototype(struct ptx_source *s);
struct ptx_table *ptx_parse_targets(struct ptx_source *s);
const char *ptx_instruction(const char *opcode); /* the part of the name before its first dot; NULL: unknown */
void ptx_share_rows(struct ptx_source *s, struct ptx_function *f);
void ptx_parse_body(struct ptx_parser *p, struct ptx_function *f);

#endif
