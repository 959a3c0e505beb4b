/*
 * Texture and surface objects. See views.h.
 */
#include "track/views.h"

#include <pthread.h>
#include <string.h>

#include "session/session.h"
#include "util/vector.h"

struct live {
	const struct context *context;
	struct tt_view view;
};

static struct {
	struct live *list;
	size_t count, room;
	pthread_mutex_t lock;
} views = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void describe(struct tt_view *v, const CUDA_RESOURCE_DESC *d)
{
	v->resource = (uint32_t)d->resType;
	switch (d->resType) {
	case CU_RESOURCE_TYPE_ARRAY:
		v->address = (uintptr_t)d->res.array.hArray;
		break;
	case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
		v->address = (uintptr_t)d->res.mipmap.hMipmappedArray;
		break;
	case CU_RESOURCE_TYPE_LINEAR:
		v->address = d->res.linear.devPtr;
		v->size = d->res.linear.sizeInBytes;
		break;
	case CU_RESOURCE_TYPE_PITCH2D:
		v->address = d->res.pitch2D.devPtr;
		v->size = d->res.pitch2D.height * d->res.pitch2D.pitchInBytes;
		break;
	}
}

void view_made(const struct context *c, uint32_t kind, uint64_t object, const CUDA_RESOURCE_DESC *d)
{
	struct live l = {c, {.object = object, .kind = kind}};

	describe(&l.view, d);
	pthread_mutex_lock(&views.lock);
	if (make_room(&views.list, &views.room, views.count, 1, sizeof(*views.list)))
		views.list[views.count++] = l;
	else
		session_fail("no host memory for a texture object");
	pthread_mutex_unlock(&views.lock);
}

void view_gone(const struct context *c, uint32_t kind, uint64_t object)
{
	pthread_mutex_lock(&views.lock);
	for (size_t i = views.count; i-- > 0;)
		if (views.list[i].view.object == object && views.list[i].view.kind == kind && views.list[i].context == c) {
			views.list[i] = views.list[--views.count];
			break;
		}
	pthread_mutex_unlock(&views.lock);
}

uint32_t views_named(const struct context *c, const uint8_t *params, size_t size, struct tt_view *out, uint32_t most)
{
	uint32_t n = 0;
	uint64_t word;

	pthread_mutex_lock(&views.lock);
	for (size_t at = 0; views.count && at + sizeof(word) <= size; at += sizeof(word)) {
		memcpy(&word, params + at, sizeof(word));
		for (size_t i = 0; word && i < views.count && n < most; i++) {
			if (views.list[i].view.object != word || views.list[i].context != c)
				continue;
			out[n] = views.list[i].view;
			out[n++].param = (uint32_t)at;
		}
	}
	pthread_mutex_unlock(&views.lock);
	return n;
}
