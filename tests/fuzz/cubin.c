/*
 * Cubins: everything about one is asked, and delays go before all instructions that may have one.
 */
#include "delay/checksum.h"
#include "fuzz.h"
#include "sass/patch.h"
#include "track/image.h"

static void attributes(const struct cubin *c, uint32_t section)
{
	struct attribute a;
	volatile uint32_t sink = 0;

	for (size_t at = 0; cubin_attribute(c, section, &at, &a);)
		if (a.form == FORM_SIZED && a.value >= sizeof(uint32_t))
			sink += cubin_word(c, a.data);
}

static void visit(void *user, const char *name)
{
	*(size_t *)user += strlen(name);
}

/* Delays before the first instruction that may have one, and whatever the kernel allows everywhere. */
static void patch(const struct cubin *c)
{
	struct delay delay = {.mode = DELAY_RANDOM, .ns = 1000, .min_ns = 10, .seed = 7};
	struct patch *patches = calloc(c->kernel_count + 1, sizeof(*patches));
	struct patch_point *points = calloc(c->kernel_count + 1, sizeof(*points));
	size_t size;

	for (size_t i = 0; patches && points && i < c->kernel_count; i++) {
		struct patch_kernel *p;
		if (patch_open(c, &c->kernels[i], &p)) {
			patches[i].everywhere = true;
			continue;
		}
		for (uint32_t at = 0; at < c->kernels[i].size; at += SASS_INSTRUCTION)
			if (!patch_refused(p, at, &delay)) {
				points[i] = (struct patch_point){at, delay};
				patches[i].points = &points[i];
				patches[i].count = 1;
				break;
			}
		patch_close(p);
	}
	free(patch_apply(c, patches, &size));
	for (size_t i = 0; i < c->kernel_count; i++)
		patches[i] = (struct patch){.everywhere = true};
	free(patch_apply(c, patches, &size));
	free(points);
	free(patches);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *image = fuzz_text(data, size); /* files in memory end with a NUL */
	struct image identified = image_identify(image, size);
	struct cubin c;
	size_t names = 0;
	uint64_t checksum;

	if (identified.kind && identified.size <= size)
		image_variables(&identified, visit, &names);
	if (!cubin_open(&c, image, size)) {
		for (size_t i = 0; i < c.kernel_count; i++)
			if (c.kernels[i].info)
				attributes(&c, c.kernels[i].info);
		for (uint32_t i = 0; i < c.section_count; i++)
			kernel_checksum(&c, i, &checksum);
		patch(&c);
		cubin_close(&c);
	}
	free(image);
	return 0;
}
