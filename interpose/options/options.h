/*
 * What the user asked for: the TT_ environment variables, read once.
 */
#ifndef TT_OPTIONS_OPTIONS_H
#define TT_OPTIONS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "options/delay_config.h"
#include "options/triggers.h"

/* What is submitted after a capture waits for it: nothing, all of it, or launches only where they name memory that it reads. */
enum deps { DEPS_OFF, DEPS_DEVICE, DEPS_REGION };
/* Whose functions call stacks are made of; auto: Python's where the thread is in any, else native ones; mixed: both. */
enum callstacks { CALLSTACKS_OFF, CALLSTACKS_AUTO, CALLSTACKS_PYTHON, CALLSTACKS_BACKTRACE, CALLSTACKS_MIXED };
/* Of kernels' launches: events with call stacks, which dedup and full only write differently, without, or none. */
enum kernel_events { KERNEL_EVENTS_DEDUP, KERNEL_EVENTS_FULL, KERNEL_EVENTS_NOSTACK, KERNEL_EVENTS_OFF };
/* What says when the GPU did what calls asked for. */
enum timeline { TIMELINE_OFF, TIMELINE_EVENTS, TIMELINE_CUPTI };
/* What TT_LAUNCH_DELAY makes late: streams, calls, or both. */
enum launch_delays { LAUNCH_DELAYS_BOTH, LAUNCH_DELAYS_STREAM, LAUNCH_DELAYS_HOST };
enum overwrite_policy { OVERWRITE_BACKPRESSURE, OVERWRITE_DROP_OLDEST, OVERWRITE_FAIL };

struct options {
	bool events;
	bool touched; /* regions: touched instead of all */
	enum deps deps;
	bool deterministic;
	struct occasions epoch;
	uint32_t snapshot_every;
	uint32_t retain;
	uint32_t compress; /* level of zstd, 0: none */
	uint64_t max_disk; /* as disk_limit takes it */
	enum overwrite_policy overwrite;
	uint64_t ring_bytes; /* 0: chosen by what is free */
	uint32_t stall_ms;
	uint64_t timeout_ms; /* after which the process is ended, 0: none */
	bool params; /* of launches are recorded */
	bool replayable;     /* launches are recorded so that they can be run again */
	struct expressions kernel;  /* of these kernels; none: of all */
	uint32_t max_per_kernel; /* at most so many of each, 0: all */
	bool crash_safe;         /* what they find is on disk before they begin */
	bool nvtx;   /* so are annotations */
	enum callstacks callstacks;
	bool launch_events; /* launches of kernels leave events */
	bool launch_stacks; /* with call stacks, as those of graphs then have */
	enum timeline timeline;
	uint32_t launch_delay_ns; /* how late some calls that submit work are, 0: none is */
	enum launch_delays launch_delays;
	uint64_t delay_seed; /* which */
	uint32_t delay_ns, delay_min_ns; /* how late points of kernels are, 0: none is */
	enum config_mode delay_mode;
	struct expressions delay_kernel; /* of their names; none: all */
	struct expressions stamps; /* kernels inside graphs that have times of their own where events are what times */
	char control[512];         /* what tt_control is first given */
	bool verbose;
	char delay_patterns[1024]; /* mnemonics with commas; empty: the usual ones */
	char delay_load[4096];
	char out[4096]; /* empty: do not record */
};

extern struct options options;
extern const char *const timeline_names[]; /* by enum timeline */

#define UNKNOWN_VARIABLES 8
/* Variables named as ours are that do not exist, the first of them; the list ends with an empty name. */
struct unknown_variable {
	char name[64];
	const char *nearest; /* a variable that does */
};
extern struct unknown_variable options_unknown[];

/* Fills `options`. False with a one-line reason when a variable can't be understood. */
bool options_read(char *error, size_t error_size);

struct json;
/* The options as used, as a JSON object for process.json. */
void options_json(struct json *j);

#endif
