/*
 * The loader of runs: pieces that are what the toolkit makes of a run, files that are anything, and
 * events that are anything.
 */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "util/xxh3.h"
#include "format.h"
#include "fuzz.h"
#include "load/digests.h"
#include "load/load.h"
#include "load/manifest_digests.h"
#include "load/recompute.h"

#define BUFFER 4096u
#define READS 4u
#define EVENT_KINDS (TT_EVENT_QUERY + 1)

static uint8_t device[BUFFER];

static CUresult create(CUevent *event, unsigned flags)
{
	(void)flags;
	*event = (CUevent)device;
	return CUDA_SUCCESS;
}

static CUresult of_event(CUevent event)
{
	(void)event;
	return CUDA_SUCCESS;
}

static CUresult copy(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
	(void)stream;
	memcpy(device + to, from, size);
	return CUDA_SUCCESS;
}

static CUresult record(CUevent event, CUstream stream)
{
	(void)event;
	(void)stream;
	return CUDA_SUCCESS;
}

static void load(const uint8_t *data, size_t size, int file)
{
	static const struct tt_load_driver driver = {NULL, NULL, create, of_event, of_event, copy, record};
	struct tt_load_read reads[READS];
	struct tt_load_block blocks[READS];
	struct tt_load_copy copies[READS];
	struct tt_load_piece pieces[READS + 1];
	struct tt_load_thread thread = {0};
	uint32_t at = 0, each = BUFFER / READS;

	for (uint32_t i = 0; i < READS; i++) {
		uint32_t word = 0;
		memcpy(&word, data + i * sizeof(word) % (size - sizeof(word) + 1), sizeof(word));
		uint32_t bytes = word % each;
		reads[i] = (struct tt_load_read){word >> 16, at, bytes, file, 0};
		blocks[i] = (struct tt_load_block){word & 1 ? xxh3_64(data, bytes < size ? bytes : size) : word, at, bytes};
		copies[i] = (struct tt_load_copy){at, at, bytes};
		pieces[i] = (struct tt_load_piece){i, i, i};
		at += each;
	}
	pieces[READS] = (struct tt_load_piece){READS, READS, READS};
	for (uint32_t check = 0; check < 2; check++) {
		struct tt_load_work work = {&driver, pieces, reads, blocks, copies, READS, check, 0, 0};
		thread.buffers[0].memory = malloc(BUFFER);
		thread.buffers[1].memory = malloc(BUFFER);
		void *buffers[] = {thread.buffers[0].memory, thread.buffers[1].memory};
		tt_load(&work, &thread);
		tt_load_release(&driver, &thread);
		free(buffers[0]);
		free(buffers[1]);
	}
}

static void manifest(const uint8_t *data, size_t size)
{
	size_t pairs = size / TT_MANIFEST_PAIR + 1, objects = size / TT_MANIFEST_OBJECT + 1;
	struct tt_manifest_digests found = {malloc(pairs * sizeof(uint32_t)),   malloc(pairs * sizeof(uint64_t)),
					    malloc(objects * sizeof(uint32_t)), malloc(objects * sizeof(uint64_t)),
					    malloc(objects * sizeof(uint64_t)), 0};
	char *text = fuzz_copy(data, size);

	if (tt_manifest_digests(text, size, &found) > size)
		abort();
	free(text);
	free(found.regions);
	free(found.digests);
	free(found.counts);
	free(found.begins);
	free(found.ends);
}

/* Digests and blocks of two regions, with rows and blocks that may not exist. */
static void recompute(const uint8_t *data, size_t size)
{
	struct tt_region_state regions[2] = {{0, 2, 0, 0, 0, 0, 1}, {2, 1, 0, 0, 0, 0, 1}};
	uint64_t words[3] = {0}, count = size / (2 * sizeof(uint64_t));
	uint32_t *numbers = fuzz_copy(data, size);
	uint64_t *digests = fuzz_copy(data, size);
	uint8_t *bytes = fuzz_copy(data, size), *known = malloc(count + 1);
	struct tt_recompute work = {regions, 2,     words, 3,       numbers,         numbers + count,     bytes,
				    digests, known, count, numbers, numbers + count, numbers + 2 * count, digests,
				    bytes,   count};

	tt_recompute(&work);
	free(numbers);
	free(digests);
	free(bytes);
	free(known);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int file = -1;
	size_t count = size / sizeof(struct tt_event);
	struct tt_event *events = fuzz_copy(data, count * sizeof(*events));
	uint32_t *checks = calloc(count + 1, sizeof(*checks));
	uint64_t *digests = calloc(count + 1, sizeof(*digests));

	tt_digests(events, count, sizeof(*events), sizeof(*events), digests);
	tt_event_checks(events, count, checks);
	if (tt_wrong_event(events, count, EVENT_KINDS) > count)
		abort();
	for (size_t i = 0; i < count; i++) /* put right, what is left to be wrong is its members */
		events[i].check = checks[i];
	if (tt_wrong_event(events, count, EVENT_KINDS) > count)
		abort();
	free(digests);
	free(checks);
	free(events);
	manifest(data, size);
	recompute(data, size);
	if (size < sizeof(uint32_t))
		return 0;
	if (file < 0)
		file = memfd_create("run", MFD_CLOEXEC);
	if (ftruncate(file, 0) || pwrite(file, data, size, 0) != (ssize_t)size)
		abort();
	load(data, size, file);
	return 0;
}
