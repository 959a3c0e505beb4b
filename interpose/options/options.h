/*
 * The user's options: the TT_ environment variables, read once. option_table.h lists them.
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
/* What TT_LAUNCH_DELAY delays: streams, calls, or both. */
enum launch_delays { LAUNCH_DELAYS_BOTH, LAUNCH_DELAYS_STREAM, LAUNCH_DELAYS_HOST };
enum stored_contents { CONTENTS_NONE, CONTENTS_CHANGED, CONTENTS_ALL };
enum overwrite_policy { OVERWRITE_BACKPRESSURE, OVERWRITE_DROP_OLDEST, OVERWRITE_FAIL };

/* What new allocations of device memory hold. */
enum fill { FILL_OFF, FILL_ZERO, FILL_ONES, FILL_PATTERN };

/* Types of fields, by the kind of option. */
#define FIELD_SWITCH(field) bool field
#define FIELD_COUNT(field) uint32_t field
#define FIELD_SEED(field) uint64_t field
#define FIELD_CHOICE(field) uint32_t field
#define FIELD_SIZE(field) uint64_t field
#define FIELD_DISK(field) uint64_t field /* as disk_limit takes it */
#define FIELD_FILL(field) \
	struct { \
		enum fill kind; \
		uint64_t seed; \
	} field
#define FIELD_SECONDS(field) uint64_t field
#define FIELD_REGEX(field) struct expressions field
#define FIELD_TRIGGERS(field) struct occasions field
#define FIELD_CONTROL(field) char field[512]
#define FIELD_PATTERNS(field) char field[1024]
#define FIELD_PATH(field) char field[4096]

struct options {
#define OPTION(name, field, kind, ...) FIELD_##kind(field);
#include "options/option_table.h"
	bool launch_events; /* launches of kernels leave events */
	bool launch_stacks; /* with call stacks, as those of graphs then have */
};

extern struct options options; /* all 0 where the environment has no TT_OUT: nothing is recorded */

#define UNKNOWN_VARIABLES 8
/* Warnings about unknown variables that start with TT_; the list ends with an empty line. */
extern char options_unknown[UNKNOWN_VARIABLES + 1][160];

/* Fills `options` and options_unknown. False with a one-line reason when a variable can't be understood. */
bool options_read(char *error, size_t size);
/* The same for any environment. as_option: which of them, by their order in option_table.h, came as options of the
 * command line and are named so in the reason; NULL: all are variables. */
bool options_read_from(char *const *environment, const unsigned char *as_option, char *error, size_t size);
/* Whether a variable can have this value; else with a one-line reason. */
bool options_check(const char *name, const char *value, char *why, size_t size);

struct json;
/* The options as used, as a JSON object for process.json. */
void options_json(struct json *j);

#endif
