/*
 * Append-only files. See file.h for the invariant.
 *
 * Writes use explicit offsets, because a forked child shares the descriptor's position. SIGXFSZ,
 * the signal of a write beyond RLIMIT_FSIZE, is blocked around every call that can grow a file, and
 * removed if it came.
 */
#define _GNU_SOURCE
#include "store/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "util/xxh3.h"
#include "store/disk.h"
#include "util/clock.h"

#define DRAFT ".tmp"   /* after the name of a file until it has a header, in case the process is killed */
#define DIRECT 32768 /* from this size on, a copy into the buffer does not pay off */

static uint64_t created_ns, patience_ns = UINT64_MAX;

void file_set_created(uint64_t ns)
{
	__atomic_store_n(&created_ns, ns, __ATOMIC_RELAXED);
}

void file_set_patience(uint64_t until_ns)
{
	__atomic_store_n(&patience_ns, until_ns, __ATOMIC_RELAXED);
}

void file_explain(char *out, size_t size, const char *what, const char *path, int error)
{
	char buffer[160];
	const char *why = buffer;

	if (error == FILE_LIMIT)
		disk_explain(buffer, sizeof(buffer));
	else if (error == FILE_FOREIGN)
		why = "the directory belongs to another user; record to one of your own";
	else
		why = strerror_r(error, buffer, sizeof(buffer));
	snprintf(out, size, "%s %s: %s", what, path, why);
}

bool file_no_room(int error)
{
	return error == ENOSPC || error == EDQUOT || error == EFBIG || error == FILE_LIMIT;
}

struct shield {
	sigset_t before;
	bool pending; /* the program's own signal, which stays pending */
};

static void shield_up(struct shield *s)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGXFSZ);
	pthread_sigmask(SIG_BLOCK, &set, &s->before);
	s->pending = false;
	if (sigismember(&s->before, SIGXFSZ)) {
		sigpending(&set);
		s->pending = sigismember(&set, SIGXFSZ);
	}
}

static void shield_down(const struct shield *s, int error)
{
	static const struct timespec at_once;
	sigset_t set;

	if (error == EFBIG && !s->pending) {
		sigemptyset(&set);
		sigaddset(&set, SIGXFSZ);
		while (sigtimedwait(&set, NULL, &at_once) < 0 && errno == EINTR)
			continue;
	}
	pthread_sigmask(SIG_SETMASK, &s->before, NULL);
	errno = error;
}

/* Moves a descriptor above the numbers that programs make assumptions about. */
static int high(int fd)
{
	static const int floors[] = {200, 100, 50};

	for (size_t i = 0; fd >= 0 && i < sizeof(floors) / sizeof(floors[0]); i++) {
		int moved = fcntl(fd, F_DUPFD_CLOEXEC, floors[i]);
		if (moved >= 0) {
			close(fd);
			return moved;
		}
	}
	return fd;
}

int file_open(int directory, const char *path, int flags)
{
	int fd;

	do
		fd = openat(directory, path, flags | O_CLOEXEC | O_NOCTTY, 0600);
	while (fd < 0 && errno == EINTR);
	return high(fd);
}

static int close_quietly(int fd)
{
	int error = errno;

	close(fd);
	errno = error;
	return -1;
}

/* Does not follow links. */
static int open_in(const struct folder *folder, const char *name, int flags)
{
	int above = folder_open(folder), fd;

	if (above < 0)
		return -1;
	fd = file_open(above, name, flags | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0 && flags & O_EXCL && errno == EEXIST && !unlinkat(above, name, 0))
		fd = file_open(above, name, flags | O_NOFOLLOW);
	close_quietly(above);
	return fd;
}

int file_open_existing(const struct folder *folder, const char *name)
{
	struct stat found;
	int fd = open_in(folder, name, O_RDONLY);

	if (fd < 0 || (!fstat(fd, &found) && S_ISREG(found.st_mode)))
		return fd;
	errno = EINVAL;
	return close_quietly(fd);
}

static const char *name_of(const struct file *f)
{
	return strrchr(f->path, '/') + 1;
}

bool file_ours(const struct file *f)
{
	struct stat now;

	if (f->fd >= 0 && !fstat(f->fd, &now) && now.st_dev == f->device && now.st_ino == f->inode)
		return true;
	errno = EBADF;
	return false;
}

/* A program that closes all descriptors also closes the recorder's. */
static bool usable(struct file *f)
{
	int fd;

	if (file_ours(f))
		return true;
	if (f->fd < 0)
		return false;
	fd = open_in(f->folder, name_of(f), O_RDWR);
	if (fd < 0)
		return false;
	f->fd = fd;
	if (file_ours(f))
		return true;
	close(fd);
	f->fd = -1;
	errno = ESTALE;
	return false;
}

static bool rename_to(const struct file *f, const struct folder *to, const char *name)
{
	int from = folder_open(f->folder), target = folder_open(to);
	bool done = from >= 0 && target >= 0 && !renameat(from, name_of(f), target, name);

	if (from >= 0)
		close_quietly(from);
	if (target >= 0)
		close_quietly(target);
	return done;
}

bool file_create(struct file *f, const struct folder *folder, const char *name, bool buffered)
{
	struct stat made;

	*f = FILE_CLOSED;
	if (asprintf(&f->path, "%s/%s", folder->path, name) < 0) {
		f->path = NULL;
		errno = ENOMEM;
		return false;
	}
	f->folder = folder;
	f->fd = open_in(folder, name, O_RDWR | O_CREAT | O_EXCL);
	if (f->fd >= 0 && !fstat(f->fd, &made)) {
		f->device = made.st_dev;
		f->inode = made.st_ino;
		if (made.st_uid != folder->owner) {
			errno = FILE_FOREIGN;
		} else {
			f->buffer = buffered ? malloc(FILE_PIECE) : NULL;
			if (f->buffer || !buffered)
				return true;
			errno = ENOMEM;
		}
		file_discard(f);
		return false;
	}
	file_close(f);
	return false;
}

bool file_create_records(struct file *f, const struct folder *folder, const char *name, bool buffered, enum tt_file_kind kind,
			 uint32_t record_size, uint32_t index, enum tt_encoding encoding)
{
	struct tt_file_header header = {
		.magic = {'T', 'T', 'R', 'U', 'N', 0x0d, 0x0a, 0x1a},
		.version = TT_FORMAT_VERSION,
		.kind = kind,
		.header_size = TT_FILE_HEADER_SIZE,
		.record_size = record_size,
		.index = index,
		.encoding = encoding,
		.created_ns = __atomic_load_n(&created_ns, __ATOMIC_RELAXED),
	};

	char draft[64];

	header.check = xxh3_64(&header, offsetof(struct tt_file_header, check));
	snprintf(draft, sizeof(draft), "%s" DRAFT, name);
	if (!file_create(f, folder, draft, buffered))
		return false;
	/* Contents have digests, and epoch records have checks for the other two. */
	f->summed = kind != TT_FILE_DATA && kind != TT_FILE_DIGESTS && kind != TT_FILE_BLOCKS;
	xxh3_stream_begin(&f->sum);
	if (file_append(f, &header, sizeof(header)) && file_flush(f) && rename_to(f, folder, name)) {
		f->path[strlen(f->path) - strlen(DRAFT)] = 0;
		return f->limited = true;
	}
	file_discard(f);
	return false;
}

static bool write_at(struct file *f, const void *data, size_t size, uint64_t offset)
{
	const uint8_t *from = data;
	struct shield s;
	int error = 0;

	if (!usable(f))
		return false;
	shield_up(&s);
	while (size && !error) {
		ssize_t n = pwrite(f->fd, from, size, (off_t)offset);
		if (n > 0) {
			from += n;
			size -= (size_t)n;
			offset += (uint64_t)n;
		} else if (n == 0) {
			error = ENOSPC;
		} else if (errno != EINTR) {
			error = errno;
		}
	}
	shield_down(&s, error);
	return !error;
}

static bool may_grow(const struct file *f, uint64_t size)
{
	if (!f->limited || disk_take(DISK_RECORDS, size))
		return true;
	errno = FILE_LIMIT;
	return false;
}

bool file_flush(struct file *f)
{
	size_t held = (size_t)(f->size - f->written);

	if (held && !(may_grow(f, held) && write_at(f, f->buffer, held, f->written)))
		return false;
	f->written = f->size;
	return true;
}

static bool append(struct file *f, const void *data, size_t size)
{
	size_t held = (size_t)(f->size - f->written);

	if (f->buffer && size < DIRECT) {
		if (held + size > FILE_PIECE) {
			if (!file_flush(f))
				return false;
			held = 0;
		}
		memcpy(f->buffer + held, data, size);
		f->size += size;
		return true;
	}
	if (!file_flush(f) || !may_grow(f, size) || !write_at(f, data, size, f->size))
		return false;
	f->size += size;
	f->written = f->size;
	return true;
}

bool file_append(struct file *f, const void *data, size_t size)
{
	if (!append(f, data, size))
		return false;
	if (f->summed)
		xxh3_stream_add(&f->sum, data, size);
	return true;
}

struct file_end file_end(const struct file *f)
{
	return (struct file_end){f->size, f->summed ? xxh3_stream_end(&f->sum) : 0, f->summed};
}

bool file_truncate(struct file *f, uint64_t size)
{
	struct shield s;
	int error = 0;

	if (!usable(f))
		return false;
	shield_up(&s);
	while (ftruncate(f->fd, (off_t)size)) {
		error = errno;
		if (error != EINTR)
			break;
		error = 0;
	}
	shield_down(&s, error);
	return !error;
}

void file_rollback(struct file *f, uint64_t size)
{
	int error = errno;

	/* Also if all of it is in the buffer: a failed write may have left a part. */
	if (f->fd >= 0)
		(void)file_truncate(f, size < f->written ? size : f->written);
	f->summed &= size == f->size;
	f->size = size;
	if (f->written > size)
		f->written = size;
	errno = error;
}

bool file_reserve(struct file *f, uint64_t offset, uint64_t size)
{
	static uint8_t zeros[65536];
	struct shield s;
	int error = 0;

	if (!may_grow(f, size) || !usable(f))
		return false;
	shield_up(&s);
	while (fallocate(f->fd, 0, (off_t)offset, (off_t)size) && (error = errno) == EINTR)
		error = 0;
	shield_down(&s, error);
	if (error && error != EOPNOTSUPP && error != ENOSYS)
		return false;
	/*
	 * Writes zeros: this reserves space where fallocate is unknown, and is ten times faster than page faults.
	 */
	for (uint64_t end = offset + size; offset < end; offset += size) {
		size = end - offset < sizeof(zeros) ? end - offset : sizeof(zeros);
		if (!write_at(f, zeros, size, offset))
			return false;
	}
	return true;
}

ssize_t file_read_some(int fd, void *data, size_t size, uint64_t offset)
{
	uint8_t *to = data;
	size_t done = 0;

	while (done < size) {
		ssize_t n = pread(fd, to + done, size - done, (off_t)(offset + done));
		if (n == 0)
			break;
		if (n > 0)
			done += (size_t)n;
		else if (errno != EINTR)
			return -1;
	}
	return (ssize_t)done;
}

bool file_read(struct file *f, void *data, size_t size, uint64_t offset)
{
	ssize_t n = usable(f) ? file_read_some(f->fd, data, size, offset) : -1;

	if (n == (ssize_t)size)
		return true;
	if (n >= 0)
		errno = EIO;
	return false;
}

struct file_end file_end_read(struct file *f, uint64_t size)
{
	struct file_end end = {.size = size};
	uint8_t *piece = malloc(FILE_PIECE);
	struct xxh3_stream sum;
	uint64_t at = 0;

	xxh3_stream_begin(&sum);
	while (piece && at < size && clock_ns() < __atomic_load_n(&patience_ns, __ATOMIC_RELAXED)) {
		size_t n = size - at < FILE_PIECE ? (size_t)(size - at) : FILE_PIECE;
		if (!file_read(f, piece, n, at))
			break;
		xxh3_stream_add(&sum, piece, n);
		at += n;
	}
	free(piece);
	if (at == size) {
		end.check = xxh3_stream_end(&sum);
		end.checked = true;
	}
	return end;
}

void file_end_json(struct json *j, const char *name, const struct file_end *end)
{
	json_member_open(j, name, '{');
	json_member_u64(j, "size", end->size);
	json_key(j, "check");
	if (end->checked)
		json_hex16(j, end->check);
	else
		json_null(j);
	json_close(j, '}');
}

void file_close(struct file *f)
{
	int error = errno;

	if (f->fd >= 0 && file_ours(f))
		close(f->fd);
	free(f->path);
	free(f->buffer);
	*f = FILE_CLOSED;
	errno = error;
}

void file_discard(struct file *f)
{
	int error = errno;

	if (f->path)
		folder_unlink(f->folder, name_of(f));
	errno = error;
	file_close(f);
}

bool file_publish(struct file *f, const struct folder *to, const char *name)
{
	bool done = file_flush(f) && rename_to(f, to, name);

	if (done)
		file_close(f);
	else
		file_discard(f);
	return done;
}
