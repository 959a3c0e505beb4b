/*
 * Merges the JSON files of processes. See merge.h for the invariant.
 *
 * The lock is an flock of the run directory itself, so no other file appears in the run. A process
 * that cannot get it within LOCK_MS leaves the merge to its holder, because the end of a program
 * must not depend on another process.
 */
#define _GNU_SOURCE
#include "store/merge.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "store/file.h"

#define LOCK_MS 5000
#define PROCESSES 1000000
#define TAIL 65536 /* end of run.json, where `record` writes how the program ended */

#define TEXT(x) #x
#define NUMBER(x) TEXT(x)
#define HEAD(format) "{\"format\":\"" format "\",\"version\":" NUMBER(TT_FORMAT_VERSION) ","
#define RUN_HEAD HEAD("ttanalyze-run")
#define MANIFEST_HEAD HEAD("ttanalyze-manifest")

static int lock(const struct folder *run)
{
	const struct timespec pause = {.tv_nsec = 2000000};
	int fd = folder_open(run);

	for (int waited = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB); waited += 2) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			break; /* a file system without locks; the rename is atomic */
		if (waited >= LOCK_MS) {
			close(fd);
			errno = ETIMEDOUT;
			return -1;
		}
		nanosleep(&pause, NULL);
	}
	return fd;
}

/* Unlocks explicitly: a child forked meanwhile holds the same lock. */
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

/* Reads what only an earlier run.json has: when the run was created, and how the program ended. */
static bool read_earlier(const struct folder *run, uint64_t *created, char **ending)
{
	static const char mark[] = ",\"exit\":{";
	char head[256], *text, *found = NULL;
	struct stat status;
	ssize_t n;
	bool good = true;
	int fd = file_open_existing(run, "run.json");

	*created = now_ns();
	*ending = NULL;
	if (fd < 0)
		return true;
	n = file_read_some(fd, head, sizeof(head) - 1, 0);
	if (n > 0) {
		head[n] = 0;
		text = strstr(head, "\"created_ns\":");
		if (text)
			*created = strtoull(text + 13, NULL, 10);
	}
	if (!(text = malloc(TAIL + 1)))
		good = false;
	else if (!fstat(fd, &status) && status.st_size > 0) {
		uint64_t size = (uint64_t)status.st_size;
		n = file_read_some(fd, text, TAIL, size > TAIL ? size - TAIL : 0);
		text[n < 0 ? 0 : n] = 0;
		/* In a JSON string, a backslash would precede the quote: this is the member. */
		for (char *p = text; (p = strstr(p, mark)); p++)
			found = p;
		good = !found || (*ending = strdup(found));
	}
	free(text);
	close(fd);
	if (!good)
		errno = ENOMEM;
	return good;
}

/* Appends the file of a process, which may be missing. */
static bool append_process(struct file *out, const struct folder *process, const char *name, bool *first, char *buffer)
{
	int fd = file_open_existing(process, name);
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

static bool append_processes(struct file *out, const struct folder *run, const char *name)
{
	char *buffer = malloc(FILE_PIECE), number[16];
	bool good = buffer != NULL, first = true;

	for (unsigned i = 0; good && i < PROCESSES; i++) {
		struct folder process;
		snprintf(number, sizeof(number), "p%u", i);
		if (!folder_below(&process, run, number)) {
			good = errno == ENOENT;
			break;
		}
		/* Skips other users' files: they might link to a file that only this user may read. */
		good = process.owner != run->owner || append_process(out, &process, name, &first, buffer);
		folder_free(&process);
	}
	free(buffer);
	return good;
}

static bool write_merged(enum merge_kind kind, struct file *out, const struct folder *run)
{
	char head[160], *ending = NULL;
	uint64_t created;
	bool good;

	if (kind == MERGE_RUN) {
		if (!read_earlier(run, &created, &ending))
			return false;
		snprintf(head, sizeof(head), RUN_HEAD "\"created_ns\":%llu,\"processes\":[", (unsigned long long)created);
	} else {
		snprintf(head, sizeof(head), MANIFEST_HEAD "\"block_size\":%d,\"digest\":\"xxh3-64\",\"processes\":[",
			 TT_BLOCK_SIZE);
	}
	good = append_text(out, head) && append_processes(out, run, kind == MERGE_RUN ? "process.json" : "manifest.json") &&
	       append_text(out, "]") && append_text(out, ending ? ending : "}");
	free(ending);
	return good;
}

/* Whether the file is missing or begins with `head`. */
static bool begins_with(const struct folder *run, const char *name, const char *head)
{
	char found[64];
	ssize_t n = (ssize_t)strlen(head);
	int fd = file_open_existing(run, name);

	if (fd < 0)
		return errno == ENOENT;
	bool same = file_read_some(fd, found, (size_t)n, 0) == n && !memcmp(found, head, (size_t)n);
	close(fd);
	return same;
}

bool merge_may(const struct folder *run, char *error, size_t size)
{
	static const char *const names[] = {"run.json", "manifest.json"}, *const heads[] = {RUN_HEAD, MANIFEST_HEAD};

	for (int i = 0; i < 2; i++)
		if (!begins_with(run, names[i], heads[i])) {
			snprintf(error, size, "%s/%s does not belong to a run of this version; record to another directory",
				 run->path, names[i]);
			return false;
		}
	return true;
}

bool merge_processes(enum merge_kind kind, const struct folder *run, const struct folder *process)
{
	const char *draft = kind == MERGE_RUN ? "run.json.tmp" : "merged.json.tmp";
	struct file out;
	int fd = lock(run);
	bool good = fd >= 0 && file_create(&out, process, draft, true);

	if (good && !(good = write_merged(kind, &out, run)))
		file_discard(&out);
	else if (good)
		good = file_publish(&out, run, kind == MERGE_RUN ? "run.json" : "manifest.json");
	int error = errno;
	if (fd >= 0)
		unlock(fd);
	errno = error;
	return good;
}
