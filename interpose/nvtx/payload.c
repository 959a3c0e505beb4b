/*
 * Reads payloads with members of their own. See payload.h.
 *
 * Invariant: no more bytes are read than the payload says it has.
 */
#include "nvtx/payload.h"

#include <stdint.h>
#include <string.h>

#define LONGEST 65536 /* a larger size is none */

bool payload_extended(const struct nvtx_attributes *a, struct nvtx_extended *out)
{
	return a->payload_type == NVTX_PAYLOAD_EXTENDED && a->reserved > 0 &&
	       payload_first((const struct nvtx_extended *)(uintptr_t)a->payload, (size_t)a->reserved, out);
}

bool payload_first(const struct nvtx_extended *payloads, size_t count, struct nvtx_extended *out)
{
	if (!payloads || !count)
		return false;
	*out = *payloads;
	if (!out->size || out->size > LONGEST)
		out->bytes = NULL;
	return out->bytes != NULL;
}

void payload_store(struct tt_event *e, const struct nvtx_extended *payload)
{
	unsigned char bytes[sizeof(e->bytes) + sizeof(e->block) + sizeof(e->cluster)] = {0};

	if (!payload->bytes)
		return;
	memcpy(bytes, payload->bytes, payload->size < sizeof(bytes) ? payload->size : sizeof(bytes));
	memcpy(&e->bytes, bytes, sizeof(e->bytes));
	memcpy(e->block, bytes + sizeof(e->bytes), sizeof(e->block));
	memcpy(e->cluster, bytes + sizeof(e->bytes) + sizeof(e->block), sizeof(e->cluster));
	e->grid[2] = (uint32_t)payload->size;
}
