/*
 * How the recorder asks the simulator to delay statements of kernels: the simulator exports ttSimDelays, and its
 * interpreter holds up warps there, as delays in machine code would.
 */
#ifndef TT_SIM_DELAY_H
#define TT_SIM_DELAY_H

#include <stdbool.h>
#include <stdint.h>

struct tt_sim_delay {
	uint32_t ns, min_ns; /* min_ns: the least of a random time, else the same as ns */
	uint32_t seed;
	bool cluster;   /* only in one block of each cluster: number `block` there, counted from 1, 0: by the seed */
	uint32_t block;
};

/* Functions that choose. The simulator calls them when it loads a module, one thread at a time. */
struct tt_sim_delays {
	/* NULL: nothing in this kernel is delayed. checksum: of its statements. */
	void *(*kernel)(const char *name, uint64_t checksum);
	/* Statement `number` of the kernel, from 0. mnemonic: its PTX opcode up to the first dot; it stays valid. */
	bool (*statement)(void *kernel, uint64_t number, const char *mnemonic, const char *opcode,
			  struct tt_sim_delay *delay);
	void (*done)(void *kernel);
};

/* For the modules that are loaded from now on. */
typedef void tt_sim_delays_set(const struct tt_sim_delays *choose);

#endif
