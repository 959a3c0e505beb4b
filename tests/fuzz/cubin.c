/*
 * Cubins: everything about one is asked, delays go before all instructions that may have one, and kernels record what
 * they do.
 */
#include "delay/checksum.h"
#include "fuzz.h"
#include "include/format.h"
#include "sass/patch.h"
#include "sass/trace_image.h"
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

static uint64_t address(void *user, const char *name)
{
	(void)user;
	return strlen(name) % 2 ? 0x7f0000000000 : 0;
}

/* Kernels that record, each in another way. */
static void trace(const struct cubin *c)
{
	static const uint32_t kinds[] = {1u << TT_TRACE_COUNT,
					 1u << TT_TRACE_OPCODE | 1u << TT_TRACE_VALUES,
					 1u << TT_TRACE_ADDRESSES | 1u << TT_TRACE_TMA,
					 1u << TT_TRACE_REGISTERS,
					 0,
					 (1u << TT_TRACE_END) - 2};
	const struct trace_variables variables = {address, NULL};
	const unsigned way = c->header.e_ident[EI_NIDENT - 1]; /* a byte that means nothing else */
	const struct trace_wish wish = {
		.some_blocks = way & 1, .beats = way & 2, .flat = way & 64, .threads = way & 32 ? 384 : 0};
	size_t names = 0;

	for (size_t i = 0; i < c->kernel_count; i++) {
		const struct cubin_kernel *k = &c->kernels[i];
		size_t count = k->size / SASS_INSTRUCTION;
		struct trace_point *points = calloc(count + 1, sizeof(*points));
		struct traced_image made = {0};
		for (size_t n = 0; points && n < count; n++)
			points[n].kinds = kinds[(way / 4 + i) % (sizeof(kinds) / sizeof(*kinds))];
		trace_constants(c, k, visit, &names);
		if (points && !trace_image(c, k, points, &wish, &variables, &made))
			traced_image_free(&made);
		free(points);
	}
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
		trace(&c);
		cubin_close(&c);
	}
	free(image);
	return 0;
}
