/*
 * Crash reports for process.json.
 */
#ifndef TT_LIFECYCLE_CRASH_REPORT_JSON_H
#define TT_LIFECYCLE_CRASH_REPORT_JSON_H

#include <stdint.h>

#define CALLING_THREADS 16

struct inflight;
struct json;

/* Threads inside a driver call. */
struct calling_threads {
	struct calling_thread {
		uint32_t tid, call, stack;
	} list[CALLING_THREADS];
	unsigned count;
};

/*
 * warps: what those of unfinished launches do, as JSON, or NULL. call: NULL if it was not the result of a call. Keeps only the
 * first few reports.
 */
void crash_report_keep(const struct inflight *in, const struct calling_threads *threads, const char *warps, const char *reason,
		       const char *call, uint64_t seq);
/* The kept reports, as a list. */
void crash_reports_json(struct json *j);

#endif
