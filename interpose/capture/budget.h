/*
 * --max-overhead: measures what recording costs the program, and skips epochs to stay within the limit.
 *
 * Invariant: each skipped epoch has its number and its record (tt_epoch.skipped), in the order of numbers. Without
 * the option nothing is measured and nothing is skipped. The capture lock guards all but the sums of
 * time.
 */
#ifndef TT_CAPTURE_BUDGET_H
#define TT_CAPTURE_BUDGET_H

#include "capture/capture.h"

struct json;

/* Starts to measure time that a thread of the program spends here; 0 without the option. */
uint64_t budget_begin(void);
/* What that time was for: an epoch that was cut, other work for epochs, or what a call needs beside its event. */
enum budget_part { BUDGET_EPOCH, BUDGET_OTHER, BUDGET_CALL };
void budget_end(uint64_t begun, enum budget_part part);
/* Whether another epoch keeps to the limit. Always true for the first and the last epoch of a context. */
bool budget_allows(const struct capture *p, uint32_t trigger, uint64_t now);
/* Skips the epoch of a context: it gets a number, and a record later. */
void budget_skip(struct context *c, const struct tt_epoch *like);
/*
 * The last epoch of a context, with nothing done since its last epoch was skipped, is that epoch: takes the skip back,
 * so that the same program has the same epochs with and without the option.
 */
void budget_take_back(struct context *c, struct tt_epoch *like);
/* Gives the records of skipped epochs to the drain. Call before an epoch is cut, and before a capture is destroyed. */
void budget_flush(void);
/* Charges the expected GPU time of a capture, which is returned; the drain replaces it with the measured time. */
uint64_t budget_expect(void);
void budget_captured(struct pending *q);
/* What it cost, as the member "overhead" of process.json: null without the option. */
void budget_json(struct json *j);
void budget_forget(void); /* in a forked child */

#endif
