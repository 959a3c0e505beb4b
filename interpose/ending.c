/*
 * exit, _exit, fatal signals and fork.
 *
 * Invariant: the process ends with the status or by the signal it would have ended with. A
 * signal handler only wakes a thread of ours and waits for it, bounded; a program's own
 * disposition, SIG_IGN included, is left as it is.
 */
#include "ending.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "entry/entry.h"
#include "recorder.h"

#define SIGNAL_WAIT_S 5

static const int fatal[] = {SIGTERM, SIGINT, SIGABRT};
static sem_t wake, finished;
static volatile sig_atomic_t caught;
static pid_t owner;

static void at_exit(void)
{
	if (getpid() == owner)
		recorder_finish("complete", NULL);
}

static void *finisher(void *unused)
{
	(void)unused;
	while (sem_wait(&wake))
		continue;
	char reason[40] = "signal ";
	int n = caught;
	reason[7] = (char)('0' + n / 10);
	reason[8] = (char)('0' + n % 10);
	recorder_finish("signal", reason);
	sem_post(&finished);
	return NULL;
}

static void on_signal(int number)
{
	int saved = errno;
	struct timespec until;

	if (!caught && getpid() == owner) {
		caught = number;
		sem_post(&wake);
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec += SIGNAL_WAIT_S;
		while (sem_timedwait(&finished, &until) && errno == EINTR)
			continue;
	}
	signal(number, SIG_DFL);
	errno = saved;
	raise(number);
}

static void in_child(void)
{
	recorder_forget();
}

void ending_watch(void)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;

	owner = getpid();
	sem_init(&wake, 0, 0);
	sem_init(&finished, 0, 0);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 256 << 10);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	if (!pthread_create(&thread, &attributes, finisher, NULL)) {
		pthread_setname_np(thread, "tt-ending");
		for (unsigned i = 0; i < sizeof(fatal) / sizeof(*fatal); i++) {
			struct sigaction action;
			if (!sigaction(fatal[i], NULL, &action) && action.sa_handler == SIG_DFL) {
				action = (struct sigaction){.sa_handler = on_signal, .sa_flags = SA_RESTART};
				sigaction(fatal[i], &action, NULL);
			}
		}
	}
	pthread_attr_destroy(&attributes);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	atexit(at_exit);
	pthread_atfork(NULL, NULL, in_child);
}

EXPORT __attribute__((noreturn)) void _exit(int status)
{
	if (owner && getpid() == owner)
		recorder_finish("complete", NULL);
	for (;;)
		syscall(SYS_exit_group, status);
}

EXPORT __attribute__((noreturn)) void _Exit(int status)
{
	_exit(status);
}
