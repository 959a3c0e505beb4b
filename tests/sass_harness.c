/*
 * The patcher as functions for tests: handles and plain numbers.
 */
#include <stdlib.h>
#include <string.h>

#include "format.h"
#include "sass/fatbin.h"
#include "sass/patch.h"
#include "sass/trace_image.h"
#include "sass/trace_parts.h"

#define API __attribute__((visibility("default")))

API struct cubin *harness_open(const void *image, size_t size, const char **wrong)
{
	struct cubin *c = malloc(sizeof(*c));

	if ((*wrong = cubin_open(c, image, size))) {
		free(c);
		c = NULL;
	}
	return c;
}

API void harness_close(struct cubin *c)
{
	cubin_close(c);
	free(c);
}

API unsigned harness_architecture(const struct cubin *c)
{
	return c->architecture;
}

API size_t harness_kernels(const struct cubin *c)
{
	return c->kernel_count;
}

API const char *harness_kernel(const struct cubin *c, size_t kernel, uint64_t numbers[3])
{
	const struct cubin_kernel *k = &c->kernels[kernel];

	numbers[0] = k->code;
	numbers[1] = k->size;
	numbers[2] = k->cluster;
	return k->name;
}

/* For each instruction of a kernel why a delay of a mode can't go before it, or NULL. */
API const char *harness_refused(const struct cubin *c, size_t kernel, int mode, const char **reasons)
{
	const struct cubin_kernel *k = &c->kernels[kernel];
	struct delay d = {.mode = (enum delay_mode)mode, .ns = 1000};
	struct patch_kernel *p;
	const char *wrong = patch_open(c, k, &p);

	for (uint32_t at = 0; !wrong && at < k->size; at += SASS_INSTRUCTION)
		reasons[at / SASS_INSTRUCTION] = patch_refused(p, at, &d);
	patch_close(p);
	return wrong;
}

/* One kernel, or all of them where kernel is SIZE_MAX; everywhere where count is 0. */
API uint8_t *harness_patch(const struct cubin *c, size_t kernel, const struct patch_point *points, size_t count,
			   struct patch *patches, size_t *size)
{
	for (size_t i = 0; i < c->kernel_count; i++)
		if (i == kernel || kernel == SIZE_MAX)
			patches[i] = (struct patch){.points = points, .count = count, .everywhere = !count};
	return patch_apply(c, patches, size);
}

static uint8_t *patch_everywhere(const void *image, size_t size, size_t *new_size)
{
	struct cubin c;

	if (cubin_open(&c, image, size))
		return NULL;
	struct patch *patches = calloc(c.kernel_count + 1, sizeof(*patches));
	uint8_t *out = patches ? harness_patch(&c, SIZE_MAX, NULL, 0, patches, new_size) : NULL;
	free(patches);
	cubin_close(&c);
	return out;
}

/* Every cubin that devices of these capabilities take is patched everywhere. */
API uint8_t *harness_fatbin(const void *image, size_t size, const unsigned *capabilities, size_t count, uint64_t *new_size)
{
	struct image fatbin = {TT_MODULE_FATBIN, image, size};
	uint8_t *out = fatbin_replace(&fatbin, capabilities, count, patch_everywhere);

	if (out)
		*new_size = image_identify(out, IMAGE_IN_MEMORY).size;
	return out;
}

/* Hands over each cubin of a fatbin that such devices take. */
API void harness_codes(const void *image, size_t size, unsigned capability, fatbin_replace_fn *visit)
{
	struct image fatbin = {TT_MODULE_FATBIN, image, size};

	image_prepare();
	free(fatbin_replace(&fatbin, &capability, 1, visit));
}

#define BEATS (1u << TT_TRACE_END) /* among kinds: heartbeats */
#define FLAT (BEATS << 1)          /* and of launches with one dimension */
#define KINDS(of) ((of) & ~(BEATS | FLAT))

/* The code of a kernel with recording code at every instruction, of the same kinds; NULL: not possible. */
API uint64_t *harness_trace(const struct cubin *c, size_t kernel, unsigned registers, uint32_t parameter, uint32_t kinds,
			    const char **reasons, uint64_t numbers[3])
{
	const struct cubin_kernel *k = &c->kernels[kernel];
	size_t count = k->size / SASS_INSTRUCTION;
	struct trace_kernel from = {.architecture = c->architecture,
				    .registers = registers,
				    .parameter = parameter,
				    .count = count,
				    .wish = {.beats = kinds & BEATS, .flat = kinds & FLAT}};
	struct instruction *code = malloc(k->size);
	struct trace_point *points = calloc(count, sizeof(*points));
	struct traced_code traced = {0};

	memcpy(code, c->bytes + k->code, k->size);
	from.code = code;
	for (size_t i = 0; i < count; i++) {
		trace_use(c->architecture, code[i], &from.used);
		points[i] = (struct trace_point){KINDS(kinds), NULL};
	}
	const char *wrong = trace_insert(&from, points, &traced);
	for (size_t i = 0; i < count; i++)
		reasons[i] = wrong ? wrong : points[i].refused;
	numbers[0] = traced.count;
	numbers[1] = traced.registers;
	numbers[2] = traced.points;
	free(traced.moved);
	free(traced.slots);
	free(points);
	free(code);
	return (uint64_t *)traced.code;
}

/* The registers of an instruction; numbers: how many there are. False: it is unknown. */
API bool harness_registers(uint64_t low, uint64_t high, uint8_t general[256], uint8_t uniform[64], unsigned numbers[2])
{
	struct registers r;

	trace_registers_of((struct instruction){low, high}, &r);
	memcpy(general, r.general, sizeof(r.general));
	memcpy(uniform, r.uniform, sizeof(r.uniform));
	numbers[0] = r.generals;
	numbers[1] = r.uniforms;
	return r.known;
}

/* The address of each variable is that of `variables`, 0: unknown. */
static uint64_t same_address(void *user, const char *name)
{
	(void)name;
	return *(const uint64_t *)user;
}

/*
 * A cubin whose kernel has recording code of the same kinds at every instruction that can have it. numbers: parameters,
 * offset of the new one, registers, points, slots, their stride, copies. slots: by instruction.
 */
API uint8_t *harness_traced_image(const struct cubin *c, size_t kernel, uint32_t kinds, uint64_t variables, unsigned threads,
				  const char **wrong, uint64_t numbers[7], uint32_t *slots, uint64_t *size)
{
	const struct cubin_kernel *k = &c->kernels[kernel];
	size_t count = k->size / SASS_INSTRUCTION;
	struct trace_point *points = calloc(count, sizeof(*points));
	struct traced_image image;

	for (size_t i = 0; i < count; i++)
		points[i].kinds = KINDS(kinds);
	*wrong = trace_image(c, k, points,
			     &(struct trace_wish){.beats = kinds & BEATS, .flat = kinds & FLAT, .threads = threads},
			     &(struct trace_variables){same_address, &variables}, &image);
	const uint64_t all[7] = {image.parameters, image.offset, image.registers, image.points,
				 image.slot_count, image.stride, image.copies};
	memcpy(numbers, all, sizeof(all));
	if (image.slots)
		memcpy(slots, image.slots, count * sizeof(*slots));
	*size = image.size;
	free(image.slots);
	free(points);
	return image.bytes;
}
