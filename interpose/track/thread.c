/*
 * Threads and the gate. See thread.h for the invariant.
 */
#include "track/thread.h"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "util/clock.h"
#include "track/streams.h"

#define DESTRUCTOR_ROUNDS 3 /* thread destructors run in a few rounds; later ones might not call ours */

__thread struct thread thread_self;

static struct {
	TAILQ_HEAD(, thread) list; /* threads that make calls */
	pthread_mutex_t lock;
	pthread_key_t at_exit;
	pthread_once_t once;
} threads = {TAILQ_HEAD_INITIALIZER(threads.list), PTHREAD_MUTEX_INITIALIZER, .once = PTHREAD_ONCE_INIT};

HOT_DATA _Atomic int gate_closed;
_Atomic int gate_ahead;
HOT_DATA bool gate_fenced;

static void unregister(void *value)
{
	struct thread *t = value;

	if (!t->registered)
		return; /* in a forked child */
	pthread_mutex_lock(&threads.lock);
	TAILQ_REMOVE(&threads.list, t, link);
	t->registered = false;
	t->destructor_runs++;
	pthread_mutex_unlock(&threads.lock);
	streams_thread_ended(t);
}

static void make_key(void)
{
	pthread_key_create(&threads.at_exit, unregister);
}

void thread_register(struct thread *t)
{
	pthread_once(&threads.once, make_key);
	t->tid = (uint32_t)syscall(SYS_gettid);
	if (t->destructor_runs == DESTRUCTOR_ROUNDS || pthread_setspecific(threads.at_exit, t)) {
		t->registered = true; /* its destructor cannot run: its calls continue outside the gate */
		return;
	}
	pthread_mutex_lock(&threads.lock);
	TAILQ_INSERT_TAIL(&threads.list, t, link);
	t->registered = true;
	pthread_mutex_unlock(&threads.lock);
}

void gate_init(void)
{
	gate_fenced = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) != 0;
}

void gate_wait(void)
{
	while (atomic_load_explicit(&gate_closed, memory_order_acquire)) {
		struct timespec timeout = {.tv_nsec = 1000000};
		syscall(SYS_futex, &gate_closed, FUTEX_WAIT_PRIVATE, 1, &timeout, NULL, 0);
	}
}

static bool anyone_inside(void)
{
	bool inside = false;

	pthread_mutex_lock(&threads.lock);
	for (struct thread *t = TAILQ_FIRST(&threads.list); t && !inside; t = TAILQ_NEXT(t, link))
		inside = atomic_load_explicit(&t->inside, memory_order_acquire);
	pthread_mutex_unlock(&threads.lock);
	return inside;
}

bool gate_close(unsigned timeout_ms)
{
	uint64_t deadline = 0;

	atomic_store(&gate_closed, 1);
	if (!gate_fenced)
		syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
	for (unsigned spin = 0; anyone_inside(); spin++) {
		if (spin < 100)
			continue;
		uint64_t now = clock_ns();
		if (!deadline)
			deadline = now + timeout_ms * 1000000ull;
		if (now > deadline)
			return false;
		nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
	}
	return true;
}

void gate_open(void)
{
	atomic_store(&gate_closed, 0);
	syscall(SYS_futex, &gate_closed, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

void threads_in_calls(void (*visit)(uint32_t tid, uint32_t call, uint32_t stack, void *to), void *to)
{
	if (!lock_within(&threads.lock, 20))
		return;
	for (struct thread *t = TAILQ_FIRST(&threads.list); t; t = TAILQ_NEXT(t, link))
		if (thread_in_call(t))
			visit(t->tid, atomic_load_explicit(&t->call, memory_order_relaxed),
			      atomic_load_explicit(&t->waits_at, memory_order_relaxed), to);
	pthread_mutex_unlock(&threads.lock);
}

void thread_forget_all(void)
{
	pthread_mutex_init(&threads.lock, NULL);
	TAILQ_INIT(&threads.list);
	thread_self = (struct thread){0};
	atomic_store(&gate_closed, 0);
	atomic_store(&gate_ahead, 0);
}
