/*
 * What the user asked for: the TT_ environment variables, read once.
 */
#ifndef TT_OPTIONS_H
#define TT_OPTIONS_H

#include <regex.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is submitted after a capture waits for it: nothing, all of it, or launches only where they name memory that it reads. */
enum deps { DEPS_OFF, DEPS_DEVICE, DEPS_REGION };
/* Whose functions call stacks are made of; auto: Python's where the thread is in any, else native ones. */
enum callstacks { CALLSTACKS_OFF, CALLSTACKS_AUTO, CALLSTACKS_PYTHON, CALLSTACKS_BACKTRACE };
enum overwrite_policy { OVERWRITE_BACKPRESSURE, OVERWRITE_DROP_OLDEST, OVERWRITE_FAIL };

struct options {
	bool events;
	bool touched; /* regions: touched instead of all */
	enum deps deps;
	bool deterministic;
	bool epoch_sync, epoch_copy, epoch_kernel, epoch_api;
	uint32_t epoch_launch; /* after every Nth launch, 0 = never */
	uint32_t snapshot_every;
	uint32_t retain;
	uint32_t compress; /* level of zstd, 0: none */
	enum overwrite_policy overwrite;
	uint64_t ring_bytes; /* 0: chosen by what is free */
	uint32_t stall_ms;
	bool params; /* of launches are recorded */
	enum callstacks callstacks;
	bool verbose;
	regex_t kernel; /* valid where epoch_kernel */
	char out[4096]; /* empty: do not record */
};

extern struct options options;

/* Fills `options`. False with a one-line reason when a variable can't be understood. */
bool options_read(char *error, size_t error_size);

struct json;
/* The options as used, as a JSON object for process.json. */
void options_json(struct json *j);

#endif
