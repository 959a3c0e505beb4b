/*
 * Limits the disk space of a run. See disk.h for the invariant.
 *
 * All processes of a run share its limit: each adds up the files of all.
 */
#define _GNU_SOURCE
#include "store/disk.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "store/file.h"

#define KEPT ((uint64_t)5 << 30) /* least bytes that stay free; on a large file system a tenth */
#define DEPTH 3                  /* of directories in a run directory */

static struct {
	const struct folder *run;
	uint64_t most; /* 0: no limit */
	_Atomic int64_t granted[2];
} limit;

void disk_limit(const struct folder *run, uint64_t most)
{
	limit.run = run;
	limit.most = most;
	atomic_store(&limit.granted[DISK_CONTENTS], 0);
	atomic_store(&limit.granted[DISK_RECORDS], 0);
}

/* Bytes of the files in a directory and below; closes it. */
static uint64_t add_up(int directory, int depth)
{
	DIR *entries = directory < 0 ? NULL : fdopendir(directory);
	uint64_t sum = 0;

	if (!entries && directory >= 0)
		close(directory);
	for (struct dirent *e; entries && (e = readdir(entries));) {
		struct stat found;
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") ||
		    fstatat(directory, e->d_name, &found, AT_SYMLINK_NOFOLLOW))
			continue;
		if (S_ISREG(found.st_mode))
			sum += (uint64_t)found.st_size;
		else if (S_ISDIR(found.st_mode) && depth)
			sum += add_up(file_open(directory, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW), depth - 1);
	}
	if (entries)
		closedir(entries);
	return sum;
}

/* Bytes of the disk or of the limit, and how many of them are not available for more files. */
static void look(uint64_t *have, uint64_t *gone)
{
	struct statvfs system;

	*have = limit.most;
	*gone = 0;
	if (limit.most != DISK_KEEP_FREE) {
		*gone = add_up(folder_open(limit.run), DEPTH);
	} else if (!statvfs(limit.run->path, &system) && system.f_blocks) { /* else: the file system does not report its size */
		uint64_t size = (uint64_t)system.f_blocks * system.f_frsize;
		*have = (uint64_t)system.f_bavail * system.f_frsize;
		*gone = size / 10 > KEPT ? size / 10 : KEPT < size / 2 ? KEPT : size / 2;
	}
}

static uint64_t room(enum disk_use use)
{
	uint64_t have, gone;

	look(&have, &gone);
	if (limit.most == DISK_KEEP_FREE)
		gone /= use == DISK_RECORDS ? 2 : 1;
	else
		gone += use == DISK_CONTENTS ? limit.most / 16 : 0;
	return have > gone ? have - gone : 0;
}

bool disk_take(enum disk_use use, uint64_t size)
{
	if (!limit.most || atomic_fetch_sub(&limit.granted[use], (int64_t)size) >= (int64_t)size)
		return true;
	uint64_t left = room(use);
	uint64_t grant = left / 8 < DISK_GRANT ? left / 8 : DISK_GRANT;
	atomic_store(&limit.granted[use], (int64_t)grant);
	return size <= left;
}

/* A size as text with a suitable unit. */
static const char *readable(uint64_t bytes, char text[24])
{
	static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
	double n = (double)bytes;
	unsigned unit = 0;

	for (; n >= 1024 && unit < 4; unit++)
		n /= 1024;
	snprintf(text, 24, unit ? "%.1f %s" : "%.0f %s", n, units[unit]);
	return text;
}

void disk_explain(char *out, size_t size)
{
	uint64_t have, gone;
	char one[24], other[24];

	look(&have, &gone);
	if (limit.most == DISK_KEEP_FREE)
		snprintf(out, size, "the disk has %s free; --max-disk keeps %s free", readable(have, one),
			 readable(gone, other));
	else
		snprintf(out, size, "the run has %s; --max-disk allows %s", readable(gone, one), readable(have, other));
}
