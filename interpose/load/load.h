/*
 * Loads contents of blocks from files into device memory, in threads of the caller. Each thread
 * takes the next piece, reads it into one of its two places in page-locked memory, and lets the
 * driver copy it while it reads into the other.
 *
 * The toolkit reads this file too. It ignores preprocessor directives.
 */
#ifndef TT_LOAD_LOAD_H
#define TT_LOAD_LOAD_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of a file, to somewhere in a place. */
struct tt_load_read {
	uint64_t offset;
	uint32_t begin, size;
	int32_t file;
	uint32_t unused;
};

/* A block that is checked: where it is in a place. */
struct tt_load_block {
	uint64_t digest;
	uint32_t begin, size;
};

/* Bytes of a place, to the device. */
struct tt_load_copy {
	uint64_t to;
	uint32_t begin, size;
};

/* What is in a place at once: from these on, until those of the next piece. */
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

/* pieces: one more than there are. next, stop: changed by all threads; stop: no further pieces. */
struct tt_load_work {
	const struct tt_load_driver *driver;
	const struct tt_load_piece *pieces;
	const struct tt_load_read *reads;
	const struct tt_load_block *blocks;
	const struct tt_load_copy *copies;
	uint32_t count, check;
	uint32_t next, stop;
};

/* Memory that is locked. call: of the driver, which failed with this result; else NULL. */
struct tt_load_area {
	void *memory;
	size_t size;
	const char *call;
	int result;
};

struct tt_load_place {
	void *memory;
	CUevent copied;
};

/*
 * What a thread has of its own: places in an area, else zeros at first. After a failure, piece: which one; call: of the driver, with its result; NULL where the piece
 * could not be read, or a block was another one.
 */
struct tt_load_thread {
	struct tt_load_place places[2];
	CUstream stream;
	const char *call;
	int result;
	uint32_t piece;
};

/* Takes pieces until there are none, or one thread failed: then this one's is 0, or another's. */
int tt_load(struct tt_load_work *work, struct tt_load_thread *thread);

/* size: whole large pages; threads: how many fill them with zeros. 0 where the driver refuses it. */
int tt_load_lock(const struct tt_load_driver *driver, struct tt_load_area *area, size_t size, unsigned threads);

/* All copies from it have to be done. */
void tt_load_unlock(const struct tt_load_driver *driver, struct tt_load_area *area);

/* Ends what a thread has of the driver's. */
void tt_load_release(const struct tt_load_driver *driver, struct tt_load_thread *thread);

#endif
