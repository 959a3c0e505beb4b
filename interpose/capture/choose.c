/*
 * Chooses the regions that an epoch reads, and writes their table for the kernels.
 *
 * Invariant: the table in staging is the one on the device, or will be before the next kernel. It stays unchanged
 * while no region is born, dies or is new to the device.
 */
#include <stdlib.h>

#include "capture/controls.h"
#include "capture/capture.h"

#define GRANULE ((uint64_t)2 << 20) /* of device memory: smaller allocations take as much */

struct region_list *region_list_new(size_t capacity)
{
	struct region_list *list = malloc(sizeof(*list) + capacity * sizeof(list->regions[0]));

	if (list) {
		atomic_init(&list->references, 1);
		list->count = 0;
	}
	return list;
}

struct region_list *region_list_hold(struct region_list *list)
{
	atomic_fetch_add(&list->references, 1);
	return list;
}

void region_list_release(struct region_list *list)
{
	if (!list || atomic_fetch_sub(&list->references, 1) != 1)
		return;
	for (uint32_t i = 0; i < list->count; i++)
		region_release(list->regions[i]);
	free(list);
}

static bool ensure_staging(struct capture *p, size_t regions)
{
	if (regions <= p->staging_count)
		return true;
	size_t n = p->staging_count ? p->staging_count : 256;
	while (n < regions)
		n *= 2;
	capture_outgrow(p, &p->staging_memory);
	p->staging = NULL;
	p->staging_count = 0;
	capture_outgrow(p, &p->regions);
	if (!memory_on_host(&p->staging_memory, n * sizeof(*p->staging)) ||
	    !capture_memory(p, &p->regions, n * sizeof(*p->staging), false))
		return false;
	p->staging = p->staging_memory.host;
	p->staging_count = n;
	return true;
}

bool capture_scratch(struct capture *p, uint64_t blocks)
{
	uint64_t size = blocks * sizeof(struct tt_chunk_entry);

	if (size <= p->scratch.size)
		return true;
	capture_outgrow(p, &p->scratch);
	return capture_memory(p, &p->scratch, tt_round_up(size, size < GRANULE ? 65536 : GRANULE), false);
}

static void stage(struct capture *p, struct region *r)
{
	uint32_t i = p->list->count++;

	p->list->regions[i] = r;
	p->staging[i] = (struct tt_capture_region){
		.base = r->base,
		.size = r->size,
		.digests = r->slot,
		.payload = p->payload,
		.first_block = (uint32_t)p->blocks,
		.region = i,
		.flags = r->fresh ? TT_CAPTURE_REGION_ALL : 0,
	};
	p->any_fresh |= r->fresh;
	atomic_store_explicit(&r->captured_by, p->number, memory_order_relaxed);
	if (r->kind == TT_REGION_GLOBAL || !controls.touched)
		atomic_store_explicit(&p->context->rest_captured_by, p->number, memory_order_relaxed);
	r->touched = false;
	p->blocks += region_blocks(r);
	p->bytes += r->size;
	p->payload += region_payload(r);
}

bool choose_regions(struct capture *p, uint32_t number, bool full, uint32_t *total)
{
	struct region **live;
	size_t n, i = 0;
	bool ok;

	if (p->list && p->staged_all && !controls.choice && regions_unchanged(p->staged_version, number + 1)) {
		*total = p->list->count;
		atomic_store_explicit(&p->context->rest_captured_by, p->number, memory_order_relaxed);
		return true;
	}
	live = regions_live(p->context, number + 1, &p->staged_version, &n, &p->managed);
	*total = (uint32_t)n;
	region_list_release(p->list);
	p->list = region_list_new(n);
	p->staged = p->any_fresh = false;
	p->staged_all = true;
	p->blocks = p->payload = p->bytes = 0;
	ok = live && p->list && ensure_staging(p, n);
	for (; ok && i < n; i++) {
		struct region *r = live[i];
		bool left_out = (controls.touched && !r->touched && !region_host_writes(r) && r->kind != TT_REGION_ARRAY) ||
				!controls_want(r);
		if (!full && !r->fresh && left_out) {
			region_release(r);
			p->staged_all = false;
		} else if ((ok = capture_place(p, r))) {
			stage(p, r);
		} else {
			break;
		}
	}
	for (; live && i < n; i++)
		region_release(live[i]);
	free(live);
	ok = ok && p->blocks <= TT_CAPTURE_MAX_BLOCKS && capture_scratch(p, p->blocks ? p->blocks : 1);
	p->staged_all &= ok && !controls.touched && !controls.choice;
	return ok;
}

void choose_captured(struct capture *p)
{
	if (!p->any_fresh)
		return;
	for (uint32_t i = 0; i < p->list->count; i++)
		p->list->regions[i]->fresh = false;
	p->staged_all = false; /* the flags of the table no longer hold */
}

void choose_again(struct capture *p)
{
	for (uint32_t i = 0; p->list && i < p->list->count; i++)
		p->list->regions[i]->fresh = true;
	p->staged_all = false;
}
