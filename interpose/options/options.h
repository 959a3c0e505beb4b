/*
 * The user's options: the TT_ environment variables, read once. option_table.h lists them.
 */
#ifndef TT_OPTIONS_OPTIONS_H
#define TT_OPTIONS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "options/delay_config.h"
#include "options/times.h"
#include "options/triggers.h"

/* Which later work waits for a capture: none, all, or launches only if they name memory that it reads. */
enum deps { DEPS_OFF, DEPS_DEVICE, DEPS_REGION };
/* Which allocations epochs read. */
enum regions_choice { REGIONS_ALL, REGIONS_TOUCHED, REGIONS_NAMED, REGIONS_ZONES };
/* Functions in call stacks; auto: Python's if the thread is in any, else native ones; mixed: both. */
enum callstacks {
	CALLSTACKS_OFF,
	CALLSTACKS_AUTO,
	CALLSTACKS_PYTHON,
	CALLSTACKS_BACKTRACE,
	CALLSTACKS_MIXED,
	CALLSTACKS_PYTORCH,
	CALLSTACKS_AUTO_GIL, /* these are other names of auto and off, and not in use after options_read */
	CALLSTACKS_1,
	CALLSTACKS_0
};
/*
 * Events of kernel launches: with call stacks (dedup and full differ only in the spelling), without, or no events.
 */
enum kernel_events { KERNEL_EVENTS_DEDUP, KERNEL_EVENTS_FULL, KERNEL_EVENTS_NOSTACK, KERNEL_EVENTS_OFF };
/* The source of GPU times. */
enum timeline { TIMELINE_OFF, TIMELINE_EVENTS, TIMELINE_CUPTI };
/* How the recorder comes to see the program's calls. */
enum entry_way { ENTRY_AUTO, ENTRY_PRELOAD, ENTRY_STUBS, ENTRY_CUPTI };
/* What inserts the code that records instructions. */
enum instrument_way { WAY_AUTO, WAY_PATCHER, WAY_SANITIZER };
/* What TT_LAUNCH_DELAY delays: streams, calls, or both. */
enum launch_delays { LAUNCH_DELAYS_BOTH, LAUNCH_DELAYS_STREAM, LAUNCH_DELAYS_HOST };
/* The alignment of the ends of allocations that lie before unmapped memory, from 4 bytes on. */
enum guard { GUARD_OFF, GUARD_4, GUARD_8, GUARD_16, GUARD_32, GUARD_64, GUARD_128, GUARD_256 };
#define COMPRESS_DEVICE UINT32_MAX

/* When the recorder's threads run. */
enum thread_priority { THREADS_NORMAL, THREADS_IDLE };

enum overwrite_policy { OVERWRITE_BACKPRESSURE, OVERWRITE_DROP_OLDEST, OVERWRITE_FAIL };

/* Contents of new device memory. */
enum fill { FILL_OFF, FILL_KEEP, FILL_ZERO, FILL_ONES, FILL_PATTERN };

static inline uint64_t guard_bytes(enum guard guard)
{
	return guard ? 2u << guard : 0;
}

/* From `first` on, before `end`; end 0: all numbers. */
struct number_range {
	uint64_t first, end;
};

static inline bool in_range(struct number_range r, uint64_t number)
{
	return !r.end || (number >= r.first && number < r.end);
}

/* Types of fields, by the kind of option. */
#define FIELD_SWITCH(field) bool field
#define FIELD_COUNT(field) uint32_t field
#define FIELD_RANK(field) uint32_t field
#define FIELD_SEED(field) uint64_t field
#define FIELD_CHOICE(field) uint32_t field
#define FIELD_WORDS(field) uint32_t field
#define FIELD_RANGE(field) struct number_range field
#define FIELD_PERCENT(field) uint32_t field /* thousandths of a percent; 0: not given */
#define FIELD_SIZE(field) uint64_t field
#define FIELD_DISK(field) uint64_t field /* as for disk_limit */
#define FIELD_COMPRESS(field) uint32_t field /* zstd level, or COMPRESS_DEVICE */
#define FIELD_FILL(field) \
	struct { \
		enum fill kind; \
		uint64_t seed; \
	} field
#define FIELD_TIME_NS(field) uint32_t field
#define FIELD_TIME_MS(field) uint32_t field
#define FIELD_TIME_S(field) uint64_t field
#define FIELD_LIMITS(field) struct time_limits field
#define FIELD_REGEX(field) struct expressions field
#define FIELD_TRIGGERS(field) struct triggers field
#define FIELD_CONTENTS(field) struct stored_contents field
#define FIELD_CONTROL(field) char field[512]
#define FIELD_PATTERNS(field) char field[1024]
#define FIELD_NAMES(field) char field[1024]
#define FIELD_NUMBERS(field) char field[256]
#define FIELD_PATH(field) char field[4096]

struct options {
#define OPTION(name, field, kind, ...) FIELD_##kind(field);
#include "options/option_table.h"
	bool launch_events; /* kernel launches are recorded */
	bool launch_stacks; /* with call stacks, and so are graph launches */
	bool launch_extras; /* they have call stacks or parameters */
	bool plain_launches; /* none begins or ends a window of launches */
	bool deps_of_regions; /* with a launch's parameters, they decide what it waits for */
};

extern struct options options; /* all 0 without TT_OUT: nothing is recorded */

/* Whether text has whole numbers and ranges such as 0,3-5. Sets *holds to whether n is among them. */
bool numbers_read(const char *text, uint64_t n, bool *holds);

#define UNKNOWN_VARIABLES 8
/* Warnings about unknown variables that start with TT_; an empty line ends the list. */
extern char options_unknown[UNKNOWN_VARIABLES + 1][160];

/* Fills `options` and options_unknown. False: a variable is invalid; error is one line. */
bool options_read(char *error, size_t size);
/*
 * The same for any environment. as_option: which variables, in the order of option_table.h, were given as
 * command-line options and are named so in the error; NULL: none.
 */
bool options_read_from(char *const *environment, const unsigned char *as_option, char *error, size_t size);
/* Whether a variable can have this value; else with a one-line reason. */
/* The program's calls come from CUPTI. False: options that were given do not allow it; error says which. */
bool options_enter_by_cupti(char *error, size_t size);
bool options_check(const char *name, const char *value, char *why, size_t size);

struct json;
/* The options in use, as a JSON object for process.json. */
void options_json(struct json *j);

#endif
