/*
 * PTX interpreter of the simulator: loads PTX text and runs kernels on the CPU.
 *
 * Invariant: a kernel runs exactly as PTX defines it, or the launch fails with a message that names what
 * is missing.
 */
#ifndef TT_SIM_PTX_PTX_H
#define TT_SIM_PTX_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ptx_module ptx_module;
typedef struct ptx_function ptx_function;
struct tt_sim_trace;
struct tt_sim_delays;

typedef struct {
	const char *name;
	uint64_t address; /* simulated device address, assigned by the caller of ptx_load */
	size_t size, align;
	const void *init; /* size bytes, or NULL for zeros */
	bool constant;
	bool managed; /* declared .attribute(.managed) */
} ptx_global;

typedef struct {
	const char *name;
	size_t param_count, param_bytes;
	const struct ptx_param { size_t offset, size; } *params;
	unsigned registers, shared_bytes, local_bytes, max_threads;
	unsigned cluster[3]; /* that its code demands; 0: none */
} ptx_function_info;

typedef struct {
	/* place one module variable; returns its device address, 0 when out of memory */
	uint64_t (*place_global)(void *user, const ptx_global *g);
	void *user;
} ptx_loader;

/* NULL on failure, with a one-line reason ("line 12: unknown opcode foo.bar") in error. */
ptx_module *ptx_load(const char *text, const ptx_loader *loader, char *error, size_t error_size);
void ptx_unload(ptx_module *m);
/* Before the first launch. False: no memory. */
bool ptx_delay(ptx_module *m, const struct tt_sim_delays *choose);
const ptx_function *ptx_find_function(const ptx_module *m, const char *name);
size_t ptx_function_count(const ptx_module *m);
const ptx_function *ptx_function_at(const ptx_module *m, size_t index);
const ptx_function_info *ptx_info(const ptx_function *f);
bool ptx_find_global(const ptx_module *m, const char *name, uint64_t *address, size_t *size);

typedef struct {
	unsigned grid[3], block[3], cluster[3];
	unsigned dynamic_shared;
	const void *params; /* param_bytes bytes, laid out as ptx_function_info says */
	bool cooperative;
	uint64_t schedule_seed; /* 0: CTAs and warps in order; else a random order from this seed */
	uint64_t first, count;  /* which blocks, counted in this order; count 0: all from first on */
	/* host pointer for [address, address+size) if the device may access it, else NULL */
	void *(*translate)(void *user, uint64_t address, size_t size, bool write);
	/* describes an address for messages; NULL: by its number */
	void (*describe)(void *user, uint64_t address, char *text, size_t size);
	/* cudaGraphSetConditional; NULL: ignored. False: the handle does not exist */
	bool (*set_condition)(uint64_t handle, uint32_t value);
	void *user;
	uint64_t budget; /* warp instructions until PTX_TIMEOUT; 0: 8 Gi */
	const struct tt_sim_trace *trace; /* what is recorded; NULL: nothing */
	bool deadlocks; /* threads that wait for each other do so for ever; else the launch fails */
	/* The host may access memory before this returns; wait: give it some time. Needed with trace and deadlocks. */
	void (*pause)(bool wait);
} ptx_launch_config;

typedef enum {
	PTX_OK,
	PTX_BAD_ADDRESS,
	PTX_MISALIGNED,
	PTX_TRAP,
	PTX_ASSERT,
	PTX_UNSUPPORTED,
	PTX_TIMEOUT,
	PTX_ILLEGAL
} ptx_status;

/* Runs the grid, or the requested part. error gets kernel, PTX line, thread and address. */
ptx_status ptx_launch(const ptx_function *f, const ptx_launch_config *config, char *error, size_t error_size);

#endif
