/*
 * Wrappers of exit, quick_exit, _exit, exec and fork. signals.c has signals.
 *
 * Invariant: the exit status of the process does not change. If an exec is known to fail, the recording goes on.
 */
#include "lifecycle/exit_hooks.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "capture/capture.h"
#include "driver/driver.h"
#include "lifecycle/crash_report.h"
#include "lifecycle/hang_watch.h"
#include "lifecycle/inflight.h"
#include "options/options.h"
#include "lifecycle/recorder.h"
#include "session/session.h"
#include "lifecycle/signals.h"

static pid_t owner;

static void finish(void)
{
	if (owner && getpid() == owner)
		recorder_finish("complete", NULL);
}

/* number: 0 if a limit has passed. */
static void finish_by_signal(int number)
{
	const char *name = signals_name(number);
	char reason[240], what[260];

	if (number)
		snprintf(reason, sizeof(reason), "signal %d", number);
	else if (!hang_found(reason, sizeof(reason)))
		snprintf(reason, sizeof(reason), "its time limit of %.10g s", (double)options.timeout_ms / 1e3);
	if (name)
		snprintf(what, sizeof(what), "%s (%s)", reason, name);
	else
		snprintf(what, sizeof(what), "%s", reason);
	session_hurry();
	crash_report_ending(what, reason, !number);
	recorder_finish(number ? "signal" : "timeout", reason);
	crash_report_ended();
}

static void in_child(void)
{
	signals_forget();
	recorder_forget();
}

void ending_watch(void)
{
	owner = getpid();
	inflight_open(); /* without it, reports use only recorded calls */
	if (!signals_watch(finish_by_signal, crash_report_ended, options.timeout_ms))
		session_warn("cannot start the signal thread: a signal that ends the process leaves the run unfinished");
	hang_watch_open();
	atexit(finish);
	at_quick_exit(finish);
	pthread_atfork(NULL, NULL, in_child);
}

EXPORT __attribute__((noreturn)) void _exit(int status)
{
	finish();
	for (;;)
		syscall(SYS_exit_group, status);
}

EXPORT __attribute__((noreturn)) void _Exit(int status)
{
	_exit(status);
}

/* ---- exec ---- */

/* Whether the system can execute this file. */
static bool runs(int directory, const char *path, int flags)
{
	char head[4] = "";
	struct stat s;

	if (fstatat(directory, path, &s, flags) || (!S_ISREG(s.st_mode) && !S_ISLNK(s.st_mode)) ||
	    faccessat(directory, path, X_OK, AT_EACCESS | flags))
		return false;
	int file = flags & AT_EMPTY_PATH ? -1 : openat(directory, path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return true; /* executable but not readable */
	ssize_t got = read(file, head, sizeof(head));
	close(file);
	return got >= 2 && (!memcmp(head, "#!", 2) || !memcmp(head, "\177ELF", 4));
}

static bool found_in_path(const char *name)
{
	const char *path = getenv("PATH");
	char candidate[4096];

	if (strchr(name, '/'))
		return runs(AT_FDCWD, name, 0);
	for (const char *at = path ? path : "/bin:/usr/bin"; at; at = strchr(at, ':') ? strchr(at, ':') + 1 : NULL) {
		int n = (int)strcspn(at, ":");
		if (snprintf(candidate, sizeof(candidate), "%.*s%s%s", n, at, n ? "/" : "", name) < (int)sizeof(candidate) &&
		    runs(AT_FDCWD, candidate, 0))
			return true;
	}
	return false;
}

static bool watching(void)
{
	return owner && getpid() == owner && session_state == SESSION_ON;
}

/* An exec failed although it was expected to succeed. */
static int returned(int result, bool finished)
{
	if (finished)
		session_warn("recording ended before an exec, which failed");
	return result;
}

static bool leave(bool succeeds)
{
	if (succeeds)
		finish();
	return succeeds;
}

/* Looked up early: a forked child, which execs, may not look up symbols. */
static struct {
	__typeof__(&execve) execve;
	__typeof__(&execvpe) execvpe;
	__typeof__(&fexecve) fexecve;
} next;

__attribute__((constructor)) static void find_next(void)
{
	next.execve = (__typeof__(next.execve))dlsym(RTLD_NEXT, "execve");
	next.execvpe = (__typeof__(next.execvpe))dlsym(RTLD_NEXT, "execvpe");
	next.fexecve = (__typeof__(next.fexecve))dlsym(RTLD_NEXT, "fexecve");
}

/* Another library's constructor may run before find_next. */
#define NEXT(name) (likely(next.name != NULL) ? next.name : (find_next(), next.name))
EXPORT int execve(const char *path, char *const argv[], char *const envp[])
{
	bool finished = watching() && leave(runs(AT_FDCWD, path, 0));

	return returned(NEXT(execve)(path, argv, envp), finished);
}

EXPORT int execv(const char *path, char *const argv[])
{
	return execve(path, argv, environ);
}

EXPORT int execvpe(const char *name, char *const argv[], char *const envp[])
{
	bool finished = watching() && leave(found_in_path(name));

	return returned(NEXT(execvpe)(name, argv, envp), finished);
}

EXPORT int execvp(const char *name, char *const argv[])
{
	return execvpe(name, argv, environ);
}

EXPORT int fexecve(int file, char *const argv[], char *const envp[])
{
	bool finished = watching() && leave(runs(file, "", AT_EMPTY_PATH));

	return returned(NEXT(fexecve)(file, argv, envp), finished);
}

/* The arguments from `first` to their NULL, as an array on the caller's stack. */
#define GATHER(argv, first, last) \
	va_list last; \
	size_t count = 1; \
	va_start(last, first); \
	while (va_arg(last, char *)) \
		count++; \
	va_end(last); \
	char *argv[count + 1]; \
	argv[0] = (char *)first; \
	va_start(last, first); \
	for (size_t i = 1; i <= count; i++) \
	argv[i] = va_arg(last, char *)

EXPORT int execl(const char *path, const char *first, ...)
{
	GATHER(argv, first, more);
	va_end(more);
	return execve(path, argv, environ);
}

EXPORT int execlp(const char *name, const char *first, ...)
{
	GATHER(argv, first, more);
	va_end(more);
	return execvpe(name, argv, environ);
}

EXPORT int execle(const char *path, const char *first, ...)
{
	GATHER(argv, first, more);
	char *const *envp = va_arg(more, char *const *);
	va_end(more);
	return execve(path, argv, envp);
}
