/*
 * PTX: a text is loaded, and each of its functions launched with whatever parameters. Every other launch is traced.
 */
#include "fuzz.h"
#include "sim/ptx/ptx.h"
#include "sim_trace.h"

#define VARIABLES 64
#define LARGEST (1 << 16)
#define BUDGET 2000 /* warp instructions */
#define SCRATCH 4096
#define LINES 200

static struct tt_trace_ring *ring;

struct memory {
	size_t count;
	struct {
		uint64_t address;
		size_t size;
		uint8_t *host;
	} block[VARIABLES];
};

static uint64_t place(void *user, const ptx_global *g)
{
	struct memory *m = user;

	if (m->count == VARIABLES || g->size > LARGEST)
		return 0;
	m->block[m->count].address = 0x700000000000 + m->count * 2 * LARGEST;
	m->block[m->count].size = g->size;
	m->block[m->count].host = calloc(1, g->size ? g->size : 1);
	if (g->init)
		memcpy(m->block[m->count].host, g->init, g->size);
	return m->block[m->count++].address;
}

static void *translate(void *user, uint64_t address, size_t size, bool write)
{
	struct memory *m = user;

	(void)write;
	for (size_t i = 0; i < m->count; i++) {
		uint64_t offset = address - m->block[i].address;
		if (address >= m->block[i].address && offset <= m->block[i].size && size <= m->block[i].size - offset)
			return m->block[i].host + offset;
	}
	return NULL;
}

/* Traces the first lines with all kinds of records, in a ring of its own. */
static void trace(struct memory *m, struct tt_sim_trace *t)
{
	static uint8_t lines[LINES];
	struct tt_trace_param *p = &t->param;

	memset(lines, 0xff, sizeof(lines));
	p->ring = place(m, &(ptx_global){.size = sizeof(*ring)});
	p->base = place(m, &(ptx_global){.size = SCRATCH});
	p->counts = place(m, &(ptx_global){.size = LINES * 16});
	p->heartbeat = place(m, &(ptx_global){.size = SCRATCH});
	p->bytes = SCRATCH;
	p->last_block = 1;
	t->lines = lines;
	t->line_count = LINES;
	ring = translate(m, p->ring, sizeof(*ring), true);
}

static void make_room(bool wait)
{
	(void)wait;
	ring->tail = ring->head;
}

static void launch(const ptx_function *f, struct memory *m, uint64_t seed)
{
	const ptx_function_info *info = ptx_info(f);
	ptx_global scratch = {.size = SCRATCH};
	uint64_t address = place(m, &scratch);
	uint8_t *params = calloc(1, info->param_bytes ? info->param_bytes : 1);
	char error[512];

	for (size_t at = 0; at + sizeof(address) <= info->param_bytes; at += sizeof(address))
		memcpy(params + at, &address, sizeof(address));
	ptx_launch_config config = {
		.grid = {1 + seed % 3, 1, 1},
		.block = {1 + seed % 70, 1 + seed % 2, 1},
		.cluster = {1, 1, 1},
		.dynamic_shared = (unsigned)(seed % 512),
		.params = params,
		.schedule_seed = seed,
		.translate = translate,
		.user = m,
		.budget = BUDGET,
		.pause = make_room,
	};
	struct tt_sim_trace traced = {0};
	if (seed % 2) {
		trace(m, &traced);
		config.trace = &traced;
	}
	ptx_launch(f, &config, error, sizeof(error));
	free(params);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct memory m = {0};
	ptx_loader loader = {place, &m};
	char *text = fuzz_text(data, size), error[512];
	ptx_module *module = ptx_load(text, &loader, error, sizeof(error));

	for (size_t i = 0; module && i < ptx_function_count(module) && i < 4; i++)
		launch(ptx_function_at(module, i), &m, size * 31 + i);
	if (module)
		ptx_unload(module);
	for (size_t i = 0; i < m.count; i++)
		free(m.block[i].host);
	free(text);
	return 0;
}
