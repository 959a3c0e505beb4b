/* Functions of the driver that kernels may call. */
#include "sim/ptx/internal.h"

/* An argument that a lane passes to a function of the driver. */
static void take_arguments(const struct ptx_warp *w, const struct ptx_group *g, const struct ptx_op *op, unsigned lane,
			   uint64_t *word)
{
	for (size_t i = 0; i < op->call->argument_count; i++) {
		const struct ptx_variable *v = op->call->arguments[i];
		word[i] = 0;
		__builtin_memcpy(&word[i], w->local + lane * w->local_bytes + g->frame->local + v->address,
				 v->size < 8 ? v->size : 8);
	}
}

void ptx_set_condition(struct ptx_warp *w, struct ptx_group *g, const struct ptx_op *op)
{
	const ptx_launch_config *config = w->cta->run->config;
	uint64_t word[2];

	for (uint32_t mask = g->mask; mask; mask &= mask - 1) {
		unsigned lane = (unsigned)__builtin_ctz(mask);
		take_arguments(w, g, op, lane, word);
		if (config->set_condition && !config->set_condition(word[0], (uint32_t)word[1]))
			ptx_fault(w, op, ptx_lane_bit[lane], PTX_TRAP, "cudaGraphSetConditional of an unknown handle");
	}
	g->pc++;
}

void ptx_fail_assertion(struct ptx_warp *w, struct ptx_group *g, const struct ptx_op *op)
{
	unsigned lane = (unsigned)__builtin_ctz(g->mask);
	char text[3][128];
	uint64_t word[5];

	take_arguments(w, g, op, lane, word);
	ptx_read_string(w, word[0], text[0], sizeof(text[0]));
	ptx_read_string(w, word[1], text[1], sizeof(text[1]));
	ptx_read_string(w, word[3], text[2], sizeof(text[2]));
	ptx_fault(w, op, ptx_lane_bit[lane], PTX_ASSERT, "assertion failed: %s:%u: %s: %s", text[1], (unsigned)word[2],
		  text[2], text[0]);
}
