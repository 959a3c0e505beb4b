/*
 * Append-only files in the program's process.
 *
 * Invariant: nothing here raises a signal in the program, takes one of its low descriptor numbers,
 * or writes to a descriptor that the program closed and opened again. Functions that return bool
 * return false with errno set.
 */
#ifndef TT_STORE_FILE_H
#define TT_STORE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "format.h"
#include "store/folder.h"
#include "util/json_writer.h"
#include "util/xxh3_stream.h"

#define FILE_PIECE 262144 /* bytes that buffers hold and streaming readers take at a time */
#define FILE_LIMIT 4095     /* as errno: --max-disk forbids it */
#define FILE_FOREIGN 4094   /* as errno: the directory is another user's */

struct file {
	char *path;
	const struct folder *folder;
	int fd; /* -1: not open */
	dev_t device;
	ino_t inode;
	uint64_t size;    /* bytes appended, those still in the buffer included */
	uint64_t written; /* bytes of them in the file */
	uint8_t *buffer;  /* NULL: every append is written at once */
	bool limited;     /* --max-disk counts for it */
	bool summed;      /* sum is that of all that was appended */
	struct xxh3_stream sum;
};

/* What process.json says of a file that will not change any more. */
struct file_end {
	uint64_t size, check;
	bool checked; /* check is there */
};

#define FILE_CLOSED ((struct file){.fd = -1})

/* A new, empty file, for its owner alone, in the place of what has its name. Its folder has to stay as long. */
bool file_create(struct file *f, const struct folder *folder, const char *name, bool buffered);
/* A new file that begins with a tt_file_header, already written. */
bool file_create_records(struct file *f, const struct folder *folder, const char *name, bool buffered, enum tt_file_kind kind,
			 uint32_t record_size, uint32_t index, enum tt_encoding encoding);
bool file_append(struct file *f, const void *data, size_t size);
bool file_flush(struct file *f);
/* Forgets what was appended after the first `size` bytes. */
void file_rollback(struct file *f, uint64_t size);
/* What was appended. */
struct file_end file_end(const struct file *f);
/* The first `size` bytes, which no longer change; unchecked if reading them takes too long. */
struct file_end file_end_read(struct file *f, uint64_t size);
/* From this time of clock_ns on, files are not read any more for their checks. */
void file_set_patience(uint64_t until_ns);
/* The member `name` of an object: {"size":N,"check":"…"}. */
void file_end_json(struct json *j, const char *name, const struct file_end *end);
/* Exactly size bytes of what was flushed. */
bool file_read(struct file *f, void *data, size_t size, uint64_t offset);
/* Closes without a flush, and leaves errno as it was. Safe to repeat. */
void file_close(struct file *f);
/* The same, and unlinks. */
void file_discard(struct file *f);
/* Flushes, closes and renames, replacing what is there; on failure nothing is left of it. */
bool file_publish(struct file *f, const struct folder *to, const char *name);

/* Makes these bytes zeros with disk space behind them, so that a mapping of them can't run out of it later. */
bool file_reserve(struct file *f, uint64_t offset, uint64_t size);
bool file_truncate(struct file *f, uint64_t size);
/* The descriptor still is the file that we opened. */
bool file_ours(const struct file *f);

/* Whether this errno says that there is no room for more. */
bool file_no_room(int error);

/* openat, out of the range of descriptors that programs make assumptions about; -1 with errno. */
int file_open(int directory, const char *path, int flags);
/* A regular file that is there, for reading; -1 with errno. */
int file_open_existing(const struct folder *folder, const char *name);
/* Up to size bytes from offset on, short only at the file's end; -1 with errno. */
ssize_t file_read_some(int fd, void *data, size_t size, uint64_t offset);

/* created_ns of the headers of all files made from now on. */
void file_set_created(uint64_t ns);

/* "what path: reason of errno" */
void file_explain(char *out, size_t size, const char *what, const char *path, int error);

#endif
