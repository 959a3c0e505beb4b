/*
 * Directories of a run. See folder.h for the invariant.
 */
#define _GNU_SOURCE
#include "store/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/file.h"

#define DIRECTORY (O_RDONLY | O_DIRECTORY | O_NOFOLLOW)

static void close_quietly(int fd)
{
	int error = errno;

	if (fd >= 0)
		close(fd);
	errno = error;
}

static bool identify(struct folder *d, int fd)
{
	struct stat found;
	bool good = d->path && fd >= 0 && !fstat(fd, &found);

	if (good) {
		d->device = found.st_dev;
		d->inode = found.st_ino;
		d->owner = found.st_uid;
	} else {
		folder_free(d);
	}
	close_quietly(fd);
	return good;
}

bool folder_find(struct folder *d, const char *path)
{
	*d = (struct folder){.path = realpath(path, NULL)};
	return identify(d, d->path ? file_open(AT_FDCWD, d->path, DIRECTORY) : -1);
}

static bool below(struct folder *d, const struct folder *in, const char *name, bool make)
{
	int above = folder_open(in);
	bool good = above >= 0 && (!make || !mkdirat(above, name, 0700));

	*d = (struct folder){0};
	if (good && asprintf(&d->path, "%s/%s", in->path, name) < 0) {
		d->path = NULL;
		errno = ENOMEM;
	}
	good = good && d->path && identify(d, file_open(above, name, DIRECTORY));
	close_quietly(above);
	return good;
}

bool folder_below(struct folder *d, const struct folder *in, const char *name)
{
	return below(d, in, name, false);
}

bool folder_make(struct folder *d, const struct folder *in, const char *name)
{
	return below(d, in, name, true);
}

int folder_open(const struct folder *d)
{
	struct stat now;
	int fd = file_open(AT_FDCWD, d->path, DIRECTORY);

	if (fd < 0 || (!fstat(fd, &now) && now.st_dev == d->device && now.st_ino == d->inode))
		return fd;
	close(fd);
	errno = ESTALE;
	return -1;
}

bool folder_unlink(const struct folder *d, const char *name)
{
	int fd = folder_open(d);
	bool good = fd >= 0 && !unlinkat(fd, name, 0);

	close_quietly(fd);
	return good;
}

void folder_free(struct folder *d)
{
	int error = errno;

	free(d->path);
	*d = (struct folder){0};
	errno = error;
}
