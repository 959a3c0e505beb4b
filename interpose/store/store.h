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
	bool deterministic; /* times are 0 in files that manifests or comparisons cover */
	unsigned retain;    /* epochs to keep on disk; 0: all */
	enum tt_encoding encoding; /* PLANES: contents come in it; ZSTD: compress_open has succeeded */
	int level;          /* of zstd */
	uint64_t max_disk;  /* as in disk_limit */
	const uint32_t *rank; /* of the process in its job; NULL: none */
} store_config;

/* NULL: failure; error is one line. Creates run_dir and its next pN; replaces no other file. */
store *store_open(const store_config *config, char *error, size_t error_size);
/*
 * Ends all appends, so that store_files can write the sizes and checks of files into process.json. Before that, or
 * if a thread keeps a lock, store_files writes nothing.
 */
void store_seal(store *s);
void store_files(store *s, struct json *j);
void store_close(store *s); /* writes manifest.json and closes; the caller has written process.json */
bool store_failed(const store *s, char *reason, size_t size);
unsigned store_process_index(const store *s);
const char *store_directory(const store *s); /* RUN/pN */
const struct folder *store_folder(const store *s);

/* Interned: the offset of its record in strings.bin; TT_NO_ID for NULL or after a failure. */
uint32_t store_string(store *s, const char *text);
char *store_text(store *s, uint32_t offset); /* of an offset from store_string; the caller frees it; NULL: failure */
/* Fill in check. Written at the next commit of an epoch, or by store_idle. */
bool store_region(store *s, struct tt_region *r);
bool store_label(store *s, struct tt_label *l);
/* Writes them: call it some times per second. */
void store_idle(store *s);
bool store_frames(store *s, struct tt_frame *frames, size_t count); /* a whole call stack; fills in check */
bool store_function(store *s, struct tt_function *f);
bool store_launch(store *s, struct tt_launch *l);  /* fills in check */
bool store_traced(store *s, struct tt_traced *t);  /* fills in check */
bool store_tensor_map(store *s, struct tt_tensor_map *m);  /* fills in check */
/* A chunk of trace records; false also if there is no room for contents. */
bool store_trace(store *s, const void *records, uint32_t bytes, uint64_t count);
/* Records with their data; their data offsets are relative to `data`. Fills in positions and checks. */
bool store_graph(store *s, struct tt_graph_record *records, size_t count, const uint8_t *data, size_t size);
/* Saves machine code or the like under its hash, and returns that; 0: it failed. */
uint64_t store_image(store *s, const void *image, size_t size);
/* saves image (may be NULL) under its hash; fills in m->image, m->size and check */
bool store_module(store *s, struct tt_module *m, const void *image, size_t size);

/*
 * One epoch at a time: begin, then any of find, blocks and digest, then commit or abandon. From one
 * thread, but that blocks with contents may come from several at once, each for a lane of its own.
 */
/* contents false: only digests of its blocks are stored. store_blocks then takes no contents, and ignores offsets. */
bool store_epoch_begin(store *s, uint32_t number, bool full, bool contents);
/* Positions of the blocks' contents, by digest and length, in the current segment; 0: not stored. */
bool store_find(store *s, const struct tt_block *blocks, size_t count, uint64_t *places);
/*
 * contents NULL: each block's offset is the position from store_find. Otherwise offsets are relative to contents,
 * in multiples of TT_CHUNK_ALIGN, and contents that the segment lacks are appended to the lane's data file. Fills
 * in offset and segment.
 */
bool store_blocks(store *s, struct tt_block *blocks, size_t count, const void *contents, unsigned lane);
/* False: there was no room for contents; store_blocks then takes none, and commits mark epochs that lack some. */
bool store_takes_contents(const store *s);
/* The first epoch without contents, and the reason in one line; false while contents are stored. */
/* Errno of why some records lack their texts; 0: none does. */
int store_texts_lost(const store *s);
bool store_digests_only(const store *s, uint32_t *since, char *reason, size_t size);
bool store_digest(store *s, uint32_t region, uint64_t digest, uint32_t changed);
/*
 * The caller sets number, trigger, flags, context, device, seq, time_ns, label, bytes_read, bytes_changed and
 * regions of e; the rest is filled in. Deletes segments that config.retain no longer needs.
 */
bool store_epoch_commit(store *s, struct tt_epoch *e);
void store_epoch_abandon(store *s);

/*
 * Replaces RUN/pN/process.json by json (a JSON object without a newline at its end) and regenerates RUN/run.json.
 */
bool store_process(store *s, const char *json);

/* In a forked child: closes the descriptors without touching the files. */
void store_forget(store *s);

#endif
