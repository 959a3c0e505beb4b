/*
 * Fatbins: entries are gone through, expanded and replaced.
 */
#include "format.h"
#include "fuzz.h"
#include "sass/fatbin.h"

static uint8_t *copied(const void *cubin, size_t size, size_t *new_size)
{
	*new_size = size;
	return size && size < (1 << 20) ? fuzz_copy(cubin, size) : NULL;
}

static void visit(void *user, const char *name)
{
	*(size_t *)user += strlen(name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const unsigned capabilities[] = {80, 90, 120};
	char *bytes = fuzz_text(data, size); /* files in memory end with a NUL */
	struct image image = image_identify(bytes, size);
	struct image_entry e;
	size_t names = 0, expanded;

	image_prepare();
	if (image.kind == TT_MODULE_FATBIN) {
		for (size_t at = 0; image_entry(&image, &at, &e);)
			if (e.expanded <= (1 << 20))
				free(image_expand(&e, &expanded));
		fatbin_has_code(&image, 90);
		free(fatbin_replace(&image, capabilities, 3, copied));
		image_variables(&image, visit, &names);
	}
	free(bytes);
	return 0;
}
