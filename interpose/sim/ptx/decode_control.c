/* Decoding of PTX control flow: branches, calls, barriers, and collective operations of a warp. */
#include "sim/ptx/decode.h"

#include <stdio.h>
#include <string.h>

/* --- branches and calls --- */

static bool decode_branch(struct ptx_decoder *d)
{
	const struct ptx_operand *o = ptx_operand(d, 0);

	ptx_word(d, "uni");
	if (!ptx_all_words_used(d) || d->statement->count != 1 || o->kind != PTX_OPERAND_NAME || o->bits)
		return false;
	ptx_fix_label(d, ptx_emit(d, PTX_OP_BRANCH), NULL, o->name);
	return true;
}

static bool decode_table_branch(struct ptx_decoder *d)
{
	const struct ptx_operand *o = ptx_operand(d, 1);
	uint32_t row;

	ptx_word(d, "uni");
	if (!ptx_word(d, "idx") || !ptx_all_words_used(d) || d->statement->count != 2 ||
	    o->kind != PTX_OPERAND_NAME || !ptx_source_row(d, ptx_operand(d, 0), PTX_U32, &row))
		return false;
	const struct ptx_label *l = ptx_find_label(d, o->name, d->statement->scope);
	if (!l || !l->table || !l->table->count)
		return false;
	const struct ptx_table *t = l->table;
	uint32_t *targets = ptx_arena_take(d->source, t->count * sizeof(*targets));
	struct ptx_op *op = ptx_emit(d, PTX_OP_BRANCH_TABLE);
	op->src[0] = row;
	op->imm = t->count;
	op->targets = targets;
	for (unsigned i = 0; i < t->count; i++)
		ptx_fix_label(d, op, &targets[i], t->labels[i]);
	return true;
}

/* A slot on the stack for a value that a call passes in a register. */
static struct ptx_variable *hidden_variable(struct ptx_decoder *d, enum ptx_type type)
{
	struct ptx_variable *v = ptx_arena_take(d->source, sizeof(*v));
	struct ptx_function *f = d->function;

	v->name = "";
	v->space = PTX_SPACE_FRAME;
	v->type = (uint8_t)type;
	v->size = ptx_type_size(type);
	v->address = f->frame_bytes = (f->frame_bytes + 7) & ~(size_t)7;
	f->frame_bytes += 8;
	return v;
}

/* Arguments as variables on the stack; registers and constants are copied there. */
static bool call_arguments(struct ptx_decoder *d, const struct ptx_operand *o, struct ptx_call *call,
			   const struct ptx_variable *const *formal, size_t formal_count)
{
	call->arguments = ptx_arena_take(d->source, (o ? o->count : 0) * sizeof(*call->arguments) + 1);
	for (unsigned i = 0; o && i < o->count; i++) {
		const struct ptx_operand *e = &o->elements[i];
		if (e->kind == PTX_OPERAND_VARIABLE && e->variable->space == PTX_SPACE_FRAME && !e->bits) {
			call->arguments[call->argument_count++] = e->variable;
			continue;
		}
		uint32_t row;
		if (i >= formal_count || !ptx_source_row(d, e, formal[i]->type, &row))
			return false;
		struct ptx_variable *v = hidden_variable(d, formal[i]->type);
		call->arguments[call->argument_count++] = v;
		ptx_frame_access(d, true, v->address, v->type, row);
	}
	return call->argument_count == formal_count;
}

static bool call_results(struct ptx_decoder *d, const struct ptx_operand *o, struct ptx_call *call,
			 const struct ptx_variable *const *formal, size_t formal_count)
{
	call->results = ptx_arena_take(d->source, (o ? o->count : 0) * sizeof(*call->results) + 1);
	for (unsigned i = 0; o && i < o->count; i++) {
		const struct ptx_operand *e = &o->elements[i];
		uint32_t row;
		if (e->kind == PTX_OPERAND_VARIABLE && e->variable->space == PTX_SPACE_FRAME && !e->bits)
			call->results[call->result_count++] = e->variable;
		else if (i < formal_count && ptx_result_row(d, e, formal[i]->type, &row))
			call->results[call->result_count++] = hidden_variable(d, formal[i]->type);
		else
			return false;
	}
	return call->result_count == formal_count;
}

static const struct ptx_variable **pointers(struct ptx_decoder *d, const struct ptx_variable *v, size_t count)
{
	const struct ptx_variable **list = ptx_arena_take(d->source, count * sizeof(*list) + 1);

	for (size_t i = 0; i < count; i++)
		list[i] = &v[i];
	return list;
}

static void fetch_results(struct ptx_decoder *d, const struct ptx_operand *o, const struct ptx_call *call)
{
	for (unsigned i = 0; o && i < o->count; i++) {
		const struct ptx_operand *e = &o->elements[i];
		const struct ptx_variable *v = call->results[i];
		if (e->kind == PTX_OPERAND_REGISTER)
			ptx_frame_access(d, false, v->address, v->type, d->function->registers[e->reg].row);
	}
}

static bool decode_call_of(struct ptx_decoder *d, const struct ptx_function *f, const struct ptx_operand *results,
			   const struct ptx_operand *arguments)
{
	struct ptx_call *call = ptx_arena_take(d->source, sizeof(*call));
	const struct ptx_variable *const *parameters = (const void *)f->parameters;
	const struct ptx_variable *const *returns = (const void *)f->returns;

	call->callee = f;
	if (!call_arguments(d, arguments, call, parameters, f->parameter_count) ||
	    !call_results(d, results, call, returns, f->return_count))
		return false;
	if (!f->defined) {
		/* Functions of the driver; assertions fail a kernel that reaches them. */
		bool asserts = !strcmp(f->name, "__assertfail") && call->argument_count == 5;
		bool sets = !strcmp(f->name, "cudaGraphSetConditional") && call->argument_count == 2;
		if (!asserts && !sets) {
			size_t room = strlen(f->name) + 32;
			char *why = ptx_arena_take(d->source, room);
			snprintf(why, room, "call of %s", f->name);
			d->why = why;
			d->tolerated = true;
			return false;
		}
		ptx_emit(d, asserts ? PTX_OP_ASSERT : PTX_OP_SET_CONDITION)->call = call;
		return true;
	}
	ptx_emit(d, PTX_OP_CALL)->call = call;
	fetch_results(d, results, call);
	return true;
}

static bool decode_call_through(struct ptx_decoder *d, const struct ptx_operand *target,
				const struct ptx_operand *results, const struct ptx_operand *arguments,
				const struct ptx_operand *prototype)
{
	struct ptx_call *call = ptx_arena_take(d->source, sizeof(*call));
	const struct ptx_label *l = prototype && prototype->kind == PTX_OPERAND_NAME
					    ? ptx_find_label(d, prototype->name, d->statement->scope)
					    : NULL;
	uint32_t row;

	if (!l || !l->table || l->table->labels)
		return false;
	const struct ptx_table *t = l->table;
	if (!ptx_source_row(d, target, PTX_U64, &row) ||
	    !call_arguments(d, arguments, call, pointers(d, t->parameters, t->parameter_count), t->parameter_count) ||
	    !call_results(d, results, call, pointers(d, t->returns, t->return_count), t->return_count))
		return false;
	struct ptx_op *op = ptx_emit(d, PTX_OP_CALL_ROW);
	op->src[0] = row;
	op->call = call;
	fetch_results(d, results, call);
	return true;
}

static bool decode_call(struct ptx_decoder *d)
{
	const struct ptx_operand *o[4] = {ptx_operand(d, 0), ptx_operand(d, 1), ptx_operand(d, 2), ptx_operand(d, 3)};
	const struct ptx_operand *results = NULL, *arguments = NULL;
	unsigned i = 0;

	ptx_word(d, "uni");
	if (!ptx_all_words_used(d) || d->statement->count > 4)
		return false;
	if (o[0] && o[0]->kind == PTX_OPERAND_LIST)
		results = o[i++];
	const struct ptx_operand *target = o[i++];
	if (!target)
		return false;
	if (i < 4 && o[i] && o[i]->kind == PTX_OPERAND_LIST)
		arguments = o[i++];
	if (target->kind == PTX_OPERAND_REGISTER)
		return decode_call_through(d, target, results, arguments, i < 4 ? o[i] : NULL);
	if (target->kind != PTX_OPERAND_NAME)
		return false;
	const struct ptx_name *n = ptx_map_get(&d->module->names, target->name);
	if (!n || !n->function || n->function->entry)
		return false;
	return decode_call_of(d, n->function, results, arguments);
}

static bool decode_return(struct ptx_decoder *d)
{
	const struct ptx_function *f = d->function;

	ptx_word(d, "uni");
	if (!ptx_all_words_used(d) || d->statement->count)
		return false;
	for (size_t i = 0; i < f->return_count; i++)
		if (f->returns[i]->space == PTX_SPACE_REG)
			ptx_frame_access(d, true, f->returns[i]->address, f->returns[i]->type,
					 f->registers[f->returns[i]->reg].row);
	ptx_emit(d, f->entry ? PTX_OP_EXIT : PTX_OP_RETURN);
	return true;
}

static bool decode_bare(struct ptx_decoder *d, enum ptx_code code)
{
	if (!ptx_all_words_used(d) || d->statement->count)
		return false;
	ptx_emit(d, code);
	return true;
}

/* --- barriers --- */

static bool decode_cluster_barrier(struct ptx_decoder *d)
{
	bool arrives = ptx_word(d, "arrive");

	if (!arrives && !ptx_word(d, "wait"))
		return false;
	ptx_word(d, "aligned");
	if (arrives && !ptx_word(d, "relaxed"))
		ptx_word(d, "release");
	else if (!arrives)
		ptx_word(d, "acquire");
	if (!ptx_all_words_used(d) || d->statement->count)
		return false;
	ptx_emit(d, PTX_OP_BARRIER)->kind = arrives ? PTX_BAR_CLUSTER_ARRIVE : PTX_BAR_CLUSTER_WAIT;
	return true;
}

static bool decode_barrier(struct ptx_decoder *d)
{
	enum ptx_barrier_kind kind = PTX_BAR_SYNC;
	unsigned given = d->statement->count, i = 0;
	uint32_t dst = 0, id, count = PTX_NO_ROW, predicate = PTX_TRUE;

	if (ptx_word(d, "cluster"))
		return decode_cluster_barrier(d);
	ptx_word(d, "cta");
	ptx_word(d, "aligned");
	if (ptx_word(d, "arrive")) {
		kind = PTX_BAR_ARRIVE;
	} else if (ptx_word(d, "red")) {
		kind = ptx_word(d, "popc") ? PTX_BAR_POPC : ptx_word(d, "and") ? PTX_BAR_AND : PTX_BAR_OR;
		if (kind == PTX_BAR_OR && !ptx_word(d, "or"))
			return false;
		bool fits = kind == PTX_BAR_POPC
				    ? ptx_word(d, "u32") && ptx_result_row(d, ptx_operand(d, i++), PTX_U32, &dst)
				    : ptx_word(d, "pred") && ptx_result_predicate(d, ptx_operand(d, i++), &dst);
		if (!fits || !given || !ptx_predicate(d, ptx_operand(d, --given), &predicate))
			return false;
	} else if (!ptx_word(d, "sync")) {
		return false;
	}
	if (!ptx_all_words_used(d) || given < i + 1 || given > i + 2 ||
	    !ptx_source_row(d, ptx_operand(d, i), PTX_U32, &id) ||
	    (given == i + 2 && !ptx_source_row(d, ptx_operand(d, i + 1), PTX_U32, &count)) ||
	    (kind == PTX_BAR_ARRIVE && count == PTX_NO_ROW))
		return false;
	struct ptx_op *op = ptx_emit(d, PTX_OP_BARRIER);
	op->kind = (uint8_t)kind;
	op->dst = dst;
	op->src[0] = id;
	op->src[1] = count;
	op->src[2] = predicate;
	return true;
}

static bool decode_fence(struct ptx_decoder *d)
{
	static const char *const words[] = {"sc",  "acq_rel", "acquire", "release",	    "cta",    "cluster",	"gpu",
					    "gl",  "sys",     "proxy",	 "async",	    "global", "shared::cta", "shared::cluster",
					    "mbarrier_init"};

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		ptx_word(d, words[i]);
	return decode_bare(d, PTX_OP_FENCE);
}

/* --- what the threads of a warp do together --- */

static struct ptx_op *emit_collective(struct ptx_decoder *d, enum ptx_collective_kind kind, enum ptx_type type,
				      uint32_t members)
{
	struct ptx_op *op = ptx_emit(d, PTX_OP_COLLECTIVE);

	op->kind = (uint8_t)kind;
	op->type = (uint8_t)type;
	op->src[3] = members;
	return op;
}

static bool decode_shuffle(struct ptx_decoder *d)
{
	static const char *const modes[] = {"up", "down", "bfly", "idx"};
	struct ptx_operand o;
	unsigned mode = 0;
	uint32_t dst, src[4], pair;

	while (mode < 4 && !ptx_word(d, modes[mode]))
		mode++;
	if (mode == 4 || !ptx_word(d, "sync") || !ptx_word(d, "b32") || !ptx_all_words_used(d) ||
	    d->statement->count != 5 || !ptx_split_pair(d, ptx_operand(d, 0), &o, &pair))
		return false;
	if (o.kind == PTX_OPERAND_SINK)
		dst = PTX_NO_ROW;
	else if (!ptx_result_row(d, &o, PTX_B32, &dst))
		return false;
	for (unsigned i = 0; i < 4; i++)
		if (!ptx_source_row(d, ptx_operand(d, i + 1), PTX_B32, &src[i]))
			return false;
	struct ptx_op *op = emit_collective(d, PTX_SHFL_UP + mode, PTX_B32, src[3]);
	op->dst = dst;
	op->imm = pair;
	memcpy(op->src, src, sizeof(src));
	return true;
}

static bool decode_vote(struct ptx_decoder *d)
{
	static const struct {
		const char *word;
		enum ptx_collective_kind kind;
	} modes[] = {
		{"all", PTX_VOTE_ALL},
		{"any", PTX_VOTE_ANY},
		{"uni", PTX_VOTE_UNI},
		{"ballot", PTX_VOTE_BALLOT},
	};
	unsigned mode = 0;
	uint32_t dst, predicate, members;

	while (mode < 4 && !ptx_word(d, modes[mode].word))
		mode++;
	if (mode == 4 || !ptx_word(d, "sync") || d->statement->count != 3)
		return false;
	bool fits = modes[mode].kind == PTX_VOTE_BALLOT
			    ? ptx_word(d, "b32") && ptx_result_row(d, ptx_operand(d, 0), PTX_B32, &dst)
			    : ptx_word(d, "pred") && ptx_result_predicate(d, ptx_operand(d, 0), &dst);
	if (!fits || !ptx_all_words_used(d) || !ptx_predicate(d, ptx_operand(d, 1), &predicate) ||
	    !ptx_source_row(d, ptx_operand(d, 2), PTX_B32, &members))
		return false;
	struct ptx_op *op = emit_collective(d, modes[mode].kind, PTX_PRED, members);
	op->dst = dst;
	op->src[0] = predicate;
	return true;
}

static bool decode_match(struct ptx_decoder *d)
{
	struct ptx_operand o;
	bool all = ptx_word(d, "all");
	uint32_t dst, src, members, pair;

	if ((!all && !ptx_word(d, "any")) || !ptx_word(d, "sync") || d->statement->count != 3 ||
	    !ptx_split_pair(d, ptx_operand(d, 0), &o, &pair) || (pair && !all))
		return false;
	enum ptx_type type = ptx_type_word(d, false);
	if ((type != PTX_B32 && type != PTX_B64) || !ptx_all_words_used(d) ||
	    !ptx_result_row(d, &o, PTX_B32, &dst) || !ptx_source_row(d, ptx_operand(d, 1), type, &src) ||
	    !ptx_source_row(d, ptx_operand(d, 2), PTX_B32, &members))
		return false;
	struct ptx_op *op = emit_collective(d, all ? PTX_MATCH_ALL : PTX_MATCH_ANY, type, members);
	op->dst = dst;
	op->src[0] = src;
	op->imm = pair;
	return true;
}

static bool decode_reduction(struct ptx_decoder *d)
{
	static const char *const words[] = {"add", "min", "max", "and", "or", "xor"};
	unsigned i = 0;
	uint32_t dst, src, members;

	while (i < 6 && !ptx_word(d, words[i]))
		i++;
	if (i == 6 || !ptx_word(d, "sync") || d->statement->count != 3)
		return false;
	enum ptx_type type = ptx_type_word(d, false);
	if (ptx_type_size(type) != 4 || type == PTX_F32 || type == PTX_F16X2 || !ptx_all_words_used(d) ||
	    !ptx_result_row(d, ptx_operand(d, 0), type, &dst) ||
	    !ptx_source_row(d, ptx_operand(d, 1), type, &src) ||
	    !ptx_source_row(d, ptx_operand(d, 2), PTX_B32, &members))
		return false;
	struct ptx_op *op = emit_collective(d, PTX_REDUX_ADD + i, type, members);
	op->dst = dst;
	op->src[0] = src;
	return true;
}

static bool decode_warp_barrier(struct ptx_decoder *d)
{
	uint32_t members;

	ptx_word(d, "warp");
	if (!ptx_word(d, "sync") || !ptx_all_words_used(d) || d->statement->count != 1 ||
	    !ptx_source_row(d, ptx_operand(d, 0), PTX_B32, &members))
		return false;
	emit_collective(d, PTX_SYNC_WARP, PTX_NONE, members);
	return true;
}

static bool decode_active_mask(struct ptx_decoder *d)
{
	uint32_t dst;

	if (!ptx_word(d, "b32") || !ptx_all_words_used(d) || d->statement->count != 1 ||
	    !ptx_result_row(d, ptx_operand(d, 0), PTX_B32, &dst))
		return false;
	ptx_emit(d, PTX_OP_ACTIVE_MASK)->dst = dst;
	return true;
}

bool ptx_decode_control(struct ptx_decoder *d)
{
	d->used = 0;
	if (ptx_is(d, "bra"))
		return decode_branch(d);
	if (ptx_is(d, "brx"))
		return decode_table_branch(d);
	if (ptx_is(d, "call"))
		return decode_call(d);
	if (ptx_is(d, "ret"))
		return decode_return(d);
	if (ptx_is(d, "exit"))
		return decode_bare(d, PTX_OP_EXIT);
	if (ptx_is(d, "trap") || ptx_is(d, "brkpt"))
		return decode_bare(d, PTX_OP_TRAP);
	if (ptx_is(d, "bar") && d->word_count && !strcmp(d->words[0], "warp"))
		return decode_warp_barrier(d);
	if (ptx_is(d, "bar") || ptx_is(d, "barrier"))
		return decode_barrier(d);
	if (ptx_is(d, "membar") || ptx_is(d, "fence"))
		return decode_fence(d);
	if (ptx_is(d, "shfl"))
		return decode_shuffle(d);
	if (ptx_is(d, "vote"))
		return decode_vote(d);
	if (ptx_is(d, "match"))
		return decode_match(d);
	if (ptx_is(d, "redux"))
		return decode_reduction(d);
	if (ptx_is(d, "activemask"))
		return decode_active_mask(d);
	if (ptx_is(d, "nanosleep") || ptx_is(d, "pmevent")) {
		ptx_emit(d, ptx_is(d, "pmevent") ? PTX_OP_NOTHING : PTX_OP_PAUSE);
		return true;
	}
	return false;
}
