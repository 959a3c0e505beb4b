/*
 * A file that threads write through a mapping, each in its own pieces.
 *
 * The file is mapped into one large reserved range, so the address of a piece follows from its
 * place. A helper thread extends file and mapping ahead of the claims. It allocates disk space
 * before it maps it, because a store into a mapping without disk space would kill the program, and
 * makes the pages present. Far behind, it maps again, which frees the pages from this process; a
 * thread that kept a piece for long can still write to it.
 *
 * If the helper is behind, a claim waits for a bounded time. After that, claims fail until the helper
 * has moved on. The helper is up to 32 MiB ahead, so this happens only if the disk hangs.
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
	uint64_t reserve;          /* its size */
	_Atomic uint64_t mapped;   /* bytes of the file that are there to be claimed */
	_Atomic uint64_t claimed;  /* of them, the header included */
	_Atomic bool open;
	_Atomic bool stalled;      /* a claim timed out, and the helper has made no progress since */
	_Atomic int failure;       /* 0, 1 while the reason is being written, 2 from then on */
	char reason[512];
	struct file file;
	const char *name;
	struct file_end end; /* of size 0 where it may still change */
	uint64_t recycled;
	sem_t wake;
	_Atomic bool stop;
	pthread_t helper;
};

/* Creates the file with its header and starts the helper. m: all zeros, or as it was left. */
bool mapped_open(struct mapped *m, const struct folder *folder, const char *name, enum tt_file_kind kind, uint32_t record_size,
		 const char *thread, char *error, size_t error_size);
/* The next `size` bytes, all zeros; NULL where there are none, or the file is not open. */
void *mapped_claim(struct mapped *m, uint64_t size);
/* Why no more comes, where something failed: one line. */
bool mapped_failed(struct mapped *m, char *text, size_t size);
/*
 * Cuts the file off where `used` says, by default behind what was claimed, and closes it, if it is open. Its
 * memory stays writable, and is no longer the file's.
 */
void mapped_close(struct mapped *m, uint64_t (*used)(void));
/* The member of process.json's `files`, where the file was closed. */
void mapped_json(const struct mapped *m, struct json *j);
void mapped_forget(struct mapped *m); /* in a fork's child: detach without touching the file */

#endif
