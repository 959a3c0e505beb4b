/*
 * The report when a context is lost or something ends the process: in-flight work, its callers, and
 * the last complete epoch. It goes to standard error and process.json.
 *
 * Invariant: a process that ends normally gets no report. A report is one write of bounded length,
 * made within a bounded time.
 */
#ifndef TT_LIFECYCLE_CRASH_REPORT_H
#define TT_LIFECYCLE_CRASH_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/driver.h"
#include "format.h"

struct context;

/*
 * A call of the program or of the recorder returned an error of a lost context; seq: 0 if the call is not recorded.
 */
void crash_report_result(struct context *c, CUresult r, const char *call, uint64_t seq);
/*
 * The process is being ended: what: "signal 15 (SIGTERM)"; reason: as in the run, "signal 15". limit: it is one of the
 * options.
 */
void crash_report_ending(const char *what, const char *reason, bool limit);
/* The files are complete. May be repeated. */
void crash_report_ended(void);
/* The epoch is in the files. */
void crash_report_epoch(const struct tt_epoch *e);

#endif
