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

#define FILE_PIECE 262144 /* size of buffers and of reads */
#define FILE_LIMIT 4095     /* as errno: --max-disk forbids it */
#define FILE_FOREIGN 4094   /* as errno: another user owns the directory */

struct file {
	char *path;
	const struct folder *folder;
	int fd; /* -1: not open */
	dev_t device;
	ino_t inode;
	uint64_t size;    /* bytes appended, including those in the buffer */
	uint64_t written; /* of these, bytes in the file */
	uint8_t *buffer;  /* NULL: unbuffered */
	bool limited;     /* counts for --max-disk */
	bool summed;      /* sum covers all appended bytes */
	struct xxh3_stream sum;
};

/* Size and check of a complete file, for process.json. */
struct file_end {
	uint64_t size, check;
	bool checked; /* check is valid */
};

#define FILE_CLOSED ((struct file){.fd = -1})

/* A new, empty file, for its owner only; replaces a file with its name. `folder` must outlive it. */
bool file_create(struct file *f, const struct folder *folder, const char *name, bool buffered);
/* The same, beginning with a tt_file_header: the file never has its name without it. */
bool file_create_records(struct file *f, const struct folder *folder, const char *name, bool buffered, enum tt_file_kind kind,
			 uint32_t record_size, uint32_t index, enum tt_encoding encoding);
bool file_append(struct file *f, const void *data, size_t size);
bool file_flush(struct file *f);
/* Drops everything appended after the first `size` bytes. */
void file_rollback(struct file *f, uint64_t size);
/* Size and check of the appended bytes. */
struct file_end file_end(const struct file *f);
/* The same of the first `size` bytes, which no longer change; unchecked if the read takes too long. */
struct file_end file_end_read(struct file *f, uint64_t size);
/* Time of clock_ns after which files are not read for their checks. */
void file_set_patience(uint64_t until_ns);
/* The member `name` of an object: {"size":N,"check":"…"}. */
void file_end_json(struct json *j, const char *name, const struct file_end *end);
/* Reads exactly size bytes that were flushed. */
bool file_read(struct file *f, void *data, size_t size, uint64_t offset);
/* Closes without a flush; keeps errno. May be repeated. */
void file_close(struct file *f);
/* Closes and unlinks. */
void file_discard(struct file *f);
/* Flushes, closes and renames it over an existing file; after a failure nothing of it remains. */
bool file_publish(struct file *f, const struct folder *to, const char *name);

/* Makes these bytes zeros with allocated disk space, so that stores to a mapping cannot run out of space. */
bool file_reserve(struct file *f, uint64_t offset, uint64_t size);
bool file_truncate(struct file *f, uint64_t size);
/* Whether the descriptor is still the recorder's file. */
bool file_ours(const struct file *f);

/* Whether this errno means that the disk is full or a limit is reached. */
bool file_no_room(int error);

/* openat, with a descriptor above the numbers that programs make assumptions about; -1 with errno. */
int file_open(int directory, const char *path, int flags);
/* Opens an existing regular file for reading; -1 with errno. */
int file_open_existing(const struct folder *folder, const char *name);
/* Up to size bytes from offset on; fewer only at the file's end; -1 with errno. */
ssize_t file_read_some(int fd, void *data, size_t size, uint64_t offset);

/* created_ns for the headers of all later files. */
void file_set_created(uint64_t ns);

/* "what path: reason of errno" */
void file_explain(char *out, size_t size, const char *what, const char *path, int error);

#endif
