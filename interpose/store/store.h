/*
 * The run directory: creates it, appends records, commits epochs, writes the JSON files.
 *
 * Invariant: after any prefix of these calls, the files on disk are a valid run up to the last
 * committed epoch. Every function is safe from any thread. After a failure (directory gone, no room
 * for records) the store stays failed: calls return false at once, the first reason is kept, and
 * nothing raises a signal or aborts. Only store_process and store_close still write what they can,
 * so that the failure itself is recorded.
 */
#ifndef TT_STORE_STORE_H
#define TT_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format.h"
#include "store/folder.h"
#include "util/json_writer.h"

typedef struct store store;

typedef struct {
	const char *run_dir;
	bool deterministic; /* times in files that manifests or comparisons cover are written as 0 */
	unsigned retain;    /* epochs to keep on disk, 0 = all */
	int compress;       /* level of zstd, 0 = contents as they are; compress_open has given true */
	uint64_t max_disk;  /* as disk_limit takes it */
	bool digests_only;  /* epochs have no contents */
} store_config;

/* NULL on failure with a one-line reason. Creates run_dir and its next pN; takes no other file. */
store *store_open(const store_config *config, char *error, size_t error_size);
/*
 * From here on nothing is appended, and store_files can say how the files end: its members of
 * process.json's `files`. Until then, or where a thread keeps a lock for long, it says nothing.
 */
void store_seal(store *s);
void store_files(store *s, struct json *j);
void store_close(store *s); /* writes manifest.json, closes; process.json is the caller's last store_process */
bool store_failed(const store *s, char *reason, size_t size);
unsigned store_process_index(const store *s);
const char *store_directory(const store *s); /* RUN/pN */
const struct folder *store_folder(const store *s);

/* Interned: its record's offset from the very beginning of strings.bin; TT_NO_ID for NULL or on failure. */
uint32_t store_string(store *s, const char *text);
char *store_text(store *s, uint32_t offset); /* of one that it gave; free() it. NULL on failure */
bool store_region(store *s, struct tt_region *r);  /* fills in check */
bool store_label(store *s, struct tt_label *l);    /* fills in check; on disk from the next epoch's commit on */
bool store_frames(store *s, struct tt_frame *frames, size_t count); /* a whole stack; fills in check */
bool store_function(store *s, struct tt_function *f);
bool store_launch(store *s, struct tt_launch *l);  /* fills in check */
/* Records with their data, whose offsets count from `data`; fills in where it went and the checks. */
bool store_graph(store *s, struct tt_graph_record *records, size_t count, const uint8_t *data, size_t size);
/* saves image (may be NULL) under its hash, fills in m->image, m->size and check */
bool store_module(store *s, struct tt_module *m, const void *image, size_t size);

/*
 * One epoch at a time: begin, then any of find, blocks and digest, then commit or abandon. From one
 * thread, but that blocks with contents may come from several at once, each for a lane of its own.
 */
bool store_epoch_begin(store *s, uint32_t number, bool full);
/* Which of these blocks' contents, by digest and length, the current segment has: their places, 0 for the others. */
bool store_find(store *s, const struct tt_block *blocks, size_t count, uint64_t *places);
/*
 * contents NULL: each block's offset is the place that store_find gave. Otherwise the offsets count
 * from contents, in multiples of TT_CHUNK_ALIGN, and what the segment lacks of it is appended to
 * the lane's data file. Fills in offset and segment.
 */
bool store_blocks(store *s, struct tt_block *blocks, size_t count, const void *contents, unsigned lane);
/* False once there was no room for contents: store_blocks takes none then, and commits mark epochs that lack any. */
bool store_takes_contents(const store *s);
/* Since which epoch, and in one line why; false while it takes contents. */
/* Why the texts of some records are missing, by errno; 0 where none is. */
int store_texts_lost(const store *s);
bool store_digests_only(const store *s, uint32_t *since, char *reason, size_t size);
bool store_digest(store *s, uint32_t region, uint64_t digest, uint32_t changed);
/* e: number, trigger, flags, context, device, seq, time_ns, label, bytes_read, bytes_changed, regions are the
 * caller's; the rest is filled in. Also deletes segments that config.retain no longer needs. */
bool store_epoch_commit(store *s, struct tt_epoch *e);
void store_epoch_abandon(store *s);

/* Replaces RUN/pN/process.json by text (a JSON object without newline at its end) and regenerates RUN/run.json. */
bool store_process(store *s, const char *json);

/* In a fork's child: lets go of the descriptors without touching the files. */
void store_forget(store *s);

#endif
