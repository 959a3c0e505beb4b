/*
 * Joins the processes' JSON files. See merge.h for the invariant.
 *
 * The lock is an flock of the run directory itself, so that no file but the run's own appears;
 * who cannot have it within LOCK_MS leaves the merge to whoever holds it, for a program's end
 * must not hang on another process.
 */
#define _GNU_SOURCE
#include "merge.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "file.h"

#define LOCK_MS 5000
#define PROCESSES 1000000
#define TAIL 65536 /* of run.json, where `record` puts how the program ended */

#define TEXT(x) #x
#define NUMBER(x) TEXT(x)
#define HEAD(format) "{\"format\":\"" format "\",\"version\":" NUMBER(TT_FORMAT_VERSION) ","
#define RUN_HEAD HEAD("ttanalyze-run")
#define MANIFEST_HEAD HEAD("ttanalyze-manifest")

static int lock(const char *directory)
{
	const struct timespec pause = {.tv_nsec = 2000000};
	int fd = file_open_existing(directory);

	for (int waited = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB); waited += 2) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			break; /* a file system without locks: the rename is atomic all the same */
		if (waited >= LOCK_MS) {
			close(fd);
			errno = ETIMEDOUT;
			return -1;
		}
		nanosleep(&pause, NULL);
	}
	return fd;
}

/* Explicitly: a child forked meanwhile holds the same lock. */
static void unlock(int fd)
{
	flock(fd, LOCK_UN);
	close(fd);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* What an earlier run.json says that no process does: when the run was created, how it ended. */
static void read_earlier(const char *path, uint64_t *created, char **ending)
{
	static const char mark[] = ",\"exit\":{";
	char head[256], *text, *found = NULL;
	struct stat status;
	ssize_t n;
	int fd = file_open_existing(path);

	*created = now_ns();
	*ending = NULL;
	if (fd < 0)
		return;
	n = file_read_some(fd, head, sizeof(head) - 1, 0);
	if (n > 0) {
		head[n] = 0;
		text = strstr(head, "\"created_ns\":");
		if (text)
			*created = strtoull(text + 13, NULL, 10);
	}
	text = malloc(TAIL + 1);
	if (text && !fstat(fd, &status) && status.st_size > 0) {
		uint64_t size = (uint64_t)status.st_size;
		n = file_read_some(fd, text, TAIL, size > TAIL ? size - TAIL : 0);
		text[n < 0 ? 0 : n] = 0;
		/* Within a JSON string the quote would follow a backslash: this is the member. */
		for (char *p = text; (p = strstr(p, mark)); p++)
			found = p;
		if (found)
			*ending = strdup(found);
	}
	free(text);
	close(fd);
}

/* Appends the file's contents. A process that has not written its own as yet is left out. */
static bool append_process(struct file *out, const char *path, bool *first, char *buffer)
{
	int fd = file_open_existing(path);
	uint64_t at = 0;
	bool good = true;
	ssize_t n;

	if (fd < 0)
		return errno == ENOENT;
	while (good && (n = file_read_some(fd, buffer, FILE_PIECE, at)) != 0) {
		good = n > 0 && (at || *first || file_append(out, ",", 1)) && file_append(out, buffer, (size_t)n);
		*first = false;
		at += n > 0 ? (uint64_t)n : 0;
	}
	close(fd);
	return good;
}

static bool append_text(struct file *out, const char *text)
{
	return file_append(out, text, strlen(text));
}

static bool append_processes(struct file *out, const char *run_directory, const char *name)
{
	char *buffer = malloc(FILE_PIECE), *path = NULL;
	bool good = buffer != NULL, first = true;
	struct stat status;

	for (unsigned i = 0; good && i < PROCESSES; i++) {
		good = asprintf(&path, "%s/p%u/%s", run_directory, i, name) >= 0;
		if (!good)
			break;
		char *slash = strrchr(path, '/');
		*slash = 0;
		bool there = !stat(path, &status);
		*slash = '/';
		good = !there || append_process(out, path, &first, buffer);
		free(path);
		if (!there)
			break;
	}
	free(buffer);
	return good;
}

static bool write_merged(enum merge_kind kind, struct file *out, const char *run_directory, const char *target)
{
	char head[160], *ending = NULL;
	uint64_t created;
	bool good;

	if (kind == MERGE_RUN) {
		read_earlier(target, &created, &ending);
		snprintf(head, sizeof(head),
			 RUN_HEAD "\"created_ns\":%llu,\"processes\":[", (unsigned long long)created);
	} else {
		snprintf(head, sizeof(head),
			 MANIFEST_HEAD "\"block_size\":%d,\"digest\":\"xxh3-64\",\"processes\":[", TT_BLOCK_SIZE);
	}
	good = append_text(out, head) &&
	       append_processes(out, run_directory, kind == MERGE_RUN ? "process.json" : "manifest.json") &&
	       append_text(out, "]") && append_text(out, ending ? ending : "}");
	free(ending);
	return good;
}

/* Nothing there, or a file that begins with what we write. */
static bool begins_with(const char *path, const char *head)
{
	char found[64];
	ssize_t n = (ssize_t)strlen(head);
	int fd = file_open_existing(path);

	if (fd < 0)
		return errno != EACCES;
	bool same = file_read_some(fd, found, (size_t)n, 0) == n && !memcmp(found, head, (size_t)n);
	close(fd);
	return same;
}

bool merge_may(const char *run_directory, char *error, size_t size)
{
	static const char *const names[] = {"run.json", "manifest.json"}, *const heads[] = {RUN_HEAD, MANIFEST_HEAD};

	for (int i = 0; i < 2; i++) {
		char *path;
		bool may = asprintf(&path, "%s/%s", run_directory, names[i]) >= 0;
		if (!may) {
			snprintf(error, size, "opening run directory %s: out of memory", run_directory);
			return false;
		}
		may = begins_with(path, heads[i]);
		if (!may)
			snprintf(error, size, "%s is there, and not of a run of this version", path);
		free(path);
		if (!may)
			return false;
	}
	return true;
}

bool merge_processes(enum merge_kind kind, const char *run_directory, const char *process_directory)
{
	const char *name = kind == MERGE_RUN ? "run.json" : "manifest.json";
	const char *draft = kind == MERGE_RUN ? "run.json.tmp" : "merged.json.tmp";
	struct file out;
	char *target;
	bool good;
	int fd, error;

	if (asprintf(&target, "%s/%s", run_directory, name) < 0) {
		errno = ENOMEM;
		return false;
	}
	fd = lock(run_directory);
	good = fd >= 0 && file_create(&out, process_directory, draft, true);
	if (good) {
		good = write_merged(kind, &out, run_directory, target);
		error = errno;
		if (good) {
			good = file_publish(&out, target);
			error = errno;
		} else {
			file_discard(&out);
		}
	} else {
		error = errno;
	}
	if (fd >= 0)
		unlock(fd);
	free(target);
	errno = error;
	return good;
}
