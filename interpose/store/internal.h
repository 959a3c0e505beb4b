/*
 * Members that the files of the store share, and the code around every call.
 *
 * Two locks are taken in this order: `capture` for epochs, `records` for the files that the program's threads
 * append to, so that these never wait for contents of blocks. `images` and `json` come before both and are held
 * while whole files are written. `writing` of a lane also comes before both and is held while its file is written.
 */
#ifndef TT_STORE_INTERNAL_H
#define TT_STORE_INTERNAL_H

#include <pthread.h>

#include "store/compress.h"
#include "store/dedup.h"
#include "store/file.h"
#include "store/retain.h"
#include "store/store.h"
#include "store/strings.h"
#include "util/visit.h"
#include "util/xxh3_stream.h"

/* Files of records that do not belong to an epoch, in the order of process.json. */
enum records {
	RECORDS_REGIONS,
	RECORDS_LABELS,
	RECORDS_FRAMES,
	RECORDS_LAUNCHES,
	RECORDS_TRACED,
	RECORDS_TRACE,
	RECORDS_TENSOR_MAPS,
	RECORDS_GRAPH_DATA,
	RECORDS_GRAPHS,
	RECORDS_FUNCTIONS,
	RECORDS_MODULES,
	RECORDS_FILES,
};

struct store_span {
	struct file file;
	uint64_t committed; /* bytes of committed epochs in the file */
	struct xxh3_stream check;
};

/* One of a segment's data files; one caller at a time appends to it. */
struct store_lane {
	struct file file;
	uint64_t committed;
	uint64_t planned; /* end of the file after all planned contents are written */
};

struct store {
	struct folder run, folder; /* RUN and RUN/pN */
	struct folder image_folder; /* RUN/pN/modules, from the first image on */
	unsigned process;
	const uint32_t *rank; /* NULL: none */
	bool deterministic;
	unsigned retain;
	enum tt_encoding encoding;
	int level;
	bool sealed, closed;
	int failure; /* 0; 1 while the reason is being written; then 2 */
	char reason[512];

	pthread_mutex_t records;
	struct strings strings;
	int texts_lost; /* errno */
	struct file records_of[RECORDS_FILES]; /* opened at the first record, or at the start */
	uint64_t flushed_ns; /* clock_ns when the buffered ones were written */
	struct retain kept;

	pthread_mutex_t capture;
	struct file epochs;
	struct store_span digests, blocks;
	struct store_lane data[TT_DATA_LANES];
	struct store_lane data_before[TT_DATA_LANES]; /* while the epoch that began a segment is not committed */
	uint32_t segment, oldest_segment;
	struct dedup dedup;
	bool active;
	bool bare; /* the active epoch: of its blocks only the digests are stored */
	uint32_t number; /* of the active epoch, else of the next */
	uint64_t stored;
	bool lacks, dropped; /* the active epoch lacks contents; those that it had are rolled back */
	bool digests_only;   /* for all epochs from this one on: */
	uint32_t digests_only_since;
	char digests_only_reason[512];

	pthread_mutex_t images, json;
	pthread_mutex_t writing[TT_DATA_LANES];
	struct compressor compressors[TT_DATA_LANES]; /* guarded by the lanes' locks */
};

/* False, without the lock: the store accepts nothing any more. */
bool store_enter(store *s, pthread_mutex_t *m, struct visit *v);
void store_leave(pthread_mutex_t *m, struct visit v);

bool store_has_failed(const store *s);
/* Keeps the first reason. Returns false, for the caller to return. */
bool store_fail(store *s, const char *what, const char *path, int error);
bool store_fail_write(store *s, const struct file *f); /* with errno */
/* Appends a whole record or nothing. */
bool store_append(store *s, struct file *f, const void *record, size_t size);

/* Caller holds `records`, or is the store's only user. False: with errno. */
bool store_begin_records(store *s, enum records which);
/* Writes buffered records. Caller holds `records`. */
bool store_flush_records(store *s);

/* Caller holds `capture`. */
bool store_begin_data(store *s, struct store_lane *lane, uint32_t index);
void store_roll_back(store *s); /* drops what the active epoch wrote */

#endif
