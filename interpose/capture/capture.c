/*
 * Decides when to cut epochs, and in which contexts. See capture.h for the invariant.
 */
#include "capture/capture.h"

#include <stddef.h>

#include "callstack/python_names.h"
#include "capture/budget.h"
#include "capture/controls.h"
#include "capture/cut.h"
#include "capture/drain.h"
#include "options/options.h"
#include "session/session.h"
#include "util/clock.h"

#define GATE_MS 200
#define STEP_MS 1
#define OTHERS 64         /* other contexts that an epoch may include */
#define EPOCH_PLACES 2    /* in the drain's queue; more if it comes in parts, each of which waits for its own */
#define NO_LAST_EPOCH "work of the program did not end: the last epoch is missing"
#define HURRY_MS 700      /* wait for the GPU while the process ends */
#define HURRY_DRAIN_MS 3000

pthread_mutex_t capture_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint64_t launches; /* counted only if a trigger or the window uses launches */

uint64_t capture_count_launch(void)
{
	return atomic_fetch_add(&launches, 1) + 1;
}

bool capture_in_window(unsigned ahead)
{
	uint64_t number = options.epoch.window ? atomic_load(&launches) + ahead : 0;

	return !options.epoch.window || (number >= options.epoch.first && number <= options.epoch.last);
}

bool capture_stores_contents(const struct capture *p)
{
	const struct stored_contents *c = &options.contents;

	return c->always || (c->every && p->epochs % c->every == 0) || atomic_load(&controls.storing);
}

uint64_t capture_deadline(uint64_t usual, bool drain)
{
	uint64_t since = session_hurried(), until = since + (drain ? HURRY_DRAIN_MS : HURRY_MS) * 1000000ull;

	return since && until < usual ? until : usual;
}

/* State of the thread that end_own restores. */
struct interrupted {
	CUstreamCaptureMode mode;
	uint64_t submits_for;
};

static struct interrupted begin_own(struct thread *t)
{
	struct interrupted was = {recorder_work_begin(t), t->submits_for};

	if (!t->holds) /* else the thread already has the lock for a launch */
		pthread_mutex_lock(&capture_lock);
	t->submits_for = 0;
	return was;
}

static void end_own(struct thread *t, struct interrupted was)
{
	t->submits_for = was.submits_for;
	if (!t->holds)
		pthread_mutex_unlock(&capture_lock);
	recorder_work_end(t, was.mode);
}

/* A wait for a context's last capture. */
struct wait {
	bool frees; /* memory that it must not read after that, although it was cancelled */
	uint32_t epoch;
	uint64_t deadline;
};

/* A cancelled capture reads no memory, if the device took the cancellation. */
static bool may_read(const struct capture *p)
{
	return p->last_epoch < atomic_load(&p->torn_before);
}

/* One step of it. True: it is over. */
static bool settles(struct context *c, struct wait *w)
{
	struct capture *p = c->capture;

	if (!c->alive || !p || p->broken || (capture_is_blocked(p) && !(w->frees && may_read(p))) || capture_completes(p, 0) ||
	    !capture_enter(c))
		return true;
	if (w->epoch != p->last_epoch) /* or another thread cut one meanwhile */
		*w = (struct wait){w->frees, p->last_epoch, clock_ns() + options.stall_ms * 1000000ull};
	bool over = clock_ns() > capture_deadline(w->deadline, false);
	if (over)
		capture_give_up(p);
	else
		over = capture_completes(p, STEP_MS);
	context_pop();
	return over;
}

/*
 * Waits for the captures of a context, or of all (NULL), before they are needed. What they wait for may need calls of
 * other threads. So the gate is open meanwhile, and others get the lock between two steps.
 */
static void settle(const struct thread *t, const struct context *of, bool frees)
{
	for (struct context *c = context_first(); c; c = c->next) {
		struct wait w = {.frees = frees, .epoch = TT_NO_EPOCH};
		while ((!of || c == of) && !settles(c, &w)) {
			if (t->holds)
				continue;
			pthread_mutex_unlock(&capture_lock);
			nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
			pthread_mutex_lock(&capture_lock);
		}
	}
}

static bool epochs_wanted(void)
{
	const struct triggers *o = &options.epoch;

	return o->sync || o->copy || o->graph || o->launch || o->kernel.count || o->nvtx.count || o->inside.count ||
	       options.replayable;
}

void capture_prepare(struct thread *t, struct context *c)
{
	/* A nested call may come from a tool while the driver creates the context. */
	if (c->capture || c->short_of_memory || !epochs_wanted() || t->busy || atomic_load(&t->calls) > 1 ||
	    atomic_load(&captures_active))
		return;
	uint64_t begun = budget_begin();
	struct interrupted was = begin_own(t);
	if (session_state == SESSION_ON && !c->capture && context_push(c->handle)) {
		c->capture = capture_create(c, false);
		context_pop();
	}
	end_own(t, was);
	budget_end(begun, BUDGET_OTHER);
}

bool capture_submit(struct thread *t, struct context *c, bool (*submit)(CUstream stream, void *to), void *to)
{
	bool done = false;

	if (atomic_load(&captures_active) || t->busy)
		return false;
	struct interrupted was = begin_own(t);
	if (session_state == SESSION_ON && context_push(c->handle)) {
		if (!c->capture)
			c->capture = capture_create(c, c->short_of_memory);
		struct capture *p = c->capture;
		done = p && !p->broken && submit(p->stream, to);
		context_pop();
	}
	end_own(t, was);
	return done;
}

static bool declines(struct capture *p, const char *why)
{
	p->gap = true;
	session_lost("no epochs are captured while %s", why);
	return false;
}

/* Whether the context needs an epoch and can be captured. */
static bool is_due(struct context *c, uint32_t trigger)
{
	bool implied = (trigger == TT_TRIGGER_SYNC || trigger == TT_TRIGGER_FINAL) && !atomic_load(&regions_managed);

	if (!c->capture && !(c->capture = capture_create(c, c->short_of_memory)))
		return false;
	struct capture *p = c->capture;
	if (p->broken)
		return false;
	/* The last epoch also covers what a skipped epoch did not. */
	uint64_t seen = p->skipped && trigger != TT_TRIGGER_FINAL ? p->work_skipped : c->work_captured;
	if (capture_is_blocked(p) && !capture_settled(p))
		return declines(p, "a capture is blocked");
	bool due = !implied || p->gap || !p->epochs || context_work(c) != seen;
	return due && (drain_places(EPOCH_PLACES) || declines(p, "the drain is blocked: the disk takes nothing"));
}

/*
 * Caller has closed the gate. exact: no thread is inside. Returns the epoch's number, TT_NO_EPOCH if it was not
 * captured.
 */
static uint32_t cut_epoch(struct thread *t, struct context *c, const struct tt_epoch *like, bool exact)
{
	struct capture *p = c->capture;
	uint32_t number = session_next_epoch();
	bool full = controls.snapshot_every && p->epochs % controls.snapshot_every == 0;
	struct pending q = {.capture = p, .epoch = *like, .digests = !capture_stores_contents(p)};

	q.number = p->number = atomic_load(&c->captures) + 1;
	q.epoch.number = number;
	q.epoch.context = c->index;
	q.epoch.device = (uint32_t)c->device;
	q.epoch.flags = exact ? 0 : TT_EPOCHF_LOOSE;
	c->work_captured = context_work(c);
	p->gap |= p->skipped;
	p->skipped = false;
	budget_flush();
	p->regions_then = regions_version_now();
	p->last_exact = TT_NO_EPOCH;
	if (!capture_cut(t, p, &q, full))
		return TT_NO_EPOCH;
	number = q.epoch.number;
	if (!(q.epoch.flags & TT_EPOCHF_LOOSE))
		p->last_exact = number;
	p->epochs++;
	return number;
}

/* An epoch asked for by tt_epoch or NVTX covers each context with work since its last epoch. */
static bool covers_all(uint32_t trigger)
{
	return trigger == TT_TRIGGER_API || trigger == TT_TRIGGER_NVTX;
}

static unsigned find_others(const struct context *c, uint32_t trigger, struct context **others)
{
	unsigned n = 0;

	if (!covers_all(trigger))
		return 0;
	for (struct context *o = context_first(); o && n < OTHERS; o = o->next) {
		bool news = o != c && o->alive && context_work(o) && !(o->capture && context_work(o) == o->work_captured);
		if (!news)
			continue;
		if (!context_push(o->handle)) {
			session_lost("an epoch lacks a context: the driver did not make it current");
			continue;
		}
		if (is_due(o, trigger))
			others[n++] = o;
		context_pop();
	}
	return n;
}

/* Number of the last submitted call; caller has closed the gate. 0: unknown. */
static uint64_t last_call(void)
{
	return atomic_load(&gate_ahead) ? 0 : session_last_seq();
}

static void cut_all(struct thread *t, struct context *c, struct context **others, unsigned n, const struct tt_epoch *like,
		    bool exact)
{
	cut_epoch(t, c, like, exact);
	for (unsigned i = 0; i < n; i++)
		if (capture_enter(others[i])) {
			cut_epoch(t, others[i], like, exact);
			context_pop();
		}
}

/*
 * Skips the epoch of a context that was captured before, if the budget says so and nothing else is due. Makes no driver
 * call: a program that often waits skips most epochs, and should not notice.
 */
static bool skip(struct thread *t, struct context *c, uint32_t trigger, uint32_t label, uint64_t seq, uint64_t now)
{
	bool skips = false;

	if (!now || covers_all(trigger) || trigger == TT_TRIGGER_FINAL || t->holds)
		return false;
	pthread_mutex_lock(&capture_lock);
	if (session_state == SESSION_ON && c->capture && !capture_is_blocked(c->capture) && is_due(c, trigger) &&
	    !budget_allows(c->capture, trigger, now)) {
		struct tt_epoch like = {
			.trigger = trigger, .seq = seq, .time_ns = now, .label = label, .controls = controls.text};
		budget_skip(c, &like);
		skips = true;
	}
	pthread_mutex_unlock(&capture_lock);
	return skips;
}

void capture_epoch(struct thread *t, struct context *c, uint32_t trigger, uint32_t label, uint64_t seq, bool ahead)
{
	struct context *others[OTHERS];
	bool asked = trigger == TT_TRIGGER_API || trigger == TT_TRIGGER_FINAL;

	if (!asked && !capture_in_window(trigger == TT_TRIGGER_KERNEL_BEFORE))
		return;
	if (atomic_load(&captures_active) || t->busy)
		return; /* a stream capture forbids work of the recorder */
	uint64_t begun = budget_begin();
	if (skip(t, c, trigger, label, seq, begun)) {
		budget_end(begun, BUDGET_OTHER);
		return;
	}
	if (!t->holds && (asked || context_work(c) != c->work_captured))
		python_names_ask();
	struct interrupted was = begin_own(t);
	bool cuts = false;
	settle(t, covers_all(trigger) ? NULL : c, false);
	if (session_state == SESSION_ON && is_due(c, trigger)) {
		unsigned n = find_others(c, trigger, others);
		bool skips = !budget_allows(c->capture, trigger, clock_ns()), exact = !skips && gate_close(GATE_MS);
		struct tt_epoch like = {.trigger = trigger,
					.seq = seq,
					.time_ns = clock_ns(),
					.label = label,
					.controls = controls.text,
					.cut = ahead || skips ? 0 : last_call()};
		if (trigger == TT_TRIGGER_FINAL)
			budget_take_back(c, &like);
		if (skips) {
			budget_skip(c, &like);
			for (unsigned i = 0; i < n; i++)
				budget_skip(others[i], &like);
		} else {
			cut_all(t, c, others, n, &like, exact);
			gate_open();
		}
		cuts = !skips;
	}
	end_own(t, was);
	budget_end(begun, cuts ? BUDGET_EPOCH : BUDGET_OTHER);
}

/* Nothing happened in the context since its last epoch, and that epoch is usable. */
static bool is_as_captured(const struct context *c)
{
	const struct capture *p = c->capture;

	return p->epochs && p->last_exact != TT_NO_EPOCH && context_work(c) == c->work_captured &&
	       p->regions_then == regions_version_now() && !atomic_load(&regions_managed);
}

bool capture_hold(struct thread *t, struct context *c, uint32_t label, uint64_t *seq, uint32_t *before)
{
	*before = TT_NO_EPOCH;
	if (atomic_load(&captures_active) || t->busy)
		return false;
	struct interrupted was = begin_own(t);
	settle(t, c, false);
	bool gate = session_state == SESSION_ON && is_due(c, TT_TRIGGER_KERNEL_BEFORE);
	bool exact = gate && gate_close(GATE_MS);
	*seq = session_next_seq(); /* a thread that waits at the closed gate gets a later number */
	if (exact && is_as_captured(c)) {
		*before = c->capture->last_exact;
	} else if (gate) {
		struct tt_epoch like = {
			.trigger = TT_TRIGGER_KERNEL_BEFORE, .seq = *seq, .time_ns = clock_ns(), .label = label};
		*before = cut_epoch(t, c, &like, exact);
	}
	t->holds = *before != TT_NO_EPOCH;
	if (gate && !t->holds)
		gate_open();
	end_own(t, was);
	t->busy += t->holds; /* nested calls, for example of a tool, must not wait for the gate */
	return t->holds;
}

uint32_t capture_after(struct thread *t, struct context *c, uint32_t label, uint64_t seq)
{
	struct tt_epoch like = {
		.trigger = TT_TRIGGER_KERNEL_AFTER, .seq = seq, .time_ns = clock_ns(), .label = label, .cut = last_call()};
	struct interrupted was = begin_own(t);
	uint32_t number = TT_NO_EPOCH;

	if (session_state == SESSION_ON && !atomic_load(&captures_active) && is_due(c, TT_TRIGGER_KERNEL_AFTER))
		number = cut_epoch(t, c, &like, true);
	end_own(t, was);
	return number;
}

void capture_let_others(struct thread *t)
{
	gate_open();
	t->holds = false;
	t->busy--;
	pthread_mutex_unlock(&capture_lock);
}

/* Caller holds the lock. */
static bool is_settled(const struct context *c)
{
	return !c->capture || c->capture->broken || capture_completes(c->capture, 0);
}

bool capture_settle(struct thread *t, struct context *c)
{
	struct interrupted was = begin_own(t);
	settle(t, c, true);
	bool settled = is_settled(c);
	end_own(t, was);
	return settled;
}

bool capture_have_ended(struct context *c)
{
	bool holds = thread_current()->holds;

	if (!holds && pthread_mutex_trylock(&capture_lock))
		return false;
	bool ended = is_settled(c);
	if (!holds)
		pthread_mutex_unlock(&capture_lock);
	return ended;
}

/*
 * Whether the context has no running work of the program or of the recorder, as far as it may be queried. A free of
 * device memory and the load of a kernel wait for all running work. They never return if that work waits for this
 * thread.
 */
static bool runs_nothing(const struct thread *t, const struct context *c)
{
	const struct capture *p = c->capture;

	for (struct stream *s = atomic_load(&c->streams); s && !atomic_load(&captures_active); s = s->next_of_context)
		if (atomic_load(&s->alive) && (stream_namable(s, t) ? real.cuStreamQuery(s->handle) == CUDA_ERROR_NOT_READY
								    : atomic_load(&s->host_bound)))
			return false;
	return !p || capture_is_idle(p);
}

static bool work_ends(const struct thread *t, const struct context *c)
{
	uint64_t deadline = clock_ns() + options.stall_ms * 1000000ull;

	while (!runs_nothing(t, c)) {
		if (clock_ns() > capture_deadline(deadline, false))
			return false;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	return true;
}

static bool give_back(struct thread *t, struct context *c, struct capture *p)
{
	bool all = p->host_only; /* also frees the kernels: the next epoch loads them again */
	uint64_t expected = 0;

	budget_flush();
	flight_dump(p);
	if (!drain_flush())
		return false;
	bool ended = gate_close(options.stall_ms) && work_ends(t, c);
	if (ended)
		expected = capture_destroy(p);
	gate_open();
	if (!ended) {
		session_warn("the program ran out of device memory: its work did not end, so the recorder kept its own memory");
		return false;
	}
	capture_freed(c, expected);
	c->short_of_memory = true;
	if (session_state == SESSION_ON && !all) {
		session_warn("the program ran out of device memory: the recorder freed its own memory");
		c->capture = capture_create(c, true);
	}
	return true;
}

bool capture_give_back(struct thread *t, struct context *c)
{
	struct interrupted was = begin_own(t);
	settle(t, c, false);
	struct capture *p = c->capture;
	bool gave = p && !p->broken && capture_settled(p) && give_back(t, c, p);

	end_own(t, was);
	return gave;
}

bool capture_control(const char *what, char *why, size_t size)
{
	pthread_mutex_lock(&capture_lock);
	bool ok = controls_set(what, why, size);
	if (ok)
		controls_note();
	pthread_mutex_unlock(&capture_lock);
	return ok;
}

void capture_dump(struct thread *t)
{
	struct interrupted was = begin_own(t);
	settle(t, NULL, false);
	for (struct context *c = context_first(); c; c = c->next) {
		struct capture *p = c->capture;
		if (!c->alive || !p || p->broken || !capture_enter(c))
			continue;
		if (capture_settled(p)) {
			flight_dump(p);
			drain_flush(); /* before anything else moves the ring's tail */
		}
		context_pop();
	}
	end_own(t, was);
}

/* Whether a final epoch can be cut. The first epoch of a context needs calls that may wait for all running work. */
static bool may_end(const struct thread *t, const struct context *c)
{
	if (atomic_load(&session_state) != SESSION_ON)
		return false;
	if (c->capture || !context_work(c))
		return c->capture;
	bool ended = work_ends(t, c);
	if (!ended)
		session_lost(NO_LAST_EPOCH);
	return ended;
}

void capture_end(struct thread *t, struct context *c, bool final_epoch, bool process_ends)
{
	if (final_epoch && (options.epoch.sync || options.epoch.launch) && may_end(t, c))
		capture_epoch(t, c, TT_TRIGGER_FINAL, TT_NO_ID, session_next_seq(), false);
	struct interrupted was = begin_own(t);
	settle(t, c, false);
	struct capture *p = c->capture;
	budget_flush();
	bool settled = p && !p->broken && capture_settled(p);
	if (p && !p->broken)
		flight_dump(p);
	if (p && !p->broken && !settled && process_ends && !session_hurried()) {
		session_lost(NO_LAST_EPOCH);
		session_hurry();
	}
	/* At the end of the process the system frees the memory, and does not wait. */
	bool frees = p && drain_flush() && !p->broken && !session_hurried() && (process_ends || work_ends(t, c)) &&
		     gate_close(GATE_MS) && runs_nothing(t, c);
	if (frees)
		capture_destroy(p);
	else if (p && !process_ends)
		drain_leave(p);
	c->capture = NULL;
	gate_open();
	end_own(t, was);
}

void capture_abandon(struct thread *t, struct context *c)
{
	struct interrupted was = begin_own(t);

	if (c->capture)
		drain_leave(c->capture);
	c->capture = NULL;
	end_own(t, was);
}
