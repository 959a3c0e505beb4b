/*
 * Memory of the running grid: translation of addresses, loads and stores.
 *
 * Invariant: only bytes are accessed that translate (device memory) or the bounds of the space (shared,
 * stack, parameters) allow, and no access is misaligned. If several threads store to one address, the
 * value of the highest one stays. Strong accesses (volatile, relaxed, acquire, release) are atomic on the
 * host, which may use the same memory meanwhile.
 */
#include "sim/ptx/internal.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static const char *verb(const struct ptx_op *op, bool write)
{
	return op->code == PTX_OP_ATOMIC ? "atomic access" : write ? "write" : "read";
}

static bool deny(struct ptx_warp *w, const struct ptx_op *op, unsigned lane, uint64_t address, size_t size,
		 bool write, const char *where)
{
	ptx_fault(w, op, ptx_lane_bit[lane], PTX_BAD_ADDRESS, "%s of %zu bytes at %#llx, %s", verb(op, write), size,
		  (unsigned long long)address, where);
	return false;
}

/* Addresses differ from run to run; the launcher may describe the allocation instead. */
static const char *place_name(const struct ptx_run *run, uint64_t address, char *text, size_t size)
{
	if (run->config->describe)
		run->config->describe(run->config->user, address, text, size);
	else
		snprintf(text, size, "%#llx", (unsigned long long)address);
	return text;
}

/* --- device memory --- */

/* Whole pages are looked up once in a launch; partly accessible pages at each access. */
static uint8_t *translate(struct ptx_run *run, uint64_t address, size_t size, bool write)
{
	const ptx_launch_config *c = run->config;
	uint64_t page = address / PTX_PAGE, offset = address % PTX_PAGE;
	struct ptx_page *p = &run->pages[write][page % PTX_PAGES];

	if (c->cooperative && address >= PTX_WORKSPACE && address - PTX_WORKSPACE + size <= PTX_WORKSPACE_BYTES)
		return run->workspace + (address - PTX_WORKSPACE);
	if (offset + size <= PTX_PAGE && page < UINT64_MAX / PTX_PAGE) {
		if (p->tag != page + 1) {
			p->tag = page + 1;
			p->host = c->translate(c->user, page * PTX_PAGE, PTX_PAGE, write);
		}
		if (p->host)
			return p->host + offset;
	}
	return c->translate(c->user, address, size, write);
}

static bool resolve_global(struct ptx_warp *w, const struct ptx_op *op, uint32_t mask, const uint64_t *at,
			   size_t size, bool write, uint8_t **host)
{
	struct ptx_run *run = w->cta->run;
	uint64_t least = UINT64_MAX, most = 0;

	if (mask == PTX_EVERYONE) {
		for (int i = 0; i < PTX_WARP; i++) {
			least = at[i] < least ? at[i] : least;
			most = at[i] > most ? at[i] : most;
		}
	} else {
		for (uint32_t m = mask; m; m &= m - 1) {
			uint64_t a = at[__builtin_ctz(m)];
			least = a < least ? a : least;
			most = a > most ? a : most;
		}
	}
	if (most - least < PTX_PAGE && most <= UINT64_MAX - size) {
		uint8_t *base = translate(run, least, most - least + size, write);
		if (base) {
			for (int i = 0; i < PTX_WARP; i++)
				host[i] = (uint8_t *)((uintptr_t)base + (at[i] - least));
			return true;
		}
	}
	for (uint32_t m = mask; m; m &= m - 1) {
		int i = __builtin_ctz(m);
		host[i] = at[i] > UINT64_MAX - size ? NULL : translate(run, at[i], size, write);
		if (!host[i]) {
			char place[96];
			ptx_fault(w, op, ptx_lane_bit[i], PTX_BAD_ADDRESS,
				  "%s of %zu bytes at %s, which is not allocated or not accessible", verb(op, write),
				  size, place_name(run, at[i], place, sizeof(place)));
			return false;
		}
	}
	return true;
}

/* --- the other spaces --- */

static bool resolve_block(struct ptx_warp *w, const struct ptx_op *op, uint32_t mask, const uint64_t *at, size_t size,
			  bool write, uint8_t **host, uint8_t *base, size_t stride, size_t limit, const char *where)
{
	for (uint32_t m = mask; m; m &= m - 1) {
		unsigned i = (unsigned)__builtin_ctz(m);
		if (limit < size || at[i] > limit - size)
			return deny(w, op, i, at[i], size, write, where);
		host[i] = base + i * stride + at[i];
	}
	return true;
}

struct ptx_cta *ptx_block_of_cluster(const struct ptx_cta *cta, unsigned rank)
{
	const struct ptx_run *run = cta->run;

	return rank < run->cluster ? run->slots[cta->slot / run->cluster * run->cluster + rank] : NULL;
}

/* Shared memory of other blocks of the cluster. */
static bool resolve_far(struct ptx_warp *w, const struct ptx_op *op, uint32_t mask, const uint64_t *at, size_t size, bool write,
			uint8_t **host)
{
	for (uint32_t m = mask; m; m &= m - 1) {
		unsigned i = (unsigned)__builtin_ctz(m);
		uint64_t inside[PTX_WARP];
		inside[i] = at[i] & ~(UINT64_MAX << PTX_RANK_SHIFT);
		const struct ptx_cta *other = ptx_block_of_cluster(w->cta, (unsigned)((at[i] >> PTX_RANK_SHIFT) - 1));
		if (!other)
			return deny(w, op, i, at[i], size, write, "beyond the shared memory of its block");
		if (!other->resident)
			return deny(w, op, i, at[i], size, write, "in shared memory of a block that has ended");
		if (!resolve_block(w, op, m & -m, inside, size, write, host, other->shared, 0, w->cta->run->shared_bytes,
				   "beyond the shared memory of a block of its cluster"))
			return false;
	}
	return true;
}

static bool resolve_shared(struct ptx_warp *w, const struct ptx_op *op, uint32_t mask, const uint64_t *at,
			   size_t size, bool write, uint8_t **host)
{
	uint32_t far = 0;

	for (uint32_t m = mask; m; m &= m - 1)
		far |= at[__builtin_ctz(m)] >> PTX_RANK_SHIFT ? m & -m : 0;
	if (far && !resolve_far(w, op, far, at, size, write, host))
		return false;
	mask &= ~far;
	return resolve_block(w, op, mask, at, size, write, host, w->cta->shared, 0, w->cta->run->shared_bytes,
			     "beyond the shared memory of its block");
}

static bool resolve_local(struct ptx_warp *w, const struct ptx_op *op, uint32_t mask, const uint64_t *at, size_t size,
			  bool write, uint8_t **host)
{
	size_t limit = w->frame->local + w->frame->function->frame_bytes;

	return resolve_block(w, op, mask, at, size, write, host, w->local, w->local_bytes, limit,
			     "beyond the local memory of its thread");
}

static bool resolve_parameter(struct ptx_warp *w, const struct ptx_op *op, uint32_t mask, const uint64_t *at,
			      size_t size, bool write, uint8_t **host)
{
	const struct ptx_run *run = w->cta->run;

	return resolve_block(w, op, mask, at, size, write, host, (uint8_t *)(uintptr_t)run->config->params, 0,
			     run->parameter_bytes, "beyond the parameters of the kernel");
}

static bool resolve_generic(struct ptx_warp *w, const struct ptx_op *op, uint32_t mask, uint64_t *at, size_t size,
			    bool write, uint8_t **host)
{
	uint32_t shared = 0, local = 0, params = 0;

	for (uint32_t m = mask; m; m &= m - 1) {
		int i = __builtin_ctz(m);
		if (at[i] - PTX_PARAM_WINDOW < PTX_WINDOW && !write) {
			params |= m & -m;
			at[i] -= PTX_PARAM_WINDOW;
		} else if (at[i] - PTX_SHARED_WINDOW < PTX_WINDOW) {
			shared |= m & -m;
			at[i] -= PTX_SHARED_WINDOW;
		} else if (at[i] - PTX_LOCAL_WINDOW < PTX_WINDOW) {
			local |= m & -m;
			at[i] -= PTX_LOCAL_WINDOW;
		}
	}
	uint32_t global = mask & ~shared & ~local & ~params;
	return (!params || resolve_parameter(w, op, params, at, size, write, host)) &&
	       (!shared || resolve_shared(w, op, shared, at, size, write, host)) &&
	       (!local || resolve_local(w, op, local, at, size, write, host)) &&
	       (!global || resolve_global(w, op, global, at, size, write, host));
}

static inline void addresses(const struct ptx_warp *w, const struct ptx_op *op, uint64_t *at)
{
	uint64_t offset = (uint64_t)op->imm;

	if (op->flags & PTX_FRAME_RELATIVE)
		offset += w->frame->local;
	if (op->flags & PTX_NARROW_ADDRESS) {
		const lane_u32 *row = ptx_row(w, op->memory.address);
		for (int i = 0; i < PTX_WARP; i++)
			at[i] = (uint32_t)(row[i] + (uint32_t)offset);
	} else {
		const lane_u64 *row = ptx_row(w, op->memory.address);
		for (int i = 0; i < PTX_WARP; i++)
			at[i] = row[i] + offset;
	}
}

void ptx_addresses(const struct ptx_warp *w, const struct ptx_op *op, uint64_t *at)
{
	addresses(w, op, at);
}

static bool misaligned(struct ptx_warp *w, const struct ptx_op *op, uint32_t mask, const uint64_t *at, size_t size,
		       bool write)
{
	for (uint32_t m = mask; m; m &= m - 1) {
		unsigned i = (unsigned)__builtin_ctz(m);
		if (at[i] & (size - 1)) {
			char place[96];
			ptx_fault(w, op, ptx_lane_bit[i], PTX_MISALIGNED, "misaligned %s of %zu bytes at %s",
				  verb(op, write), size, place_name(w->cta->run, at[i], place, sizeof(place)));
			return true;
		}
	}
	return false;
}

static inline bool resolve(struct ptx_warp *w, const struct ptx_op *op, uint32_t mask, size_t align, size_t size, bool write,
			   uint8_t **host)
{
	uint64_t at[PTX_WARP], low = 0;

	addresses(w, op, at);
	for (int i = 0; i < PTX_WARP; i++)
		low |= at[i];
	if (low & (align - 1) && misaligned(w, op, mask, at, align, write))
		return false;
	switch (op->space) {
	case PTX_SPACE_GLOBAL:
	case PTX_SPACE_CONST:
		return resolve_global(w, op, mask, at, size, write, host);
	case PTX_SPACE_SHARED:
		return resolve_shared(w, op, mask, at, size, write, host);
	case PTX_SPACE_LOCAL:
	case PTX_SPACE_FRAME:
		return resolve_local(w, op, mask, at, size, write, host);
	case PTX_SPACE_PARAM:
		return resolve_parameter(w, op, mask, at, size, write, host);
	default:
		return resolve_generic(w, op, mask, at, size, write, host);
	}
}

bool ptx_resolve(struct ptx_warp *w, const struct ptx_op *op, uint32_t mask, size_t size, bool write, uint8_t **host)
{
	return resolve(w, op, mask, size, size, write, host);
}

/* --- copies --- */

bool ptx_resolve_row(struct ptx_warp *w, const struct ptx_op *op, uint32_t row, enum ptx_space space, uint32_t mask, size_t align,
		     size_t size, bool write, uint8_t **host)
{
	struct ptx_op other = *op;

	other.memory.address = row;
	other.space = (uint8_t)space;
	other.imm = 0;
	other.flags = 0;
	return resolve(w, &other, mask, align, size, write, host);
}

bool ptx_resolve_at(struct ptx_warp *w, const struct ptx_op *op, uint32_t row, int rank, uint32_t mask, size_t align, size_t size,
		    bool write, uint8_t **host)
{
	uint64_t at[PTX_WARP];

	if (rank < 0)
		return ptx_resolve_row(w, op, row, PTX_SPACE_SHARED, mask, align, size, write, host);
	for (int i = 0; i < PTX_WARP; i++)
		at[i] = ptx_shared_of(((const lane_u64 *)ptx_row(w, row))[i], (unsigned)rank);
	return !misaligned(w, op, mask, at, align, write) && resolve_far(w, op, mask, at, size, write, host);
}

uint8_t *ptx_device_memory(struct ptx_warp *w, const struct ptx_op *op, unsigned lane, uint64_t address, size_t size, bool write)
{
	uint8_t *host = address > UINT64_MAX - size ? NULL : translate(w->cta->run, address, size, write);
	char place[96];

	if (!host)
		deny(w, op, lane, address, size, write, place_name(w->cta->run, address, place, sizeof(place)));
	return host;
}

/* rank: of the block of the cluster that it goes to; -1: the addresses say it. */
static bool copy_to(struct ptx_warp *w, const struct ptx_op *op, unsigned lane, int rank, uint32_t size, const uint8_t *source,
		    uint32_t given)
{
	uint32_t mask = ptx_lane_bit[lane], align = op->wide ? 16 : size, barrier = op->memory.element[2];
	uint8_t *to[PTX_WARP];
	uint64_t at[PTX_WARP];

	if (rank < 0 && size && !resolve(w, op, mask, align, size, true, to))
		return false;
	if (rank >= 0) {
		addresses(w, op, at);
		at[lane] = ptx_shared_of(at[lane], (unsigned)rank);
		if (misaligned(w, op, mask, at, align, true) || !resolve_far(w, op, mask, at, size, true, to))
			return false;
	}
	if (given)
		memmove(to[lane], source, given);
	if (size > given)
		memset(to[lane] + given, 0, size - given);
	return barrier == PTX_NO_ROW || (ptx_resolve_at(w, op, barrier, rank, mask, 8, 8, true, to) &&
					 ptx_mbarrier_apply(w, op, PTX_MBARRIER_COMPLETE, (int)lane, to[lane], size));
}

static bool copy_lane(struct ptx_warp *w, const struct ptx_op *op, unsigned lane, uint32_t size, uint32_t given, uint32_t ranks)
{
	uint32_t mask = ptx_lane_bit[lane], align = op->wide ? 16 : size;
	uint8_t *source[PTX_WARP] = {0};

	if (op->wide && size % align) {
		ptx_fault(w, op, mask, PTX_MISALIGNED, "bulk copy of %u bytes: they are no multiple of 16", size);
		return false;
	}
	given = given < size ? given : size;
	if (given && !ptx_resolve_row(w, op, op->memory.element[0], op->kind, mask, align, given, false, source))
		return false;
	if (!op->wide || op->memory.element[3] == PTX_NO_ROW)
		return copy_to(w, op, lane, -1, size, source[lane], given);
	for (; ranks; ranks &= ranks - 1)
		if (!copy_to(w, op, lane, __builtin_ctz(ranks), size, source[lane], given))
			return false;
	return true;
}

bool ptx_copy(struct ptx_warp *w, struct ptx_group *g, const struct ptx_op *op)
{
	const lane_u32 *sizes = ptx_row(w, op->memory.element[1]);
	const lane_u32 *last = op->memory.element[3] == PTX_NO_ROW ? sizes : ptx_row(w, op->memory.element[3]);

	g->pc++;
	for (uint32_t m = g->mask; m; m &= m - 1) {
		unsigned lane = (unsigned)__builtin_ctz(m);
		if (!copy_lane(w, op, lane, sizes[lane], op->wide ? sizes[lane] : last[lane], last[lane]))
			return false;
	}
	return true;
}

/* --- loads --- */

#define FETCH(R, M, S)                                                                                        \
	do {                                                                                                  \
		lane_##R *d = dst;                                                                            \
		for (uint32_t m = mask; m; m &= m - 1) {                                                      \
			int i = __builtin_ctz(m);                                                             \
			M value;                                                                              \
			if (strong)                                                                           \
				value = __atomic_load_n((const M *)(host[i] + offset), __ATOMIC_ACQUIRE);     \
			else                                                                                  \
				memcpy(&value, host[i] + offset, sizeof(value));                              \
			d[i] = (S)value;                                                                      \
		}                                                                                             \
	} while (0)

static void fetch(const struct ptx_op *op, void *dst, uint8_t *const *host, size_t offset, uint32_t mask)
{
	bool wide = op->kind == PTX_ELEMENT_64, strong = op->flags & PTX_STRONG;

	switch ((enum ptx_type)op->type) {
	case PTX_B8:
	case PTX_U8:
		if (wide)
			FETCH(u64, uint8_t, uint64_t);
		else
			FETCH(u32, uint8_t, uint32_t);
		break;
	case PTX_S8:
		if (wide)
			FETCH(u64, int8_t, uint64_t);
		else if (op->kind == PTX_ELEMENT_16)
			FETCH(u32, int8_t, uint16_t);
		else
			FETCH(u32, int8_t, uint32_t);
		break;
	case PTX_S16:
		if (wide)
			FETCH(u64, int16_t, uint64_t);
		else if (op->kind == PTX_ELEMENT_16)
			FETCH(u32, int16_t, uint16_t);
		else
			FETCH(u32, int16_t, uint32_t);
		break;
	case PTX_B16:
	case PTX_U16:
	case PTX_F16:
		if (wide)
			FETCH(u64, uint16_t, uint64_t);
		else
			FETCH(u32, uint16_t, uint32_t);
		break;
	case PTX_S32:
		if (wide)
			FETCH(u64, int32_t, uint64_t);
		else
			FETCH(u32, uint32_t, uint32_t);
		break;
	case PTX_B64:
	case PTX_U64:
	case PTX_S64:
	case PTX_F64:
		FETCH(u64, uint64_t, uint64_t);
		break;
	default:
		if (wide)
			FETCH(u64, uint32_t, uint64_t);
		else
			FETCH(u32, uint32_t, uint32_t);
		break;
	}
}

bool ptx_load_rows(struct ptx_warp *w, const struct ptx_op *op, uint32_t mask)
{
	uint8_t *host[PTX_WARP];
	size_t size = ptx_type_size(op->type);

	if (!ptx_resolve(w, op, mask, size * op->count, false, host))
		return false;
	for (unsigned e = 0; e < op->count; e++)
		if (op->memory.element[e] != PTX_NO_ROW)
			fetch(op, ptx_row(w, op->memory.element[e]), host, e * size, mask);
	if (op->flags & PTX_ACQUIRE)
		atomic_thread_fence(memory_order_seq_cst);
	return true;
}

/* Kernel parameters at a fixed offset are equal for all threads: read once. */
bool ptx_load_uniform(struct ptx_warp *w, const struct ptx_op *op, uint32_t mask)
{
	const struct ptx_run *run = w->cta->run;
	size_t size = ptx_type_size(op->type), at = (size_t)op->imm;
	_Alignas(64) uint64_t aside[PTX_WARP];
	bool wide = op->kind == PTX_ELEMENT_64;

	if (at > run->parameter_bytes || size * op->count > run->parameter_bytes - at)
		return deny(w, op, (unsigned)__builtin_ctz(mask), at, size * op->count, false,
			    "beyond the parameters of the kernel");
	if (at & (size * op->count - 1)) {
		ptx_fault(w, op, mask, PTX_MISALIGNED, "misaligned read of %zu bytes of parameters at %zu",
			  size * op->count, at);
		return false;
	}
	for (unsigned e = 0; e < op->count; e++) {
		uint8_t *host = (uint8_t *)(uintptr_t)run->config->params + at + e * size;
		if (op->memory.element[e] == PTX_NO_ROW)
			continue;
		fetch(op, aside, &host, 0, 1);
		if (wide)
			for (int i = 1; i < PTX_WARP; i++)
				((lane_u64 *)aside)[i] = ((lane_u64 *)aside)[0];
		else
			for (int i = 1; i < PTX_WARP; i++)
				((lane_u32 *)aside)[i] = ((lane_u32 *)aside)[0];
		ptx_blend(ptx_row(w, op->memory.element[e]), aside, mask, wide);
	}
	return true;
}

/* --- stores --- */

#define PUT(M)                                                                                                \
	for (uint32_t m = mask; m; m &= m - 1) {                                                              \
		int i = __builtin_ctz(m);                                                                     \
		M value = (M)(wide ? ((const lane_u64 *)src)[i] : ((const lane_u32 *)src)[i]);                \
		if (strong)                                                                                   \
			__atomic_store_n((M *)(host[i] + offset), value, __ATOMIC_RELEASE);                   \
		else                                                                                          \
			memcpy(host[i] + offset, &value, sizeof(value));                                      \
	}

static void put(const struct ptx_op *op, const void *src, uint8_t *const *host, size_t offset, uint32_t mask)
{
	bool wide = op->kind == PTX_ELEMENT_64, strong = op->flags & PTX_STRONG;

	switch (ptx_type_size(op->type)) {
	case 1:
		PUT(uint8_t)
		break;
	case 2:
		PUT(uint16_t)
		break;
	case 4:
		PUT(uint32_t)
		break;
	default:
		PUT(uint64_t)
		break;
	}
}

bool ptx_store_rows(struct ptx_warp *w, const struct ptx_op *op, uint32_t mask)
{
	uint8_t *host[PTX_WARP];
	size_t size = ptx_type_size(op->type);

	if (!ptx_resolve(w, op, mask, size * op->count, true, host))
		return false;
	if (op->flags & PTX_RELEASE)
		atomic_thread_fence(memory_order_seq_cst);
	for (unsigned e = 0; e < op->count; e++)
		put(op, ptx_row(w, op->memory.element[e]), host, e * size, mask);
	return true;
}

void ptx_read_string(struct ptx_warp *w, uint64_t address, char *text, size_t size)
{
	size_t n = 0;

	for (; n + 1 < size; n++) {
		const uint8_t *c = address > UINT64_MAX - size ? NULL : translate(w->cta->run, address + n, 1, false);
		if (!c || !*c)
			break;
		text[n] = (char)*c;
	}
	text[n] = 0;
}
