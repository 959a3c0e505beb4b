/*
 * The arguments of a launch, and replayable launches.
 */
#ifndef TT_HOOKS_LAUNCH_H
#define TT_HOOKS_LAUNCH_H

#include "hooks/op.h"
#include "instrument/instrument.h"

struct shape {
	CUfunction f;
	unsigned grid[3], block[3], shared;
	uint32_t flags;
	void **params, **extra;
	uint32_t cluster[3];
	const CUlaunchAttribute *attributes;
	unsigned attribute_count;
	struct flight *flight; /* if its instructions are traced */
	bool replaced; /* other code runs: */
	struct launch_arguments runs;
};

/*
 * Cuts the epoch before a launch, unless the last epoch is still valid. True: until replayable_end no other thread
 * submits work, and op->held is set. Leaves the gate.
 */
bool replayable_begin(struct op *op, struct function *f, const struct shape *s);
/* Cuts the epoch after the launch and writes its record; params: those of its event, or NULL. */
void replayable_end(struct op *op, CUresult r, struct function *f, const struct shape *s, const uint8_t *params);

#endif
