/*
 * Compresses contents. See compress.h for the invariant. The library is loaded only when it is
 * needed. Its functions are those of zstd.h, stable since 1.4.
 */
#include "store/compress.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "chunk.h"

#define PREFIX sizeof(uint32_t)

static struct {
	void *(*create)(void);
	size_t (*release)(void *context);
	size_t (*compress)(void *context, void *to, size_t room, const void *from, size_t size, int level);
	unsigned (*is_error)(size_t result);
} zstd;

bool compress_open(void)
{
	void *library = zstd.compress ? NULL : dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);

	if (library) {
		*(void **)&zstd.create = dlsym(library, "ZSTD_createCCtx");
		*(void **)&zstd.release = dlsym(library, "ZSTD_freeCCtx");
		*(void **)&zstd.is_error = dlsym(library, "ZSTD_isError");
		*(void **)&zstd.compress = dlsym(library, "ZSTD_compressCCtx");
	}
	return zstd.create && zstd.release && zstd.is_error && zstd.compress;
}

static bool ensure_room(struct compressor *c, const struct tt_block *blocks, size_t count)
{
	size_t room = 0;

	for (size_t i = 0; i < count; i++)
		room += tt_round_up(PREFIX + blocks[i].length, TT_CHUNK_ALIGN);
	if (room > c->room) {
		free(c->out);
		c->out = malloc(room);
		c->room = c->out ? room : 0;
	}
	if (!c->context)
		c->context = zstd.create();
	return c->context && (c->out || !room);
}

bool compress_blocks(struct compressor *c, int level, struct tt_block *blocks, size_t count, const uint8_t *contents)
{
	uint8_t *to;

	if (!ensure_room(c, blocks, count))
		return false;
	to = c->out;
	for (struct tt_block *b = blocks; b < blocks + count; b++) {
		const uint8_t *from = contents + b->offset;
		size_t size = zstd.compress(c->context, to + PREFIX, b->length, from, b->length, level);
		if (zstd.is_error(size) || size >= b->length) {
			size = b->length;
			memcpy(to + PREFIX, from, size);
		}
		memcpy(to, &(uint32_t){(uint32_t)size}, PREFIX);
		b->offset = (uint64_t)(to - c->out);
		size_t whole = tt_round_up(PREFIX + size, TT_CHUNK_ALIGN);
		memset(to + PREFIX + size, 0, whole - PREFIX - size);
		to += whole;
	}
	return true;
}

uint64_t compress_size(const uint8_t *at)
{
	uint32_t size;

	memcpy(&size, at, sizeof(size));
	return PREFIX + size;
}

void compress_close(struct compressor *c)
{
	if (c->context)
		zstd.release(c->context);
	free(c->out);
	*c = (struct compressor){0};
}
