/*
 * Delay configurations: a JSON file with the delayed instructions and calls.
 *
 * Invariant: a file may come from anywhere. A file that does not follow docs/format.md is refused as a whole, with
 * position and reason in one line.
 */
#ifndef TT_OPTIONS_DELAY_CONFIG_H
#define TT_OPTIONS_DELAY_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum config_mode { CONFIG_RANDOM, CONFIG_FIXED, CONFIG_CLUSTER, CONFIG_CLUSTER_FIXED };

#define CONFIG_MNEMONIC 24

struct config_point {
	uint64_t pc;
	uint32_t delay, cluster_seed;
	bool on;
	bool used; /* the run had this point */
	char mnemonic[CONFIG_MNEMONIC];
};

struct config_kernel {
	char *name;
	uint64_t checksum;
	bool has_checksum;
	struct config_point *points; /* sorted by pc */
	size_t count, room;
	bool used;
};

/* A delayed call: its number among the calls of its stream that may be delayed. */
struct config_launch {
	uint64_t stream, number;
	uint32_t delay;
	bool on, in_stream, in_call;
};

struct delay_config {
	uint32_t delay_ns, min_ns;
	enum config_mode mode;
	bool foreign;   /* of CUTracer: without mode and min_ns, with checksums of the code's text */
	uint32_t block; /* the rank of the delayed block in its cluster, counted from 1; 0: chosen by each point */
	uint64_t seed;
	struct config_kernel *kernels; /* sorted by checksum */
	size_t kernel_count, kernel_room;
	struct config_launch *launches; /* sorted by stream and number */
	size_t launch_count, launch_room;
};

/* NULL with a one-line reason. */
struct delay_config *config_load(const char *path, char *why, size_t size);
void config_free(struct delay_config *c);

/* NULL: not in the file. */
struct config_kernel *config_find_kernel(struct delay_config *c, const char *name, uint64_t checksum);
/* Code that is compared with the kernels of a foreign file. */
struct foreign_code {
	bool (*has_checksum)(const struct foreign_code *code, uint64_t checksum);
	const char *(*mnemonic_at)(const struct foreign_code *code, uint64_t pc); /* NULL: no instruction */
};

/*
 * The kernel of a foreign file with this name and the checksum of the code; else one whose points are on instructions
 * with their mnemonics.
 */
struct config_kernel *config_find_foreign(struct delay_config *c, const char *name, const struct foreign_code *code);
struct config_point *config_find_point(struct config_kernel *k, uint64_t pc);
const struct config_launch *config_find_launch(const struct delay_config *c, uint64_t stream, uint64_t number);

#endif
