/*
 * What marks, ranges and names of the program do in the recording.
 *
 * Each function does what a tool does: it returns the level of a range within its domain and thread, or a number for a
 * range that may end anywhere.
 */
#ifndef TT_NVTX_CALLS_H
#define TT_NVTX_CALLS_H

#include <stdbool.h>
#include <stdint.h>
#include <wchar.h>

#include "nvtx/texts.h"
#include "driver/driver.h"
#include "nvtx_abi.h"

/* An annotation of the program. */
struct said {
	unsigned domain;
	const char *message;
	nvtx_handle registered; /* replaces the message, if not 0 */
	uint32_t color, category, payload_type;
	uint64_t payload;
	struct nvtx_extended extended; /* of TT_PAYLOAD_BYTES */
};

/* narrow: memory for a wide message. */
struct said nvtx_said_with(unsigned domain, const struct nvtx_attributes *a, char narrow[TEXTS_WIDE]);
/* Of a call of the payload extension: its first payload alone. */
struct said nvtx_said_of(unsigned domain, const struct nvtx_extended *payloads, size_t count);

void nvtx_mark(const struct said *s);
int nvtx_push(const struct said *s);
/* Negative: no range to pop. The message counts for nothing, as the range has one. */
int nvtx_pop(const struct said *s);
/* id: another tool's number for the range, or 0. */
uint64_t nvtx_start(const struct said *s, uint64_t id);
void nvtx_end(struct said s, uint64_t id);
void nvtx_name_thread(uint32_t thread, const char *name);
void nvtx_name_stream(CUstream handle, const char *name);

bool nvtx_recording(void);

#endif
