/*
 * A file that threads write through a mapping, each in its own pieces.
 *
 * The file is mapped into one large reserved range, so the address of a piece follows from its position. A helper
 * thread extends file and mapping ahead of the claims. It allocates disk space before it maps it, because a store
 * into a mapping without disk space would kill the program, and makes the pages present. Far behind the claims it
 * maps again, which frees the pages of this process; a thread that uses an old piece can still write to it.
 *
 * If the helper is behind, a claim waits for a bounded time. After that, claims fail until the helper makes
 * progress. The helper is up to 32 MiB ahead, so this happens only if the disk hangs.
 *
 * Invariant: a piece stays writable until the process ends.
 */
#ifndef TT_STORE_MAPPED_H
#define TT_STORE_MAPPED_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/file.h"

struct mapped {
	uint8_t *base;             /* of the reserved range: the file's first byte */
	uint64_t reserve;          /* bytes of the range */
	_Atomic uint64_t mapped;   /* bytes of the file that can be claimed */
	_Atomic uint64_t claimed;  /* claimed bytes, including the header */
	_Atomic bool open;
	_Atomic bool stalled;      /* a claim timed out, and the helper has made no progress since */
	_Atomic int failure;       /* 0; 1 while the reason is being written; then 2 */
	char reason[512];
	struct file file;
	const char *name;
	struct file_end end; /* size 0: the file may still change */
	uint64_t recycled;
	sem_t wake;
	_Atomic bool stop;
	pthread_t helper;
};

/* Creates the file with its header and starts the helper. m: zeros, or from an earlier use. */
bool mapped_open(struct mapped *m, const struct folder *folder, const char *name, enum tt_file_kind kind, uint32_t record_size,
		 const char *thread, char *error, size_t error_size);
/* The next `size` bytes, all zeros; NULL: none left, or the file is not open. */
void *mapped_claim(struct mapped *m, uint64_t size);
/* Whether claims ended because of a failure; text: one line. */
bool mapped_failed(struct mapped *m, char *text, size_t size);
/*
 * Cuts the file off at used(), or at the end of the claimed bytes if NULL, and closes it. Its memory stays
 * writable, but is no longer the file's.
 */
void mapped_close(struct mapped *m, uint64_t (*used)(void));
/* The file's member in `files` of process.json, if it was closed. */
void mapped_json(const struct mapped *m, struct json *j);
void mapped_forget(struct mapped *m); /* in a forked child: detaches without touching the file */

#endif
