/*
 * The parts of a wrapper that are not on the launch path.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capture/budget.h"
#include "capture/graph_epochs.h"
#include "lifecycle/crash_report.h"
#include "hooks/op.h"
#include "store/activities.h"

bool op_is_capturing(struct stream *s)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	return real.cuStreamIsCapturing &&
	       (real.cuStreamIsCapturing(s->handle, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE);
}

_Static_assert(CALL_COUNT < TT_NO_CALL, "calls have 16 bits in events");

HOT struct tt_event *op_event(struct op *op, CUresult result)
{
	struct tt_event *e = op_slot(op, result, options.callstacks);

	if (e)
		e->id = TT_NO_ID;
	return e;
}

void call_failed(struct context *c, CUresult result, uint32_t call, uint64_t seq)
{
	crash_report_result(c, result, call_name(call), seq);
}

uint32_t op_stack(void)
{
	uint64_t begun = budget_begin();
	uint32_t stack = stacks_here();

	budget_end(begun, BUDGET_CALL);
	return stack;
}

void op_ask_torch(struct op *op)
{
	uint64_t begun = budget_begin();

	/* Through CUPTI the thread is on another C stack, which Python does not know. */
	if (session_state == SESSION_ON && options.entry != ENTRY_CUPTI)
		op->stack = stacks_from_torch();
	atomic_store_explicit(&thread_self.call, op->call, memory_order_relaxed);
	budget_end(begun, BUDGET_CALL);
}

struct timing *op_timing(const struct op *op)
{
	uint64_t begun = budget_begin();
	struct timing *timing = timing_begin(op->stream, op->seq);

	budget_end(begun, BUDGET_CALL);
	return timing;
}

void op_timed(const struct op *op, bool submitted)
{
	uint64_t begun = budget_begin();

	timing_end(op->timing, op->stream, op->event, submitted);
	budget_end(begun, BUDGET_CALL);
}

void op_waited(const struct op *op, uint64_t since)
{
	struct tt_activity a = {
		.seq = op->seq,
		.begin_ns = since,
		.kind = TT_EVENT_SYNC,
		.context = op->context ? op->context->index : TT_NO_ID,
		.device = TT_NO_ID,
		.name = TT_NO_ID,
	};

	if (!since)
		return;
	a.end_ns = clock_ns();
	if (!activities_add(&a))
		timeline_missed(1);
}

struct region_origin op_origin(const struct op *op)
{
	return (struct region_origin){.stream = op->stream ? op->stream->id : 0,
				      .seq = op->seq,
				      .time_ns = op->time,
				      .call = op->call,
				      .label = TT_NO_ID};
}

void op_settle(struct thread *t, uint64_t contexts)
{
	for (struct context *c = context_first(); c; c = c->next)
		if (contexts & context_bit(c))
			capture_settle(t, c);
}

void op_reaches(struct op *op, struct context *other)
{
	if (other == op->context)
		return;
	atomic_fetch_add(&other->reached, 1);
	atomic_fetch_or(&op->stream->reaches, context_bit(other));
	op->waited |= capture_await(op->stream, other);
}

void op_reaches_address(struct op *op, CUdeviceptr address)
{
	struct context *c = region_context(address);

	if (c)
		op_reaches(op, c);
}

void op_epoch(struct op *op, uint32_t trigger, uint32_t label)
{
	if (op->on && session_state == SESSION_ON)
		capture_epoch(op->t, op->context, trigger, label, op->seq, trigger == TT_TRIGGER_KERNEL_BEFORE);
}

/* Drop-oldest: stores the epochs in the ring now. 0, or -1: not recording. */
EXPORT int tt_dump(void)
{
	OP(op, TT_NO_ID);

	if (!op_start(&op, session_state == SESSION_ON))
		return -1;
	capture_dump(op.t);
	return 0;
}

/*
 * Changes settings of the recording from now on, as "points=off;regions=touched": see controls.h. Makes no driver
 * call. 0; -1: not recording, or an invalid setting, which a message names.
 */
EXPORT int tt_control(const char *what)
{
	char why[200];
	OP(op, TT_NO_ID);

	if (!op_start(&op, recording()) || !what)
		return -1;
	if (!capture_control(what, why, sizeof(why))) {
		session_warn("tt_control: %s", why);
		return -1;
	}
	return 0;
}

/* Names the allocation that holds an address: 0; -1: no allocation, or not recording. */
EXPORT int tt_label(unsigned long long address, const char *name)
{
	OP(op, TT_NO_ID);

	if (!op_begin(&op))
		return -1;
	struct region_origin origin = op_origin(&op);
	origin.label = store_string(session_store(), name);
	return region_label(address, &origin) ? 0 : -1;
}

/*
 * Names a part of the memory of allocations, from the next epoch on; name NULL or "" removes names. type: of its
 * items, such as "f32", or NULL. Makes no driver call. 0; -1: no allocation, or not recording.
 */
EXPORT int tt_label_range(unsigned long long address, unsigned long long bytes, const char *name, const char *type)
{
	OP(op, TT_NO_ID);

	if (!op_start(&op, recording()))
		return -1;
	op_started(&op);
	return regions_label(address, bytes, name, type, op.seq) ? 0 : -1;
}

/* The bytes of an item of a type such as "f32", "bf16" or "f8e4m3"; 0: unknown. */
static unsigned long long item_size(const char *type)
{
	size_t letters = strcspn(type, "0123456789");
	unsigned long bits = strtoul(type + letters, NULL, 10);

	return bits == 8 || bits == 16 || bits == 32 || bits == 64 || bits == 128 ? bits / 8 : 0;
}

/*
 * Declares how far `count` items may differ from the recording in a replay: by `abs`, or by `rel` of the larger
 * value. type: such as "f32", or "l1:f32", "l2:f32", "linf:f32" for a norm of all differences. Replaces names of this
 * memory. Makes no driver call. 0; -1: no allocation, not recording, or an invalid value, which a message names.
 */
EXPORT int tt_tolerance(unsigned long long address, unsigned long long count, const char *type, double abs, double rel)
{
	const char *item = type ? strrchr(type, ':') : NULL;
	char text[120];

	item = item ? item + 1 : type;
	if (!item || !item_size(item) || strlen(type) > 24 || !(abs >= 0) || !(rel >= 0) || count > UINT64_MAX / 16) {
		session_warn("tt_tolerance: expected a type such as f32 or l2:f32, and two numbers of 0 or more");
		return -1;
	}
	snprintf(text, sizeof(text), "%s within %.*s%.17g,%.17g", item, (int)(item - type), type, abs, rel);
	return tt_label_range(address, count * item_size(item), "tolerance", text);
}

/* Cuts an epoch on request, or at each launch of the graph that the stream is captured into: 0; -1: not recording. */
EXPORT int tt_epoch(void *stream, const char *label)
{
	OP(op, TT_NO_ID);

	if (!op_begin_stream(&op, stream, false, false))
		return -1;
	uint32_t name = store_string(session_store(), label);
	if (op.capturing)
		return instrumentation_mark(op.t, op.context, op.stream->handle, name) ? 0 : -1;
	op_epoch(&op, TT_TRIGGER_API, name);
	return 0;
}

struct dependency {
	struct op *op;
	CUevent event;
	unsigned long long address;
	uint32_t region;
};

static bool wait_for(CUstream stream, void *to)
{
	struct dependency *d = to;
	struct stream own = {.handle = stream, .context = d->op->context};
	bool timed = atomic_load(&timeline_source) == TIMELINE_EVENTS;
	struct timing *timing = timed ? timing_begin(&own, d->op->seq) : NULL;
	CUresult r = real.cuStreamWaitEvent(stream, d->event, 0);

	RECORD(d->op, r, TT_EVENT_REGION_READY, e->dst = d->address; e->src = (uint64_t)(uintptr_t)d->event; e->id = d->region);
	if (timing)
		timing_end(timing, &own, d->op->event, r == CUDA_SUCCESS);
	return r == CUDA_SUCCESS;
}

/*
 * The allocation that holds an address is complete when the event is: the next epochs wait for it on the device. The
 * event may be recorded again or destroyed at once. 0; -1: no allocation, not recording, during a stream capture, or
 * the driver refuses the event.
 */
EXPORT int tt_region_ready(unsigned long long address, void *event)
{
	OP(op, TT_NO_ID);

	if (!op_begin(&op))
		return -1;
	struct region *r = region_find(address);
	if (!r)
		return -1;
	struct dependency d = {&op, event, address, r->id};
	struct context *c = r->context;
	region_release(r);
	if (!c)
		return -1;
	op.context = c;
	return capture_submit(op.t, c, wait_for, &d) ? 0 : -1;
}
