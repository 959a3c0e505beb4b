/*
 * State that all parts of the recording share. See session.h for the invariant.
 */
#include "session/session.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "options/options.h"
#include "util/clock.h"
#include "util/json_writer.h"

#define WARNINGS 32

HOT_DATA _Atomic int session_state;
struct session_counters session_counters;
struct session_seq session_seq;
struct session_listeners session_listeners;

static struct {
	store *_Atomic run;
	_Atomic uint32_t next_epoch;
	_Atomic uint64_t hurry_since; /* 0: not yet */
	struct stat error_output;     /* stderr when the program started */
	pthread_mutex_t lock;         /* guards the following members */
	char warnings[WARNINGS][256];
	unsigned warning_count;
	uint64_t of_losses; /* bit i: warning i is a loss */
	char failure[256];  /* never changes once it is set */
	_Atomic bool has_failed;
	struct session_ring ring;
} session = {.lock = PTHREAD_MUTEX_INITIALIZER};
_Static_assert(WARNINGS <= 64, "a bit for each");

/* ---- messages ---- */

void session_take_stderr(void)
{
	if (fstat(STDERR_FILENO, &session.error_output))
		session.error_output.st_ino = 0;
}

/* The program may have closed the descriptor and opened its own file with the number. */
static bool has_error_output(void)
{
	struct stat now;

	return session.error_output.st_ino && !fstat(STDERR_FILENO, &now) && now.st_dev == session.error_output.st_dev &&
	       now.st_ino == session.error_output.st_ino;
}

void session_say(const char *lines, size_t size)
{
	if (has_error_output() && write(STDERR_FILENO, lines, size) < 0)
		return; /* a program without stderr gets no message */
}

static void say(const char *text)
{
	char line[320];
	int n = snprintf(line, sizeof(line), "ttanalyze: %s\n", text);

	session_say(line, (size_t)n);
}

static void warn(bool lost, const char *format, va_list args)
{
	char text[256];
	bool fresh = true;

	if (session_hurried())
		return; /* the first failure explains the later ones */
	vsnprintf(text, sizeof(text), format, args);
	pthread_mutex_lock(&session.lock);
	for (unsigned i = 0; i < session.warning_count; i++)
		fresh &= strcmp(session.warnings[i], text) != 0;
	fresh &= session.warning_count < WARNINGS;
	if (fresh) {
		session.of_losses |= (uint64_t)lost << session.warning_count;
		strcpy(session.warnings[session.warning_count++], text);
	}
	pthread_mutex_unlock(&session.lock);
	if (fresh)
		say(text);
}

void session_warn(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	warn(false, format, args);
	va_end(args);
}

void session_lost(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	warn(true, format, args);
	va_end(args);
}

/* Keeps the first reason for the run and the user. */
void session_stopped(const char *reason)
{
	char line[300];

	pthread_mutex_lock(&session.lock);
	bool first = !session.has_failed;
	if (first)
		snprintf(session.failure, sizeof(session.failure), "%s", reason);
	session.has_failed = true;
	pthread_mutex_unlock(&session.lock);
	snprintf(line, sizeof(line), "recording stopped: %s", reason);
	if (first)
		say(line);
}

void session_fail(const char *format, ...)
{
	int was = SESSION_ON;
	char text[256];
	va_list args;

	if (session_hurried())
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (atomic_compare_exchange_strong(&session_state, &was, SESSION_STOPPED) || was == SESSION_UNDECIDED)
		session_stopped(text);
}

const char *session_failure(void)
{
	return session.has_failed ? session.failure : NULL;
}

void session_warnings_json(struct json *j, bool losses)
{
	json_open(j, '[');
	pthread_mutex_lock(&session.lock);
	for (unsigned i = 0; i < session.warning_count; i++)
		if (!losses || session.of_losses >> i & 1)
			json_string(j, session.warnings[i]);
	pthread_mutex_unlock(&session.lock);
	json_close(j, ']');
}

/* ---- numbers ---- */

uint32_t session_next_epoch(void)
{
	return atomic_load(&session.next_epoch);
}

void session_set_next_epoch(uint32_t number)
{
	atomic_store(&session.next_epoch, number);
}

void session_set_ring(uint64_t bytes, const char *memory)
{
	pthread_mutex_lock(&session.lock);
	session.ring = (struct session_ring){bytes, memory};
	pthread_mutex_unlock(&session.lock);
}

struct session_ring session_ring(void)
{
	pthread_mutex_lock(&session.lock);
	struct session_ring now = session.ring;
	pthread_mutex_unlock(&session.lock);
	return now.memory ? now : (struct session_ring){0, "none"};
}

/* ---- files ---- */

store *session_store(void)
{
	return session.run;
}

void session_set_store(store *opened)
{
	session.run = opened;
}

void session_region(struct tt_region *record)
{
	if (options.deterministic)
		record->time_ns = 0;
	store_region(session.run, record);
}

/* ---- a quick end ---- */

void session_hurry(void)
{
	atomic_store(&session.hurry_since, clock_ns());
}

uint64_t session_hurried(void)
{
	return atomic_load(&session.hurry_since);
}
