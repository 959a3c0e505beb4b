/*
 * What the parts of the decoder share: core (decode.c), operands (decode_operands.c),
 * computation (decode_value.c), memory (decode_memory.c, tensor.c) and control flow (decode_control.c).
 *
 * Invariant: a decoder function that returns false may have emitted operations. The core removes them, and
 * the instruction becomes one that fails at launch.
 */
#ifndef TT_SIM_PTX_DECODE_H
#define TT_SIM_PTX_DECODE_H

#include "sim/ptx/internal.h"

#define PTX_WORDS 16
#define PTX_SCRATCH 16

struct ptx_fixup {
	size_t op;
	uint32_t *target; /* NULL: the operation's own */
	const char *label;
	unsigned scope, line;
};

struct ptx_decoder {
	struct ptx_source *source;
	ptx_module *module;
	struct ptx_function *function;
	const struct ptx_statement *statement;
	unsigned line;
	uint32_t guard;
	char opcode[128]; /* words: those after the first word of the opcode */
	const char *words[PTX_WORDS];
	unsigned word_count, used; /* used: a bit for each word */
	const char *why;	   /* reason of a failure, if it says more than the opcode */
	bool tolerated;		   /* it fails when it is executed, not at launch */
	uint32_t scratch[2][PTX_SCRATCH];
	unsigned scratch_count[2], scratch_used[2];
	struct ptx_map constants;
	struct ptx_fixup *fixups;
	uint32_t *first_of; /* the operation at which a statement begins */
	size_t code_capacity, constant_capacity, operand_count, operand_capacity, fixup_count, fixup_capacity;
};

struct ptx_op *ptx_emit(struct ptx_decoder *d, enum ptx_code code);
bool ptx_is(const struct ptx_decoder *d, const char *opcode);
/* Whether the opcode has this word, unused so far; marks it as used. */
bool ptx_word(struct ptx_decoder *d, const char *word);
/* The first or last unused word that is a type, PTX_NONE without one. */
enum ptx_type ptx_type_word(struct ptx_decoder *d, bool first);
bool ptx_all_words_used(const struct ptx_decoder *d);
const struct ptx_operand *ptx_operand(const struct ptx_decoder *d, unsigned index);

/* Rows to read or write an operand as a value of type. False: it is none. */
bool ptx_source_row(struct ptx_decoder *d, const struct ptx_operand *o, enum ptx_type type, uint32_t *row);
bool ptx_result_row(struct ptx_decoder *d, const struct ptx_operand *o, enum ptx_type type, uint32_t *row);
bool ptx_predicate(struct ptx_decoder *d, const struct ptx_operand *o, uint32_t *predicate);
bool ptx_result_predicate(struct ptx_decoder *d, const struct ptx_operand *o, uint32_t *predicate);
bool ptx_split_pair(struct ptx_decoder *d, const struct ptx_operand *o, struct ptx_operand *a, uint32_t *predicate);
/* An unknown name among operands, NULL: none. */
const char *ptx_unknown_name(struct ptx_decoder *d, const struct ptx_operand *o, unsigned count);
/* Bytes of the register that o names; 0: none. */
size_t ptx_register_size(const struct ptx_decoder *d, const struct ptx_operand *o);
uint32_t ptx_constant_row(struct ptx_decoder *d, uint64_t value, bool wide);
uint32_t ptx_scratch_row(struct ptx_decoder *d, bool wide);
const struct ptx_variable *ptx_variable_of(const struct ptx_decoder *d, const struct ptx_operand *o);
void ptx_fix_label(struct ptx_decoder *d, struct ptx_op *op, uint32_t *target, const char *label);
const struct ptx_label *ptx_find_label(struct ptx_decoder *d, const char *name, unsigned scope);

/* The first space that the opcode names and that is unused so far. */
enum ptx_space ptx_space_of(struct ptx_decoder *d);
/* An address as a row of 64 bits. */
bool ptx_address_row(struct ptx_decoder *d, const struct ptx_operand *o, enum ptx_space space, uint32_t *row);

void ptx_convert_row(struct ptx_decoder *d, uint32_t dst, enum ptx_type to, uint32_t src, enum ptx_type from);
void ptx_add_constant(struct ptx_decoder *d, uint32_t dst, uint32_t src, uint64_t addend, bool wide);
void ptx_frame_access(struct ptx_decoder *d, bool store, size_t address, enum ptx_type type, uint32_t row);

/* Lists the registers of the statement, which was decoded into the operations from first on. */
void ptx_list_registers(struct ptx_decoder *d, size_t first);
bool ptx_decode_value(struct ptx_decoder *d);
bool ptx_decode_tensor(struct ptx_decoder *d);
bool ptx_atomic_word(struct ptx_decoder *d, enum ptx_atomic_kind *kind);
bool ptx_decode_memory(struct ptx_decoder *d);
bool ptx_decode_control(struct ptx_decoder *d);

#endif
