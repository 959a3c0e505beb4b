/*
 * Chooses delayed instructions and calls by the seed or by a file, and lists them for the run.
 *
 * Invariant: the choice of an instruction depends only on the seed, the checksum of the kernel's
 * code and the position in it. The list has what was chosen, and reading it again gives the same
 * choice.
 */
#ifndef TT_DELAY_POINTS_H
#define TT_DELAY_POINTS_H

#include "store/folder.h"
#include "options/delay_config.h"

struct delay_kernel;

/* What a point does: max_ns for each thread (fixed), a part of min_ns to max_ns for each at random
 * (random), or max_ns for one random block of each cluster (cluster). */
struct delay_choice {
	enum config_mode mode;
	uint32_t min_ns, max_ns, seed;
};

/* When recording begins: reads TT_DELAY_LOAD's file, if that was not done before. */
void delays_open(void);
/* Whether kernels have delay points. The first call reads the file of TT_DELAY_LOAD. */
bool delays_in_kernels(void);
/* Instead of delays there are ways around every instruction, which show that these change nothing. */
bool delays_are_empty(void);
/* The calling thread is about to ask for the kernels of a module; what it asked for is not loaded. */
void delays_of_module(void);
void delays_not_loaded(void);
/*
 * The name is mangled; of code that was seen before, the same. NULL: nothing in it is late. The
 * points of a kernel are asked for by one thread.
 */
struct delay_kernel *delay_kernel(const char *name, uint64_t checksum);
/* built_in: it synchronises, moves memory or waits for that. The mnemonic stays where it is. */
bool delay_point(struct delay_kernel *k, uint64_t pc, const char *mnemonic, bool built_in, struct delay_choice *choice);
/* The point of the last delay_point cannot be patched. */
void delay_point_left(struct delay_kernel *k);
/* Whether one block of each cluster of a kernel is delayed. */
bool delays_by_cluster(const char *name);
/* Ends the points of a kernel. why: NULL, or why none of them is delayed. */
void delay_kernel_done(struct delay_kernel *k, const char *why);

/* Which delays a call gets (TT_EVENTF_DELAYED…), and how long they are. */
uint32_t delay_chosen(uint64_t stream, uint64_t number, uint32_t *ns);
/* Lists the delays that a call got; flags 0: none. */
void delay_list(uint64_t stream, uint64_t number, uint32_t flags, uint32_t ns);

/* The list into the run, at its end; says what a file asked for that there was not. */
void delays_write(const struct folder *folder);

#endif
