/*
 * Signals and the time limit. See signals.h for the invariant.
 */
#include "lifecycle/signals.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "driver/driver.h"
#include "track/thread.h"
#include "util/recorder_thread.h"

#define WAIT_MS 5000
#define FAULT_WAIT_MS 2000 /* the fault may have happened under a lock that the finish needs */
#define GRACE_S 10         /* until a process that SIGTERM does not end is killed */

typedef int sigaction_fn(int, const struct sigaction *, struct sigaction *);
typedef sighandler_t signal_fn(int, sighandler_t);

/* These end the process if their disposition is SIG_DFL. */
#define FATAL(name) {name, #name}
static const struct {
	int number;
	const char *name;
} fatal[] = {
	FATAL(SIGHUP), FATAL(SIGINT), FATAL(SIGQUIT), FATAL(SIGILL),  FATAL(SIGABRT),
	FATAL(SIGBUS), FATAL(SIGFPE), FATAL(SIGSEGV), FATAL(SIGTERM), FATAL(SIGXCPU),
};

static struct {
	sigaction_fn *next_sigaction;
	struct sigaction theirs[NSIG]; /* valid while the recorder's is installed; the handler is SIG_DFL */
	void (*finish)(int), (*give_up)(void);
	struct timespec began, time_limit; /* of CLOCK_MONOTONIC; 0: none */
	_Atomic bool expired;       /* another limit has */
	_Atomic bool too_late;      /* the time limit has passed and ends the process */
	sem_t wake_finisher;
	_Atomic uint32_t wake_watchdog; /* a futex: sem_clockwait is newer than the oldest supported glibc */
	_Atomic int caught;
	_Atomic bool finished;
	_Atomic pid_t owner; /* 0: not watching */
} signals;

UNWATCHED static void *next(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

/* A forked child may not look up symbols. */
__attribute__((constructor)) static void find_next(void)
{
	signals.next_sigaction = (sigaction_fn *)next("sigaction");
	clock_gettime(CLOCK_MONOTONIC, &signals.began);
}

UNWATCHED static int real_sigaction(int number, const struct sigaction *act, struct sigaction *old)
{
	if (unlikely(!signals.next_sigaction))
		signals.next_sigaction = (sigaction_fn *)next("sigaction");
	return signals.next_sigaction(number, act, old);
}

static void wake_watchdog(void)
{
	atomic_store(&signals.wake_watchdog, 1);
	syscall(SYS_futex, &signals.wake_watchdog, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* False: the time limit has passed. */
static bool watchdog_is_woken(void)
{
	const struct timespec *limit = signals.time_limit.tv_sec ? &signals.time_limit : NULL;
	long failed = 0;

	while (!atomic_load(&signals.wake_watchdog) && !(failed && errno == ETIMEDOUT))
		failed = syscall(SYS_futex, &signals.wake_watchdog, FUTEX_WAIT_BITSET_PRIVATE, 0, limit, NULL,
				 FUTEX_BITSET_MATCH_ANY);
	return atomic_load(&signals.wake_watchdog);
}

static void wait_for_finish(int ms)
{
	for (; ms && !signals.finished; ms--)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/*
 * The thread waits here until the recording is finished, because the program must not go on after a signal that
 * ends it. Inside a driver call, it returns first and continues to a point where it has no lock that the finish
 * needs. To the program, the signal came slightly later.
 */
static void on_signal(int number, siginfo_t *info, void *unused)
{
	bool fault = info->si_code > 0 && (number == SIGSEGV || number == SIGBUS || number == SIGFPE || number == SIGILL);
	bool aborts = number == SIGABRT && info->si_pid == getpid(); /* abort ends the process when this returns */
	int saved = errno, nothing = 0;

	(void)unused;
	if (getpid() == signals.owner) {
		if (atomic_compare_exchange_strong(&signals.caught, &nothing, number)) {
			sem_post(&signals.wake_finisher);
			wake_watchdog();
		}
		if (!fault && !aborts && thread_in_call(&thread_self)) {
			errno = saved;
			return;
		}
		wait_for_finish(fault || thread_in_call(&thread_self) ? FAULT_WAIT_MS : WAIT_MS);
	}
	real_sigaction(number, &signals.theirs[number], NULL);
	errno = saved;
	if (!fault) /* a fault repeats with its own registers and code */
		raise(number);
}

static bool is_ours(const struct sigaction *a)
{
	return (a->sa_flags & SA_SIGINFO) && a->sa_sigaction == on_signal;
}

/* Runs the program's own handler of the signal, if there is one. */
static void end_process(int number)
{
	struct sigaction now;

	if (!real_sigaction(number, NULL, &now) && is_ours(&now))
		real_sigaction(number, &signals.theirs[number], NULL);
	kill(getpid(), number);
}

static void *finisher(void *unused)
{
	(void)unused;
	while (sem_wait(&signals.wake_finisher))
		continue;
	signals.finish(signals.too_late ? 0 : signals.caught);
	signals.finished = true;
	return NULL;
}

/* Ends the process if no thread waits to do it, or if the finish hangs. */
static void *watchdog(void *unused)
{
	int nothing = 0;

	(void)unused;
	if (!watchdog_is_woken() || signals.expired) {
		signals.too_late = true;
		if (atomic_compare_exchange_strong(&signals.caught, &nothing, SIGTERM))
			sem_post(&signals.wake_finisher);
		else
			signals.too_late = false;
	}
	wait_for_finish(WAIT_MS);
	if (!signals.finished)
		signals.give_up();
	end_process(signals.caught);
	if (signals.too_late) {
		nanosleep(&(struct timespec){.tv_sec = GRACE_S}, NULL);
		kill(getpid(), SIGKILL);
	}
	return NULL;
}

UNWATCHED static bool is_fatal(int number)
{
	for (unsigned i = 0; i < sizeof(fatal) / sizeof(*fatal); i++)
		if (fatal[i].number == number)
			return true;
	return false;
}

/* Installs the handler if the disposition is SIG_DFL. */
static void take(int number)
{
	struct sigaction now, ours = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};

	if (real_sigaction(number, NULL, &now) || is_ours(&now) || now.sa_handler != SIG_DFL)
		return;
	signals.theirs[number] = now;
	real_sigaction(number, &ours, NULL);
}

void signals_expire(void)
{
	if (!atomic_exchange(&signals.expired, true))
		wake_watchdog();
}

/* The limit counts from the start of the program. */
static void set_time_limit(uint64_t ms)
{
	signals.time_limit = (struct timespec){0};
	if (!ms)
		return;
	signals.time_limit.tv_sec = signals.began.tv_sec + (time_t)(ms / 1000);
	signals.time_limit.tv_nsec = signals.began.tv_nsec + (long)(ms % 1000) * 1000000;
	if (signals.time_limit.tv_nsec >= 1000000000) {
		signals.time_limit.tv_sec++;
		signals.time_limit.tv_nsec -= 1000000000;
	}
}

bool signals_watch(void (*with)(int number), void (*without)(void), uint64_t limit_ms)
{
	signals.finish = with;
	signals.give_up = without;
	set_time_limit(limit_ms);
	sem_init(&signals.wake_finisher, 0, 0);
	signals.wake_watchdog = 0;
	if (recorder_thread(NULL, "tt-ending", 256 << 10, finisher, NULL) ||
	    recorder_thread(NULL, "tt-watchdog", 256 << 10, watchdog, NULL))
		return false;
	signals.owner = getpid();
	for (unsigned i = 0; i < sizeof(fatal) / sizeof(*fatal); i++)
		take(fatal[i].number);
	return true;
}

void signals_forget(void)
{
	struct sigaction now;

	signals.owner = 0;
	for (unsigned i = 0; i < sizeof(fatal) / sizeof(*fatal); i++)
		if (!real_sigaction(fatal[i].number, NULL, &now) && is_ours(&now))
			real_sigaction(fatal[i].number, &signals.theirs[fatal[i].number], NULL);
}

const char *signals_name(int number)
{
	for (unsigned i = 0; i < sizeof(fatal) / sizeof(*fatal); i++)
		if (fatal[i].number == number)
			return fatal[i].name;
	return NULL;
}

/* ---- wrappers ---- */

/* False in a child that shares memory with its parent until it execs. */
UNWATCHED static bool watches(int number)
{
	return unlikely(signals.owner) && is_fatal(number) && getpid() == signals.owner;
}

UNWATCHED EXPORT int sigaction(int number, const struct sigaction *restrict act, struct sigaction *restrict old)
{
	struct sigaction before, was;
	bool to_default = act && act->sa_handler == SIG_DFL;

	if (!watches(number))
		return real_sigaction(number, act, old);
	was = signals.theirs[number];
	int result = real_sigaction(number, to_default ? NULL : act, &before);
	if (!result && to_default && is_ours(&before)) {
		signals.theirs[number] = *act;
	} else if (!result && to_default) {
		result = real_sigaction(number, act, &before);
		take(number);
	}
	if (!result && old)
		*old = is_ours(&before) ? was : before;
	return result;
}

static sighandler_t set_handler(const char *name, signal_fn **real_signal, int number, sighandler_t handler)
{
	if (unlikely(!*real_signal))
		*real_signal = (signal_fn *)next(name);
	sighandler_t before = (*real_signal)(number, handler);

	if (before != SIG_ERR && watches(number)) {
		if ((void *)before == (void *)on_signal)
			before = SIG_DFL;
		take(number);
	}
	return before;
}

#define SETS_HANDLER(name) \
	EXPORT sighandler_t name(int number, sighandler_t handler); \
	sighandler_t name(int number, sighandler_t handler) \
	{ \
		static signal_fn *real_##name; \
		return set_handler(#name, &real_##name, number, handler); \
	}
SETS_HANDLER(signal)
SETS_HANDLER(bsd_signal)
SETS_HANDLER(ssignal)
SETS_HANDLER(sysv_signal)
SETS_HANDLER(__sysv_signal)
SETS_HANDLER(sigset)
