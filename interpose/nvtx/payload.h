/*
 * Payloads with members of their own, as NCCL attaches to its ranges.
 */
#ifndef TT_NVTX_PAYLOAD_H
#define TT_NVTX_PAYLOAD_H

#include <stdbool.h>

#include "format.h"
#include "nvtx_abi.h"

/* Returns whether an annotation has such a payload of a known size. */
bool payload_extended(const struct nvtx_attributes *a, struct nvtx_extended *out);
/* The same of a list of payloads. */
bool payload_first(const struct nvtx_extended *payloads, size_t count, struct nvtx_extended *out);

/* Puts its size and its first bytes, if it has any, into an event. */
void payload_store(struct tt_event *e, const struct nvtx_extended *payload);

#endif
