/*
 * Runs capture.ptx in the simulator's PTX interpreter for test_kernels.py.
 *
 * Device addresses are host addresses, and a kernel may touch only the ranges it was given,
 * to the byte.
 */
#include <stdlib.h>
#include <string.h>

#include "capture/kernels.h"
#include "sim/ptx/ptx.h"

#define MAX_RANGES 4096

static struct { uint64_t start, end; bool writable; } ranges[MAX_RANGES];
static size_t range_count, last_hit;

void harness_allow(uint64_t start, uint64_t size, bool writable)
{
	if (range_count == MAX_RANGES)
		abort();
	ranges[range_count].start = start;
	ranges[range_count].end = start + size;
	ranges[range_count++].writable = writable;
}

void harness_forbid_all(void)
{
	range_count = last_hit = 0;
}

static bool within(size_t i, uint64_t address, size_t size, bool write)
{
	return i < range_count && address >= ranges[i].start && address + size <= ranges[i].end &&
	       (ranges[i].writable || !write);
}

static struct { uint64_t address; void (*call)(void); } awaited;

/* What another stream or the host does when a kernel writes there next. */
void harness_at_write(uint64_t address, void (*call)(void))
{
	awaited.address = address;
	awaited.call = call;
}

static void *translate(void *user, uint64_t address, size_t size, bool write)
{
	(void)user;
	if (write && awaited.call && address == awaited.address) {
		void (*call)(void) = awaited.call;

		awaited.call = NULL;
		call();
	}
	if (within(last_hit, address, size, write))
		return (void *)(uintptr_t)address;
	for (size_t i = 0; i < range_count; i++)
		if (within(i, address, size, write)) {
			last_hit = i;
			return (void *)(uintptr_t)address;
		}
	return NULL;
}

static struct { uint64_t start; size_t size; } globals[16];
static size_t global_count;

static uint64_t place_global(void *user, const ptx_global *g)
{
	size_t align = g->align < 16 ? 16 : g->align;
	void *p = aligned_alloc(align, (g->size + align - 1) / align * align);

	(void)user;
	if (!p || global_count == 16)
		return 0;
	if (g->init)
		memcpy(p, g->init, g->size);
	else
		memset(p, 0, g->size);
	globals[global_count].start = (uintptr_t)p;
	globals[global_count++].size = g->size;
	return (uintptr_t)p;
}

void *harness_load(const char *text, char *error, size_t error_size)
{
	ptx_loader loader = { place_global, NULL };

	return ptx_load(text, &loader, error, error_size);
}

int harness_launch(void *module, const char *name, unsigned ctas, unsigned threads, uint64_t seed, const void *params,
                   size_t param_bytes, char *error, size_t error_size)
{
	const ptx_function *f = ptx_find_function(module, name);
	ptx_launch_config config = { .grid = { ctas, 1, 1 }, .block = { threads, 1, 1 }, .cluster = { 1, 1, 1 },
		                         .params = params, .schedule_seed = seed, .translate = translate };

	if (!f || ptx_info(f)->param_bytes != param_bytes)
		return -1;
	for (size_t i = 0; i < global_count; i++)
		harness_allow(globals[i].start, globals[i].size, false);
	return ptx_launch(f, &config, error, error_size);
}

uint64_t harness_entry_mix(const struct tt_chunk_entry *e)
{
	return tt_entry_mix(e);
}

uint64_t harness_chunk_mix(const struct tt_chunk *c)
{
	return tt_chunk_mix(c);
}

uint64_t harness_chunk_payload(uint64_t count)
{
	return tt_chunk_payload(count);
}

uint64_t harness_chunk_size(uint64_t count, uint64_t bytes)
{
	return tt_chunk_size(count, bytes);
}

uint64_t harness_payload_size(uint64_t length)
{
	return tt_payload_size(length);
}

int harness_small(uint64_t blocks, uint64_t payload, uint64_t processors)
{
	return tt_digest_small(blocks, payload, processors);
}
