/*
 * Times in options, such as 500us or 2m, and limits for kernels: TT_KERNEL_TIMEOUT.
 */
#ifndef TT_OPTIONS_TIMES_H
#define TT_OPTIONS_TIMES_H

#include <regex.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NS UINT64_C(1)
#define MS UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)

/* A number with optional decimals and a unit; without a unit it counts in `unit` nanoseconds. */
bool time_parse(const char *text, size_t length, uint64_t unit, uint64_t *ns);
/* "expected a time of at most 2m, such as ...": limit in units of `unit`. */
void time_expect(uint64_t limit, uint64_t unit, char *why, size_t size);

#define TIME_LIMITS 16

/* Limits of kernels whose names match; the first one counts. */
struct time_limits {
	unsigned count;
	struct time_limit {
		bool every; /* kernel: there is no expression */
		regex_t names;
		uint64_t ns;
	} list[TIME_LIMITS];
};

/* TIME or REGEX=TIME, separated by semicolons. False with a one-line reason. */
bool time_limits_read(struct time_limits *limits, const char *text, char *why, size_t size);
void time_limits_free(struct time_limits *limits);
/* The limit of a kernel with this name; 0: none. name NULL: unknown. */
uint64_t time_limit_of(const struct time_limits *limits, const char *name);

#endif
