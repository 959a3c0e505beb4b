/*
 * The overhead budget. See budget.h for the invariant.
 *
 * The cost of an epoch has two parts: the time of the thread that cuts it, and the time between two events around
 * its work on the GPU. They are added up as if nothing ran meanwhile, so the sum is the most that the program can
 * have lost. The time of the program alone is the time that passed less all of that.
 *
 * Calls cost EVENT_NS each, which is too little to measure without doubling it. Call stacks, and events around work,
 * cost more and are measured. What CUPTI costs is inside the driver's call, so it has a constant too.
 */
#include "capture/budget.h"

#include "options/options.h"
#include "session/session.h"
#include "util/clock.h"
#include "util/json_writer.h"

#define EVENT_NS 100  /* of a call with its event, and CUPTI_NS more with --timeline cupti: see docs/performance.md */
#define CUPTI_NS 1100
#define SKIPPED 256   /* records of skipped epochs that wait for the drain */
#define FLUSH_NS 50000000ull
#define ASK_MOST 50   /* times 20 µs: the event after a capture completes soon after its status was written */

static struct {
	_Atomic uint64_t began;       /* the recording, as far as epochs are concerned */
	_Atomic uint64_t host, calls, gpu; /* nanoseconds spent so far; gpu has expected times where none is known yet */
	_Atomic uint64_t gpu_epoch;   /* expected of an epoch */
	_Atomic uint64_t host_epoch;
	uint64_t skipped_count;       /* in total */
	struct pending skipped[SKIPPED];
	unsigned waiting;
	uint64_t waiting_since;
} budget;

static uint64_t smoothed(uint64_t before, uint64_t now)
{
	return now > before ? now : before - before / 8 + now / 8;
}

uint64_t budget_begin(void)
{
	if (!options.max_overhead)
		return 0;
	uint64_t now = clock_ns(), none = 0;
	if (!atomic_load_explicit(&budget.began, memory_order_relaxed))
		atomic_compare_exchange_strong(&budget.began, &none, now);
	return now;
}

void budget_end(uint64_t begun, enum budget_part part)
{
	if (!begun)
		return;
	uint64_t took = clock_ns() - begun;
	atomic_fetch_add_explicit(part == BUDGET_CALL ? &budget.calls : &budget.host, took, memory_order_relaxed);
	if (part == BUDGET_EPOCH)
		atomic_store(&budget.host_epoch, smoothed(atomic_load(&budget.host_epoch), took));
}

static uint64_t calls_ns(void)
{
	uint64_t each = EVENT_NS + (options.timeline == TIMELINE_CUPTI ? CUPTI_NS : 0);

	return atomic_load(&budget.calls) + session_last_seq() * each;
}

static uint64_t spent(void)
{
	return atomic_load(&budget.host) + atomic_load(&budget.gpu) + calls_ns();
}

/* Thousandths of a percent of the time that the program had for itself. */
static double share(uint64_t cost, uint64_t now)
{
	uint64_t passed = now - budget.began;

	return passed > cost ? 1e5 * (double)cost / (double)(passed - cost) : 1e9;
}

bool budget_allows(const struct capture *p, uint32_t trigger, uint64_t now)
{
	if (!options.max_overhead || !p->epochs || trigger == TT_TRIGGER_FINAL)
		return true;
	uint64_t cost = spent() + atomic_load(&budget.host_epoch) + atomic_load(&budget.gpu_epoch);
	return cost <= options.overhead_allowance_ms * UINT64_C(1000000) || share(cost, now) <= options.max_overhead;
}

/* All but the last `kept`. */
static void flush(unsigned kept)
{
	unsigned given = budget.waiting > kept ? budget.waiting - kept : 0;

	if (!given)
		return;
	drain_add_all(budget.skipped, given);
	if (kept) {
		budget.skipped[0] = budget.skipped[given];
		budget.waiting_since = budget.skipped[0].epoch.time_ns;
	}
	budget.waiting -= given;
}

void budget_skip(struct context *c, const struct tt_epoch *like)
{
	struct capture *p = c->capture;
	struct pending *q = &budget.skipped[budget.waiting++];
	uint64_t now = like->time_ns;

	*q = (struct pending){.capture = p, .epoch = *like, .refused = true, .final = true, .read = true};
	q->epoch.number = session_next_epoch();
	q->epoch.context = c->index;
	q->epoch.device = (uint32_t)c->device;
	q->epoch.flags = TT_EPOCHF_REFUSED;
	q->epoch.skipped = 1;
	session_set_next_epoch(q->epoch.number + 1);
	p->skipped = true;
	p->work_skipped = context_work(c);
	budget.skipped_count++;
	if (budget.waiting == 1)
		budget.waiting_since = now;
	if (budget.waiting == SKIPPED || now - budget.waiting_since > FLUSH_NS)
		flush(1);
}

void budget_take_back(struct context *c, struct tt_epoch *like)
{
	struct capture *p = c->capture;
	const struct pending *last = budget.waiting ? &budget.skipped[budget.waiting - 1] : NULL;

	if (!p->skipped || p->work_skipped != context_work(c) || !last || last->capture != p ||
	    last->epoch.number + 1 != session_next_epoch())
		return;
	like->trigger = last->epoch.trigger;
	like->label = last->epoch.label;
	like->seq = last->epoch.seq;
	session_set_next_epoch(last->epoch.number);
	budget.waiting--;
	budget.skipped_count--;
}

void budget_flush(void)
{
	flush(0);
}

uint64_t budget_expect(void)
{
	uint64_t expected = options.max_overhead ? atomic_load(&budget.gpu_epoch) : 0;

	atomic_fetch_add(&budget.gpu, expected);
	return expected;
}

void budget_captured(struct pending *q)
{
	const struct capture *p = q->capture;
	CUresult r = CUDA_ERROR_NOT_READY;
	float ms = 0;

	if (!options.max_overhead)
		return;
	for (int i = 0; i < ASK_MOST && r == CUDA_ERROR_NOT_READY; i++) {
		if (i)
			nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
		r = real.cuEventElapsedTime(&ms, p->begun[q->slot], p->done[q->slot]);
	}
	if (r != CUDA_SUCCESS)
		return; /* the expected time stays */
	uint64_t took = (uint64_t)((double)ms * 1e6);
	atomic_fetch_add(&budget.gpu, took - q->charged);
	atomic_store(&budget.gpu_epoch, smoothed(atomic_load(&budget.gpu_epoch), took));
}

void budget_json(struct json *j)
{
	if (!options.max_overhead || !budget.began) {
		json_null(j);
		return;
	}
	uint64_t now = clock_ns();
	json_open(j, '{');
	json_member_u64(j, "elapsed_ns", now - budget.began);
	json_member_u64(j, "host_ns", atomic_load(&budget.host));
	json_member_u64(j, "gpu_ns", atomic_load(&budget.gpu));
	json_member_u64(j, "events_ns", calls_ns());
	json_member_u64(j, "limit", options.max_overhead);
	json_member_u64(j, "skipped", budget.skipped_count);
	json_close(j, '}');
}

void budget_forget(void)
{
	budget.began = budget.host = budget.calls = budget.gpu = budget.gpu_epoch = 0;
	budget.host_epoch = budget.skipped_count = 0;
	budget.waiting = 0;
}
