/*
 * The arena's resources in each context: a stream, the fill kernel and the driver's pitch.
 */
#include "arena/parts.h"

#include <stdlib.h>

static struct arena_resources *find(const struct context *c)
{
	struct arena_resources *h = arena.resources;

	while (h && h->context != c)
		h = h->next;
	return h;
}

/* Device memory that the stream and the kernel use counts as the recorder's. */
static struct arena_resources *make(struct context *c)
{
	struct arena_resources *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->context = c;
	CUstreamCaptureMode mode = capture_mode_relax();
	uint64_t before = context_free_bytes();
	bool ok = real.cuStreamCreateWithPriority(&h->stream, CU_STREAM_NON_BLOCKING, -100) == CUDA_SUCCESS;
	if (ok && (options.fill.kind == FILL_PATTERN || options.zones))
		arena_load_fill(h);
	context_account(c, before);
	capture_mode_restore(mode);
	if (ok)
		return h;
	free(h);
	return NULL;
}

struct arena_resources *arena_resources_of(struct context *c)
{
	pthread_mutex_lock(&arena.lock);
	struct arena_resources *h = find(c);
	pthread_mutex_unlock(&arena.lock);
	if (h)
		return h;
	struct arena_resources *made = make(c);
	if (!made)
		return NULL;
	pthread_mutex_lock(&arena.lock);
	if (!(h = find(c))) {
		made->next = arena.resources;
		h = arena.resources = made;
	}
	pthread_mutex_unlock(&arena.lock);
	if (h != made) {
		real.cuStreamDestroy_v2(made->stream);
		free(made);
	}
	return h;
}

uint64_t arena_pitch(struct context *c, uint64_t width, unsigned element)
{
	struct arena_resources *h = element == 4 || element == 8 || element == 16 ? arena_resources_of(c) : NULL;
	size_t pitch = 0;
	CUdeviceptr row;

	if (!h || !width || width > ARENA_STRIDE)
		return 0;
	pthread_mutex_lock(&arena.lock);
	pitch = h->pitch;
	pthread_mutex_unlock(&arena.lock);
	if (!pitch) {
		if (arena_capture_matters() || real.cuMemAllocPitch_v2(&row, &pitch, 1, 1, 4) != CUDA_SUCCESS || !pitch)
			return 0;
		pthread_mutex_lock(&arena.lock);
		bool second = h->pitch != 0; /* another thread was first */
		if (!second) {
			h->row = row;
			h->pitch = pitch;
			atomic_fetch_add(&arena_state.serial, 1);
		}
		pthread_mutex_unlock(&arena.lock);
		if (second)
			real.cuMemFree_v2(row);
	}
	return (width + pitch - 1) / pitch * pitch;
}

void arena_drop_row(const struct context *c)
{
	CUdeviceptr row = 0;

	pthread_mutex_lock(&arena.lock);
	struct arena_resources *h = find(c);
	if (h) {
		row = h->row;
		h->row = 0;
	}
	pthread_mutex_unlock(&arena.lock);
	if (row)
		real.cuMemFree_v2(row);
}

void arena_resources_gone(const struct context *c)
{
	for (struct arena_resources **h = &arena.resources; *h;) {
		struct arena_resources *gone = *h;

		if (gone->context != c) {
			h = &gone->next;
			continue;
		}
		*h = gone->next;
		free(gone);
	}
}
