/*
 * Records what traced instructions do, as trace_ring.h says.
 *
 * A statement of the PTX text is one instruction, however many operations it was decoded into. Its record is
 * written before its first operation, and that of its access before or after the operation that accesses memory.
 *
 * Invariant: a traced launch runs its threads in the order of an untraced one.
 */
#include "sim/ptx/internal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "format.h"
#include "sim/tensor_map.h"
#include "sim_trace.h"
#include "util/xxh3.h"

_Static_assert(PTX_CLUSTER_BARRIER == TT_CLUSTER_BARRIER, "the barrier of a cluster has one number");

#define PATIENCE_NS 2000000000ull /* without room in the ring; then nothing more is recorded */
#define PAUSE 65536               /* instructions after which the host may look at the ring */
#define PASSES 64                 /* through loops, of which one is compared */
#define ADDRESSES (1u << TT_TRACE_ADDRESSES)
#define VALUES (1u << TT_TRACE_VALUES)
#define MOST_BYTES (UINT16_MAX * (size_t)8)

struct ptx_trace {
	const struct tt_sim_trace *want;
	struct tt_trace_ring *ring; /* NULL: no records */
	uint8_t *base;
	uint64_t (*counts)[2]; /* NULL: no counts */
	struct tt_heartbeat *heartbeat; /* NULL: none */
	uint64_t since_pause;
	uint8_t stops[]; /* by operation: whether something is to be done at it */
};

/* An access to memory by the lanes of mask. */
struct access {
	uint32_t mask;
	unsigned kinds;
	uint64_t at[PTX_WARP];
	bool strided;
	int16_t stride;
};

static bool asks(unsigned kinds, enum tt_trace_kind kind)
{
	return kinds >> kind & 1;
}

/* --- the ring --- */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void pause_run(struct ptx_run *run, bool wait)
{
	run->trace->since_pause = 0;
	for (size_t s = 0; s < run->slot_count; s++)
		for (unsigned i = 0; run->slots[s]->resident && i < run->warps; i++)
			ptx_trace_state(&run->slots[s]->warps[i]);
	run->config->pause(wait);
}

static bool wait_for_room(struct ptx_run *run, uint64_t end)
{
	struct tt_trace_ring *ring = run->trace->ring;
	uint64_t bytes = run->trace->want->param.bytes, until = 0, seen = 0, tail;

	while (end - (tail = __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE)) > bytes) {
		if (__atomic_load_n(&ring->discard, __ATOMIC_RELAXED))
			return false;
		if (!until || tail != seen)
			until = now_ns() + PATIENCE_NS;
		else if (now_ns() > until)
			__atomic_store_n(&ring->discard, 1, __ATOMIC_RELAXED);
		seen = tail;
		pause_run(run, true);
	}
	return !__atomic_load_n(&ring->discard, __ATOMIC_RELAXED);
}

static bool reserve(struct ptx_run *run, size_t size, uint64_t *at)
{
	struct tt_trace_ring *ring = run->trace->ring;
	bool fits = size <= run->trace->want->param.bytes && size <= MOST_BYTES;

	if (fits && !__atomic_load_n(&ring->discard, __ATOMIC_RELAXED)) {
		*at = __atomic_fetch_add(&ring->head, size, __ATOMIC_RELAXED);
		if (wait_for_room(run, *at + size))
			return true;
	}
	__atomic_fetch_add(&ring->lost, 1, __ATOMIC_RELAXED);
	return false;
}

/* The second mapping of the ring's memory may lie elsewhere in the host's addresses, so the first is used alone. */
static void put(const struct ptx_trace *t, uint64_t *at, const void *from, size_t size)
{
	size_t offset = *at & (t->want->param.bytes - 1), room = t->want->param.bytes - offset;

	memcpy(t->base + offset, from, size < room ? size : room);
	if (size > room)
		memcpy(t->base, (const uint8_t *)from + room, size - room);
	*at += size;
}

/* Begins a record with a payload of size bytes, which are to be put at *at. */
static bool begin(const struct ptx_warp *w, const struct ptx_op *op, uint32_t mask, int16_t stride, size_t size, uint64_t *at)
{
	const struct ptx_trace *t = w->cta->run->trace;
	struct tt_trace_record r = {
		.launch = t->want->param.launch,
		.instruction = op->line,
		.mask = mask,
		.block_x = w->cta->id[0],
		.block_y = (uint16_t)w->cta->id[1],
		.block_z = (uint16_t)w->cta->id[2],
		.warp = (uint16_t)w->index,
		.stride = stride,
	};

	if (!reserve(w->cta->run, sizeof(r) + size, at))
		return false;
	put(t, at, &r, sizeof(r));
	return true;
}

/* Completes the record that ends at `end`. */
static void complete(const struct ptx_trace *t, uint64_t end, size_t size, enum tt_trace_kind kind, unsigned flags)
{
	uint64_t start = (end - sizeof(struct tt_trace_record) - size) & (t->want->param.bytes - 1);
	uint32_t tag = TT_TRACE_TAG(kind, flags, sizeof(struct tt_trace_record) + size);

	__atomic_store_n((uint32_t *)(void *)(t->base + start), tag, __ATOMIC_RELEASE);
}

/* --- records --- */

static void record_opcode(const struct ptx_warp *w, const struct ptx_op *op, uint32_t mask)
{
	uint64_t at;

	if (begin(w, op, mask, 0, 0, &at))
		complete(w->cta->run->trace, at, 0, TT_TRACE_OPCODE, 0);
}

static bool is_wide(uint32_t row)
{
	return row >> 30 == PTX_FILE_64;
}

static void record_registers(const struct ptx_warp *w, const struct ptx_op *op, uint32_t mask)
{
	const struct ptx_trace *t = w->cta->run->trace;
	const uint32_t *rows = w->cta->run->kernel->module->operands + op->operands;
	unsigned count = rows[-1];
	size_t size = 0;
	uint64_t at;

	for (unsigned i = 0; i < count; i++)
		size += PTX_WARP * (is_wide(rows[i]) ? 8 : 4);
	if (!begin(w, op, mask, 0, size, &at))
		return;
	for (unsigned i = 0; i < count; i++) {
		const void *row = ptx_row(w, rows[i]);
		uint32_t words[2][PTX_WARP] = {0};
		for (uint32_t m = mask; m; m &= m - 1) {
			int lane = __builtin_ctz(m);
			uint64_t value = is_wide(rows[i]) ? ((const lane_u64 *)row)[lane] : ((const lane_u32 *)row)[lane];
			words[0][lane] = (uint32_t)value;
			words[1][lane] = (uint32_t)(value >> 32);
		}
		put(t, &at, words, sizeof(words) / (is_wide(rows[i]) ? 1 : 2));
	}
	complete(t, at, size, TT_TRACE_REGISTERS, 0);
}

/* Whether the addresses are first + lane * stride; those of other lanes become 0. */
static void find_stride(struct access *a)
{
	int first = __builtin_ctz(a->mask);
	uint32_t rest = a->mask & (a->mask - 1);
	int64_t stride = 0;

	a->strided = true;
	if (rest) {
		int second = __builtin_ctz(rest);
		stride = (int64_t)(a->at[second] - a->at[first]) / (second - first);
	}
	for (int i = 0; i < PTX_WARP; i++)
		if (!(a->mask & ptx_lane_bit[i]))
			a->at[i] = 0;
		else if (a->at[i] - a->at[first] != (uint64_t)stride * (unsigned)(i - first))
			a->strided = false;
	a->strided &= stride == (int16_t)stride;
	a->stride = a->strided ? (int16_t)stride : 0;
}

static size_t address_bytes(const struct access *a)
{
	return a->strided ? sizeof(uint64_t) : sizeof(a->at);
}

static void put_addresses(const struct ptx_trace *t, uint64_t *at, const struct access *a)
{
	int first = __builtin_ctz(a->mask);
	uint64_t base = a->at[first] - (uint64_t)((int64_t)a->stride * first);

	put(t, at, a->strided ? &base : a->at, address_bytes(a));
}

static void record_addresses(const struct ptx_warp *w, const struct ptx_op *op, const struct access *a)
{
	const struct ptx_trace *t = w->cta->run->trace;
	size_t size = address_bytes(a);
	uint64_t at;

	if (!begin(w, op, a->mask, a->stride, size, &at))
		return;
	put_addresses(t, &at, a);
	complete(t, at, size, TT_TRACE_ADDRESSES, a->strided ? TT_TRACEF_STRIDED : 0);
}

/* Whether the value is one that the operation returns, not one that it brings. */
static bool returns(const struct ptx_op *op)
{
	return op->code != PTX_OP_STORE && (op->code != PTX_OP_ATOMIC || op->memory.element[0] != PTX_NO_ROW);
}

/* The row of an element; parts that a load discards have none. */
static uint32_t value_row(const struct ptx_op *op, unsigned element)
{
	if (op->code == PTX_OP_ATOMIC && !returns(op))
		return op->memory.element[op->kind == PTX_ATOM_CAS ? 2 : 1];
	return op->memory.element[element];
}

static void record_values(const struct ptx_warp *w, const struct ptx_op *op, const struct access *a)
{
	const struct ptx_trace *t = w->cta->run->trace;
	size_t each = ptx_type_size(op->type), words = (each * op->count + 3) / 4;
	size_t size = address_bytes(a) + words * PTX_WARP * 4;
	bool wide = op->code == PTX_OP_ATOMIC ? op->wide : op->kind == PTX_ELEMENT_64;
	uint32_t value[2 * PTX_MAX_VECTOR][PTX_WARP] = {0};
	uint64_t at;

	if (!begin(w, op, a->mask, a->stride, size, &at))
		return;
	for (unsigned e = 0; e < op->count; e++) {
		const void *row = ptx_row(w, value_row(op, e) == PTX_NO_ROW ? 0 : value_row(op, e));
		for (uint32_t m = value_row(op, e) == PTX_NO_ROW ? 0 : a->mask; m; m &= m - 1) {
			int lane = __builtin_ctz(m);
			uint64_t v = wide ? ((const lane_u64 *)row)[lane] : ((const lane_u32 *)row)[lane];
			v &= each == 8 ? UINT64_MAX : (1ull << 8 * each) - 1;
			value[e * each / 4][lane] |= (uint32_t)v << 8 * (e * each % 4);
			if (each == 8)
				value[e * 2 + 1][lane] = (uint32_t)(v >> 32);
		}
	}
	put_addresses(t, &at, a);
	put(t, &at, value, words * PTX_WARP * 4);
	complete(t, at, size, TT_TRACE_VALUES, a->strided ? TT_TRACEF_STRIDED : 0);
}

/* --- what happens at an instruction --- */

static unsigned kinds_at(const struct ptx_warp *w, uint32_t line)
{
	const struct tt_sim_trace *want = w->cta->run->trace->want;

	return w->cta->recorded && line < want->line_count ? want->lines[line] : 0;
}

/* The kinds that an access has. Values are of what registers take or bring. */
static unsigned access_kinds(const struct ptx_warp *w, const struct ptx_op *op)
{
	unsigned kinds = kinds_at(w, op->line) & (ADDRESSES | VALUES);

	return kinds && (op->code == PTX_OP_MBARRIER || op->code == PTX_OP_COPY || op->code == PTX_OP_TENSOR) ? ADDRESSES : kinds;
}

static struct tt_heartbeat *heartbeat_of(const struct ptx_warp *w)
{
	const struct ptx_run *run = w->cta->run;

	return run->trace->heartbeat + w->cta->block * run->warps + w->index;
}

static uint64_t mixed(uint64_t sum, const void *data, size_t size)
{
	return (sum << 7 | sum >> 57) ^ xxh3_64(data, size);
}

/* Of all that decides what the warp does next, apart from memory: the registers of its frame, and where its threads are. */
static uint64_t state_of(const struct ptx_warp *w)
{
	const struct ptx_frame *f = w->frame;
	const struct ptx_function *now = f->function;
	uint64_t sum = mixed(f->depth, w->rows32 + f->row32, (size_t)now->rows32 * PTX_WARP * 4);

	sum = mixed(sum, w->rows64 + f->row64, (size_t)now->rows64 * PTX_WARP * 8);
	sum = mixed(sum, w->predicates + f->predicate, (size_t)now->predicates * 4);
	for (unsigned i = 0; i < w->group_count; i++) {
		uint32_t place[2] = {w->groups[i].mask, w->groups[i].state};
		sum = mixed(sum, place, sizeof(place));
	}
	return sum;
}

/* The warp comes back to a line. Looks at some passes only, because it takes longer than a short loop. */
static void end_pass(const struct ptx_warp *w, struct tt_heartbeat *h, uint32_t line, uint32_t from)
{
	__atomic_store_n(&h->first, line, __ATOMIC_RELAXED);
	__atomic_store_n(&h->last, from, __ATOMIC_RELAXED);
	if (h->seen++ % PASSES)
		return;
	uint64_t now = state_of(w) ^ ((uint64_t)line << 32 | from);
	uint64_t *passes = h->before == now ? &h->repeated : &h->changed;
	h->before = now;
	__atomic_store_n(passes, *passes + 1, __ATOMIC_RELAXED);
}

static void beat(const struct ptx_warp *w, struct ptx_group *g, uint32_t line)
{
	struct tt_heartbeat *h = heartbeat_of(w);

	if (g->beat >= g->pc)
		end_pass(w, h, line, w->cta->run->code[g->beat].line);
	g->beat = g->pc;
	__atomic_store_n(&h->instruction, line, __ATOMIC_RELAXED);
	__atomic_store_n(&h->state, TT_WARP_RUNS, __ATOMIC_RELAXED);
	__atomic_store_n(&h->count, h->count + 1, __ATOMIC_RELAXED);
}

static void beat_access(const struct ptx_warp *w, const struct ptx_op *op, uint32_t mask)
{
	struct tt_heartbeat *h = heartbeat_of(w);
	uint64_t at[PTX_WARP];

	ptx_addresses(w, op, at);
	__atomic_store_n(&h->object, at[__builtin_ctz(mask)], __ATOMIC_RELAXED);
	__atomic_store_n(&h->access, op->line, __ATOMIC_RELAXED);
}

/* The first threads of a warp that wait, or NULL. */
static const struct ptx_group *waiting_group(const struct ptx_warp *w)
{
	for (unsigned i = 0; i < w->group_count; i++)
		if (w->groups[i].mask && w->groups[i].state != PTX_RUNS)
			return &w->groups[i];
	return NULL;
}

void ptx_trace_state(const struct ptx_warp *w)
{
	const struct ptx_group *waits = w->live && !w->runnable ? waiting_group(w) : NULL;
	struct tt_heartbeat *h;
	uint32_t state = TT_WARP_RUNS;

	if (!w->cta->run->trace->heartbeat)
		return;
	h = heartbeat_of(w);
	if (!w->live)
		state = TT_WARP_EXITED;
	else if (waits)
		state = waits->state == PTX_AT_BARRIER ? TT_WARP_AT_BARRIER : TT_WARP_AT_SYNC;
	else if (!h->count)
		state = TT_WARP_NOT_STARTED;
	if (waits) {
		uint32_t line = w->cta->run->code[waits->pc].line;
		uint64_t threads = w->cta->barriers[waits->barrier].expected;
		__atomic_store_n(&h->instruction, line, __ATOMIC_RELAXED);
		__atomic_store_n(&h->access, line, __ATOMIC_RELAXED);
		__atomic_store_n(&h->object, state == TT_WARP_AT_BARRIER ? waits->barrier | threads << 32 : waits->members,
				 __ATOMIC_RELAXED);
	}
	__atomic_store_n(&h->state, state, __ATOMIC_RELAXED);
}

static void begin_statement(struct ptx_warp *w, struct ptx_group *g, const struct ptx_op *op, uint32_t mask)
{
	struct ptx_trace *t = w->cta->run->trace;
	unsigned kinds = kinds_at(w, op->line);

	if (op->code == PTX_OP_CALL_ROW) /* threads with other targets come back to it */
		mask = ptx_same_target(w, op, mask);
	if (t->heartbeat)
		beat(w, g, op->line);
	if (asks(kinds, TT_TRACE_COUNT) && t->counts) {
		__atomic_fetch_add(&t->counts[op->line][0], 1, __ATOMIC_RELAXED);
		__atomic_fetch_add(&t->counts[op->line][1], (unsigned)__builtin_popcount(mask), __ATOMIC_RELAXED);
	}
	if (asks(kinds, TT_TRACE_OPCODE))
		record_opcode(w, op, mask);
	if (asks(kinds, TT_TRACE_REGISTERS))
		record_registers(w, op, mask);
}

/* The payload of a record of kind tma, before the tensor map. */
struct copy {
	uint64_t descriptor, barrier;
	uint32_t coordinates[SIM_TENSOR_RANK], blocks;
};

static uint64_t lane_64(const struct ptx_warp *w, uint32_t row, unsigned lane)
{
	return row == PTX_NO_ROW ? 0 : ((const lane_u64 *)ptx_row(w, row))[lane];
}

/* Each thread issues a copy of its own. One without a tensor map has no descriptor and no coordinates. */
static void record_tensor_copies(struct ptx_warp *w, const struct ptx_op *op, uint32_t mask)
{
	bool mapped = op->code == PTX_OP_TENSOR;
	uint32_t blocks = op->memory.element[mapped ? 2 : 3];

	for (uint32_t m = mask; m; m &= m - 1) {
		unsigned lane = (unsigned)__builtin_ctz(m);
		struct copy payload = {.barrier = lane_64(w, op->memory.element[mapped ? 1 : 2], lane)};
		const void *map = mapped ? ptx_tensor_map(w, op, lane) : NULL;
		uint64_t at;
		if (mapped && !map)
			return; /* the copy fails as well */
		payload.descriptor = mapped ? lane_64(w, op->memory.element[0], lane) : 0;
		for (unsigned i = 0; mapped && i < op->count; i++)
			payload.coordinates[i] = ((const lane_u32 *)ptx_row(w, op->targets[i]))[lane];
		if (blocks != PTX_NO_ROW)
			payload.blocks = ((const lane_u32 *)ptx_row(w, blocks))[lane];
		size_t size = sizeof(payload) + (mapped ? sizeof(struct sim_tensor_map) : 0);
		if (!begin(w, op, m & -m, 0, size, &at))
			continue;
		put(w->cta->run->trace, &at, &payload, sizeof(payload));
		if (mapped)
			put(w->cta->run->trace, &at, map, sizeof(struct sim_tensor_map));
		complete(w->cta->run->trace, at, size, TT_TRACE_TMA, 0);
	}
}

static void begin_access(const struct ptx_warp *w, const struct ptx_op *op, uint32_t mask, struct access *a)
{
	a->mask = mask;
	ptx_addresses(w, op, a->at);
	find_stride(a);
	if (asks(a->kinds, TT_TRACE_ADDRESSES))
		record_addresses(w, op, a);
	if (asks(a->kinds, TT_TRACE_VALUES) && !returns(op))
		record_values(w, op, a);
}

/* A load that failed has no values: where it failed is worth a record all the more. */
static void end_access(const struct ptx_warp *w, const struct ptx_op *op, const struct access *a)
{
	if (w->cta->run->status == PTX_OK)
		record_values(w, op, a);
	else if (!asks(a->kinds, TT_TRACE_ADDRESSES))
		record_addresses(w, op, a);
}

uint32_t ptx_trace_execute(struct ptx_warp *w, struct ptx_group *g, uint32_t limit, uint32_t turn)
{
	const struct ptx_run *run = w->cta->run;
	uint64_t clock = w->clock;
	uint32_t n = 0;

	while (n < turn && g->pc < limit && run->status == PTX_OK) {
		const struct ptx_op *op = &run->code[g->pc];
		uint32_t before = g->mask, mask = before & ptx_predicate_bits(w, op->guard);
		struct access a = {0};
		if (mask && op->operands)
			begin_statement(w, g, op, mask);
		if (mask && op->flags & PTX_ACCESS) {
			a.kinds = access_kinds(w, op);
			if (run->trace->heartbeat)
				beat_access(w, op, mask);
		}
		if (a.kinds)
			begin_access(w, op, mask, &a);
		bool by_engine = op->code == PTX_OP_TENSOR || (op->code == PTX_OP_COPY && op->wide);
		if (mask && by_engine && asks(kinds_at(w, op->line), TT_TRACE_TMA))
			record_tensor_copies(w, op, mask);
		w->clock = clock + n;
		bool ends = asks(a.kinds, TT_TRACE_VALUES) && returns(op);
		n += ptx_execute_until(w, g, limit, ends ? 1 : turn - n, run->trace->stops);
		if (ends)
			end_access(w, op, &a);
		if (w->regroup || g->mask != before || g->state != PTX_RUNS || g->frame != w->frame || w->pause)
			break;
	}
	w->clock = clock;
	run->trace->since_pause += n;
	if (run->trace->since_pause >= PAUSE)
		pause_run(w->cta->run, false);
	return n;
}

/* --- launches --- */

static void *resolve(const ptx_launch_config *c, uint64_t address, size_t size)
{
	return address ? c->translate(c->user, address, size, true) : NULL;
}

/* Kinds of records before a statement, and before or after its access. */
#define OF_STATEMENT (1u << TT_TRACE_OPCODE | 1u << TT_TRACE_REGISTERS | 1u << TT_TRACE_COUNT)
#define OF_ACCESS (ADDRESSES | VALUES | 1u << TT_TRACE_TMA)

static bool stops_at(const struct ptx_trace *t, const struct ptx_op *op)
{
	unsigned kinds = op->line < t->want->line_count ? t->want->lines[op->line] : 0;

	return (op->operands && (t->heartbeat || kinds & OF_STATEMENT)) ||
	       (op->flags & PTX_ACCESS && (t->heartbeat || kinds & OF_ACCESS));
}

ptx_status ptx_trace_begin(struct ptx_run *run)
{
	const struct tt_sim_trace *want = run->config->trace;
	const struct tt_trace_param *p = &want->param;
	const ptx_module *m = run->kernel->module;
	struct ptx_trace *t = calloc(1, sizeof(*t) + m->code_count);

	if (!t)
		return ptx_refuse(run, PTX_UNSUPPORTED, "out of memory");
	run->trace = t;
	t->want = want;
	t->ring = resolve(run->config, p->ring, sizeof(*t->ring));
	t->base = resolve(run->config, p->base, p->bytes);
	t->counts = resolve(run->config, p->counts, want->line_count * sizeof(*t->counts));
	t->heartbeat = resolve(run->config, p->heartbeat, run->blocks * run->warps * sizeof(*t->heartbeat));
	if (!t->ring || !t->base || !p->bytes || p->bytes & (p->bytes - 1) || p->bytes % 8 || (p->counts && !t->counts) ||
	    (p->heartbeat && !t->heartbeat))
		return ptx_refuse(run, PTX_BAD_ADDRESS, "memory for its trace is not allocated or not accessible");
	for (size_t i = 0; i < m->code_count; i++)
		t->stops[i] = stops_at(t, &m->code[i]);
	return PTX_OK;
}

void ptx_trace_block(struct ptx_cta *cta)
{
	const struct ptx_trace *t = cta->run->trace;

	cta->recorded = cta->block >= t->want->param.first_block && cta->block <= t->want->param.last_block;
	cta->traced = cta->recorded || t->heartbeat;
}
