/*
 * The engine: which submitted operation runs next, and in which thread.
 *
 * Invariants: an operation runs after all its dependencies, never before its submission, and one at a
 * time. (Host functions have their own thread, so that one that waits for the program does not block
 * others. In random order a kernel may run in parts, with others between them.) Work stays pending until a
 * call waits or asks for it, the queue is too long, or the program is silent for a while. So what a
 * program may not rely on usually has not happened.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "sim/driver/driver.h"

#define QUEUE_LIMIT 1024     /* operations that may be pending */
#define SILENCE_NS 10000000  /* silence after which the worker runs them */
#define POLL_NS 100000       /* interval of tests of memory that a stream waits for */
#define PART_BLOCKS 4        /* fewest blocks in each part of a kernel */
#define LOOK_NS 2000000      /* time that a query may take: it does not wait for longer work */

static bool busy; /* an operation runs */
static bool paused; /* a kernel that has begun lets others run */
static struct op_list ready = TAILQ_HEAD_INITIALIZER(ready); /* by seq */
static struct op_list host_queue = TAILQ_HEAD_INITIALIZER(host_queue);
static unsigned unfinished; /* operations */
static unsigned for_worker; /* of these, kernels for the worker: they begin at once */
static uint64_t last_seq, submitted_ns, launches, random_state;
static uint64_t looks, looked; /* operations that the worker ran because a call asked for them */
static bool threads_started;
static __thread bool is_worker;
static pthread_cond_t change, worker_wake, host_wake;

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void wait_until(pthread_cond_t *condition, uint64_t ns)
{
	struct timespec until = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};

	pthread_cond_timedwait(condition, &sim_mutex, &until);
}

/* ---- operations ---- */

struct sim_op *op_new(CUcontext ctx, struct sim_work *work)
{
	struct sim_op *op = sim_alloc(sizeof *op);

	op->refs = 1;
	op->ctx = ctx;
	op->work = work;
	return op;
}

struct sim_op *op_ref(struct sim_op *op)
{
	op->refs++;
	return op;
}

void op_unref(struct sim_op *op)
{
	if (!op || --op->refs)
		return;
	work_unref(op->work);
	free(op->dependents);
	free(op);
}

void op_after(struct sim_op *op, struct sim_op *earlier)
{
	if (!earlier || earlier->done)
		return;
	if (earlier->dependent_count == earlier->dependent_room) {
		earlier->dependent_room = earlier->dependent_room ? earlier->dependent_room * 2 : 4;
		earlier->dependents = realloc(earlier->dependents, earlier->dependent_room * sizeof *earlier->dependents);
		if (!earlier->dependents)
			abort();
	}
	earlier->dependents[earlier->dependent_count++] = op;
	op->blockers++;
}

static void make_ready(struct sim_op *op)
{
	struct sim_op *before = TAILQ_LAST(&ready, op_list);

	while (before && before->seq > op->seq)
		before = TAILQ_PREV(before, op_list, ready);
	if (before)
		TAILQ_INSERT_AFTER(&ready, before, op, ready);
	else
		TAILQ_INSERT_HEAD(&ready, op, ready);
}

/* Kernels that may wait for a thread to look at memory: no thread runs them that waits for something itself. */
static bool needs_worker(const struct sim_op *op)
{
	return op->work->type == WORK_KERNEL && (op->work->kernel.trace || sim_settings.deadlocks);
}

static void finish(struct sim_op *op)
{
	for_worker -= needs_worker(op);
	op->done = true;
	op->finished_ns = now_ns();
	TAILQ_REMOVE(&op->ctx->pending, op, pending);
	op->ctx->pending_count--;
	unfinished--;
	for (unsigned i = 0; i < op->dependent_count; i++) {
		if (--op->dependents[i]->blockers == 0)
			make_ready(op->dependents[i]);
	}
	op->dependent_count = 0;
	work_unref(op->work);
	op->work = NULL;
	op_unref(op);
	pthread_cond_broadcast(&change);
}

/* ---- running ---- */

/* What copies memory, and the order of that. */
static bool runs_beside_kernels(enum work_type type)
{
	return type == WORK_COPY || type == WORK_FILL || type == WORK_MEMOPS || type == WORK_RECORD ||
	       type == WORK_WAIT_EVENT || type == WORK_NOTHING;
}

static bool can_run(struct sim_op *op)
{
	if ((paused && !runs_beside_kernels(op->work->type)) || (needs_worker(op) && !is_worker))
		return false;
	return op->ctx->fault || op->work->type != WORK_MEMOPS || !memops_blocked(op->work, op->step);
}

static struct sim_op *choose(void)
{
	struct sim_op *op;
	unsigned count = 0, pick;

	if (!sim_settings.random_order) {
		TAILQ_FOREACH(op, &ready, ready)
		{
			if (can_run(op))
				return op;
		}
		return NULL;
	}
	TAILQ_FOREACH(op, &ready, ready)
	count += can_run(op);
	if (!count)
		return NULL;
	pick = (unsigned)(sim_mix(sim_settings.seed ^ ++random_state) % count);
	TAILQ_FOREACH(op, &ready, ready)
	{
		/* Memory may have changed since the count: run the last one that can. */
		if (can_run(op) && pick-- == 0)
			return op;
	}
	return NULL;
}

static void fail(struct sim_op *op, CUresult result, const char *why)
{
	const char *name;

	cuGetErrorName(result, &name);
	sim_note("%s: %s", name, why);
	context_fault(op->ctx, result);
}

/* True when there is nothing left to do for it. */
static bool advance(struct sim_op *op)
{
	CUresult result = CUDA_SUCCESS;
	bool all = memops_advance(op->work, &op->step, &result);

	if (result)
		fail(op, result, "stream memory operation on memory that is gone");
	return all || result;
}

/*
 * In random order the blocks of a kernel do not all run at once: other kernels see the results of some
 * blocks only. As many as fit on the device run together.
 */
static struct work_part next_part(const struct sim_op *op)
{
	const struct sim_work *w = op->work;
	struct work_part part = {.first = op->blocks};

	if (!sim_settings.random_order)
		return part;
	part.schedule_seed = sim_mix(sim_settings.seed + op->seq) | 1;
	if (w->type != WORK_KERNEL || w->kernel.cooperative)
		return part;
	uint64_t blocks = (uint64_t)w->kernel.grid[0] * w->kernel.grid[1] * w->kernel.grid[2], cluster = 1;
	uint64_t least = blocks / 4 < PART_BLOCKS ? PART_BLOCKS : blocks / 4;
	uint64_t count = least + sim_mix(part.schedule_seed + op->blocks) % (blocks / 2 + 1);
	for (unsigned i = 0; i < 3; i++) /* whole clusters */
		cluster *= w->kernel.cluster[i] ? w->kernel.cluster[i] : 1;
	count += (cluster - count % cluster) % cluster;
	if (op->blocks + count < blocks)
		part.count = count;
	return part;
}

/* False: some of its blocks are still to run. */
static bool run(struct sim_op *op)
{
	struct work_part part = next_part(op);
	char why[512] = "";
	CUresult result;

	if (!op->begin_ns)
		op->begin_ns = trace_now();
	busy = true;
	pthread_mutex_unlock(&sim_mutex);
	if (op->fails) {
		result = CUDA_ERROR_LAUNCH_FAILED;
		snprintf(why, sizeof why, "launch made to fail by TT_SIM_FAULT");
	} else {
		result = work_run(op->work, &part, why, sizeof why);
	}
	pthread_mutex_lock(&sim_mutex);
	busy = false;
	op->blocks += part.count;
	if (part.count && !result)
		return false;
	trace_ran(op, op->begin_ns);
	if (result)
		fail(op, result, why);
	return true;
}

bool op_step(void)
{
	if (busy)
		return false;
	if (!paused)
		pool_bury();
	struct sim_op *op = choose();
	if (!op)
		return false;
	TAILQ_REMOVE(&ready, op, ready);
	switch (op->work->type) {
	case WORK_CALLBACK:
		TAILQ_INSERT_TAIL(&host_queue, op, ready);
		pthread_cond_signal(&host_wake);
		return true;
	case WORK_HOST:
		if (op->ctx->fault)
			break;
		TAILQ_INSERT_TAIL(&host_queue, op, ready);
		pthread_cond_signal(&host_wake);
		return true;
	case WORK_NOTHING:
	case WORK_RECORD:
	case WORK_WAIT_EVENT:
		break;
	case WORK_CONDITION:
		if (!op->ctx->fault)
			exec_condition(op);
		break;
	case WORK_POOL_ALLOC:
		pool_alloc_run(op->work);
		break;
	case WORK_POOL_FREE:
		pool_free_run(op->work);
		break;
	case WORK_MEMOPS:
		if (!op->ctx->fault && !advance(op)) {
			make_ready(op);
			return true;
		}
		break;
	default:
		if (!op->ctx->fault && !run(op)) {
			make_ready(op);
			pthread_cond_broadcast(&change);
			return true;
		}
	}
	finish(op);
	return true;
}

static bool waits_for_memory(void)
{
	return !busy && !TAILQ_EMPTY(&ready);
}

void engine_wait(bool (*finished)(void *), void *argument)
{
	while (!finished(argument)) {
		if (op_step())
			continue;
		if (waits_for_memory())
			wait_until(&change, now_ns() + POLL_NS);
		else
			pthread_cond_wait(&change, &sim_mutex);
	}
}

static bool op_done(void *op)
{
	return ((struct sim_op *)op)->done;
}

void op_wait(struct sim_op *op)
{
	op_ref(op);
	engine_wait(op_done, op);
	op_unref(op);
}

void op_look(struct sim_op *op)
{
	uint64_t until = now_ns() + LOOK_NS;

	if (op->done || busy)
		return;
	uint64_t look = ++looks;
	pthread_cond_signal(&worker_wake);
	op_ref(op);
	while (!op->done && looked < look && now_ns() < until)
		wait_until(&change, until);
	op_unref(op);
}

void engine_quiesce(void)
{
	while (busy || paused)
		pthread_cond_wait(&change, &sim_mutex);
}

void engine_pause(bool wait)
{
	pthread_mutex_lock(&sim_mutex);
	busy = false;
	paused = true;
	pthread_cond_broadcast(&change);
	while (op_step())
		;
	if (wait)
		wait_until(&change, now_ns() + POLL_NS);
	while (busy)
		pthread_cond_wait(&change, &sim_mutex);
	busy = true;
	paused = false;
	pthread_mutex_unlock(&sim_mutex);
}

void engine_relieve(void)
{
	while (unfinished > QUEUE_LIMIT && op_step())
		;
}

/* ---- threads ---- */

static void *worker(void *unused)
{
	(void)unused;
	is_worker = true;
	pthread_mutex_lock(&sim_mutex);
	while (sim_life() == CUDA_SUCCESS) {
		uint64_t due = submitted_ns + SILENCE_NS;
		if (looked < looks) {
			op_step();
			looked++;
			pthread_cond_broadcast(&change);
		} else if (!unfinished)
			pthread_cond_wait(&worker_wake, &sim_mutex);
		else if (now_ns() < due && !for_worker)
			wait_until(&worker_wake, due);
		else if (!op_step())
			wait_until(&worker_wake, now_ns() + POLL_NS * 5);
	}
	pthread_mutex_unlock(&sim_mutex);
	return NULL;
}

static void *host_caller(void *unused)
{
	(void)unused;
	sim_thread()->in_host_function = true;
	pthread_mutex_lock(&sim_mutex);
	for (;;) {
		struct sim_op *op = TAILQ_FIRST(&host_queue);
		if (!op) {
			pthread_cond_wait(&host_wake, &sim_mutex);
			continue;
		}
		TAILQ_REMOVE(&host_queue, op, ready);
		const struct sim_work *w = op->work;
		CUresult fault = op->ctx ? op->ctx->fault : CUDA_SUCCESS;
		pthread_mutex_unlock(&sim_mutex);
		if (w->type == WORK_HOST)
			w->host.function(w->host.data);
		else
			w->callback.function(w->callback.stream, fault, w->callback.data);
		pthread_mutex_lock(&sim_mutex);
		if (op->ctx)
			finish(op);
		else
			op_unref(op);
	}
	return NULL;
}

static void start_thread(void *(*body)(void *))
{
	pthread_attr_t attributes;
	pthread_t thread;
	sigset_t every, before;

	/* The program's signals are handled by its own threads. */
	sigfillset(&every);
	pthread_sigmask(SIG_SETMASK, &every, &before);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	if (pthread_create(&thread, &attributes, body, NULL)) {
		sim_note("no thread to run work on");
		abort();
	}
	pthread_attr_destroy(&attributes);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void start_threads(void)
{
	pthread_condattr_t attributes;

	threads_started = true;
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&change, &attributes);
	pthread_cond_init(&worker_wake, &attributes);
	pthread_cond_init(&host_wake, &attributes);
	pthread_condattr_destroy(&attributes);
	start_thread(worker);
	start_thread(host_caller);
}

void engine_call_host(struct sim_work *work)
{
	struct sim_op *op = op_new(NULL, work);

	if (!threads_started)
		start_threads();
	TAILQ_INSERT_TAIL(&host_queue, op, ready);
	pthread_cond_signal(&host_wake);
}

void op_submit(struct sim_op *op)
{
	if (!threads_started)
		start_threads();
	op->seq = ++last_seq;
	op->correlation = trace_submitted();
	op->fails = op->work->type == WORK_KERNEL && ++launches == sim_settings.fail_launch;
	TAILQ_INSERT_TAIL(&op->ctx->pending, op, pending);
	op->ctx->pending_count++;
	op_ref(op);
	submitted_ns = now_ns();
	for_worker += needs_worker(op);
	if (!unfinished++ || needs_worker(op))
		pthread_cond_signal(&worker_wake);
	if (!op->blockers)
		make_ready(op);
}
