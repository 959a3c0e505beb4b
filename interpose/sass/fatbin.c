/*
 * Makes fatbins. See fatbin.h for the invariant.
 *
 * The driver takes machine code for the device's own capability, or else for the closest lower one of its
 * generation. There may be several entries for this capability. All of them are replaced, so it does not matter
 * which one the driver takes.
 */
#include "sass/fatbin.h"

#include <stdlib.h>
#include <string.h>

#include "format.h"
#include "util/vector.h"

/* Members of headers; entries are padded. */
#define FATBIN_SIZE 8u
#define ENTRY_SIZE 8u
#define ENTRY_PACKED 16u
#define ENTRY_FLAGS 40u
#define ENTRY_EXPANDED 56u
#define PADDING 8u

/* Grows as entries are added. */
struct output {
	uint8_t *bytes;
	size_t size, room;
	bool failed;
};

static bool fits(const struct image_entry *e, unsigned capability)
{
	return e->kind == TT_MODULE_CUBIN && e->capability / 10 == capability / 10 && e->capability <= capability &&
	       (!e->exact || e->capability == capability);
}

static unsigned best(const struct image *fatbin, unsigned capability)
{
	struct image_entry e;
	unsigned best = 0;

	for (size_t at = 0; image_entry(fatbin, &at, &e);)
		if (fits(&e, capability) && e.capability > best)
			best = e.capability;
	return best;
}

bool fatbin_has_code(const struct image *fatbin, unsigned capability)
{
	return best(fatbin, capability);
}

uint8_t *fatbin_code(const struct image *fatbin, unsigned capability,
		     bool (*wanted)(void *user, const void *cubin, size_t size), void *user, size_t *size)
{
	unsigned taken = best(fatbin, capability);
	struct image_entry e;

	for (size_t at = 0; image_entry(fatbin, &at, &e);) {
		uint8_t *code = fits(&e, capability) && e.capability == taken ? image_expand(&e, size) : NULL;
		if (code && wanted(user, code, *size))
			return code;
		free(code);
	}
	return NULL;
}

static void add(struct output *out, const void *bytes, size_t size)
{
	if (out->failed || !make_room(&out->bytes, &out->room, out->size, size, 1)) {
		out->failed = true;
		return;
	}
	memcpy(out->bytes + out->size, bytes, size);
	out->size += size;
}

static void set(struct output *out, size_t at, uint64_t value, size_t size)
{
	if (!out->failed)
		memcpy(out->bytes + at, &value, size);
}

static void add_plain(struct output *out, const struct image_entry *e, const uint8_t *code, size_t size)
{
	static const uint8_t zeros[PADDING];
	size_t begin = out->size, padding = -size % PADDING;

	add(out, e->begin, e->header);
	add(out, code, size);
	add(out, zeros, padding);
	set(out, begin + ENTRY_SIZE, size + padding, 8);
	set(out, begin + ENTRY_PACKED, 0, 4);
	set(out, begin + ENTRY_FLAGS, e->flags & ~(uint64_t)IMAGE_COMPRESSED, 8);
	set(out, begin + ENTRY_EXPANDED, 0, 8);
}

static bool add_replaced(struct output *out, const struct image_entry *e, fatbin_replace_fn *replace)
{
	size_t size, new_size;
	uint8_t *code = image_expand(e, &size);
	uint8_t *replaced = code ? replace(code, size, &new_size) : NULL;

	if (replaced)
		add_plain(out, e, replaced, new_size);
	else
		add(out, e->begin, e->header + e->size);
	free(replaced);
	free(code);
	return replaced;
}

uint8_t *fatbin_replace(const struct image *fatbin, const unsigned *capabilities, size_t count, fatbin_replace_fn *replace)
{
	struct output out = {0};
	struct image_entry e;
	bool replaced = false;
	size_t at = 0;

	if (!image_entry(fatbin, &at, &e))
		return NULL;
	add(&out, fatbin->bytes, (size_t)(e.begin - (const uint8_t *)fatbin->bytes));
	size_t header = out.size;
	for (at = 0; image_entry(fatbin, &at, &e);) {
		bool wanted = false;
		for (size_t i = 0; i < count; i++)
			wanted |= fits(&e, capabilities[i]) && e.capability == best(fatbin, capabilities[i]);
		if (wanted)
			replaced |= add_replaced(&out, &e, replace);
		else if (e.kind != TT_MODULE_CUBIN)
			add(&out, e.begin, e.header + e.size);
	}
	set(&out, FATBIN_SIZE, out.size - header, 8);
	if (out.failed || !replaced) {
		free(out.bytes);
		return NULL;
	}
	return out.bytes;
}
