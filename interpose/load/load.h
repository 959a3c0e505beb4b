/*
 * Loads contents of blocks from files into device memory, in threads of the caller. Each thread takes the next
 * piece, reads it into one of its two buffers in page-locked memory, and lets the driver copy it while it reads
 * into the other.
 *
 * The toolkit reads this file too. It ignores preprocessor directives.
 */
#ifndef TT_LOAD_LOAD_H
#define TT_LOAD_LOAD_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of a file, and their offset in a buffer. */
struct tt_load_read {
	uint64_t offset;
	uint32_t begin, size;
	int32_t file;
	uint32_t unused;
};

/* A block to check, and its offset in a buffer. */
struct tt_load_block {
	uint64_t digest;
	uint32_t begin, size;
};

/* Bytes of a buffer, and their device address. */
struct tt_load_copy {
	uint64_t to;
	uint32_t begin, size;
};

/* Contents of a buffer: entries from these on, up to those of the next piece. */
struct tt_load_piece {
	uint32_t read, block, copy;
};

/* The driver's calls. */
struct tt_load_driver {
	CUresult (*lock)(void *memory, size_t size, unsigned flags);
	CUresult (*unlock)(void *memory);
	CUresult (*create)(CUevent *event, unsigned flags);
	CUresult (*destroy)(CUevent event);
	CUresult (*wait)(CUevent event);
	CUresult (*copy)(CUdeviceptr to, const void *from, size_t size, CUstream stream);
	CUresult (*record)(CUevent event, CUstream stream);
};

/* pieces: one more than count. next, stop: changed by all threads; stop: take no more pieces. */
struct tt_load_work {
	const struct tt_load_driver *driver;
	const struct tt_load_piece *pieces;
	const struct tt_load_read *reads;
	const struct tt_load_block *blocks;
	const struct tt_load_copy *copies;
	uint32_t count, check;
	uint32_t next, stop;
};

/* Page-locked memory. call: the driver call that failed with this result; else NULL. */
struct tt_load_area {
	void *memory;
	size_t size;
	const char *call;
	int result;
};

struct tt_load_buffer {
	void *memory;
	CUevent copied;
};

/*
 * Data of a thread: buffers in an area, the rest initially zeros. After a failure, piece: its number; call: the
 * driver call that returned `result`, NULL if the piece could not be read or a block was wrong.
 */
struct tt_load_thread {
	struct tt_load_buffer buffers[2];
	CUstream stream;
	const char *call;
	int result;
	uint32_t piece;
};

/* Takes pieces until there are none or a thread fails. 0: this thread or another failed. */
int tt_load(struct tt_load_work *work, struct tt_load_thread *thread);

/* size: whole large pages; threads: fill them with zeros. 0: the driver refuses it. */
int tt_load_lock(const struct tt_load_driver *driver, struct tt_load_area *area, size_t size, unsigned threads);

/* All copies from it must be complete. */
void tt_load_unlock(const struct tt_load_driver *driver, struct tt_load_area *area);

/* Releases a thread's resources of the driver. */
void tt_load_release(const struct tt_load_driver *driver, struct tt_load_thread *thread);

#endif
