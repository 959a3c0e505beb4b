/*
 * Chooses delayed instructions and calls by the seed or by a file, and lists them for the run.
 *
 * Invariant: the choice of an instruction depends only on the seed, the checksum of the kernel's code and the
 * position in it. The list has all choices, and reading it again gives the same choices.
 */
#ifndef TT_DELAY_POINTS_H
#define TT_DELAY_POINTS_H

#include "store/folder.h"
#include "options/delay_config.h"

struct delay_kernel;

/*
 * The delay of a point: max_ns for each thread (fixed); a random time from min_ns to max_ns for each warp (random);
 * or the same for one block of each cluster (cluster_fixed and cluster), which is chosen as delay_config.block says.
 */
struct delay_choice {
	enum config_mode mode;
	uint32_t min_ns, max_ns, seed, block;
};

/* Call when recording begins: reads TT_DELAY_LOAD's file, unless that was done before. */
void delays_open(void);
/* Whether kernels have delay points. The first call reads the file of TT_DELAY_LOAD. */
bool delays_in_kernels(void);
/* Whether each instruction gets an empty detour instead of delays, to show that detours change nothing. */
bool delays_are_empty(void);
/* The calling thread will ask for the kernels of a module; the previous module was not loaded. */
void delays_of_module(void);
void delays_not_loaded(void);
/*
 * name: mangled. Known code gives the same kernel. NULL: nothing in it is delayed. One thread at a time asks for
 * the points of a kernel. code: NULL where no file of CUTracer can have delays for it.
 */
struct delay_kernel *delay_kernel(const char *name, uint64_t checksum, const struct foreign_code *code);
/* built_in: it synchronises, moves memory or waits for that. The mnemonic must stay valid. */
bool delay_point(struct delay_kernel *k, uint64_t pc, const char *mnemonic, bool built_in, struct delay_choice *choice);
/* The last point of delay_point cannot be patched. */
void delay_point_left(struct delay_kernel *k);
/* Whether one block of each cluster of a kernel is delayed. */
bool delays_by_cluster(const char *name);
/* Ends the points of a kernel. why: NULL, or why none of them is delayed. */
void delay_kernel_done(struct delay_kernel *k, const char *why);

/* The delays of a call (TT_EVENTF_DELAYED…), and their length. */
uint32_t delay_chosen(uint64_t stream, uint64_t number, uint32_t *ns);
/* Lists the delays of a call; flags 0: none. */
void delay_list(uint64_t stream, uint64_t number, uint32_t flags, uint32_t ns);

/* Writes the list at the end of the run; warns about entries of a file that had no effect. */
void delays_write(const struct folder *folder);

#endif
