/*
 * Puts delays into cubins. See image.h for the invariant.
 */
#include "delay/image.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "session/session.h"
#include "sass/patch.h"
#include "delay/checksum.h"
#include "delay/points.h"
#include "delay/text_checksum.h"

/*
 * Instructions that are delayed without --delay-patterns: they move memory, synchronise, or wait for either.
 * Sorted.
 */
static const char *const built_in[] = {
	"ACQBULK", "ARRIVES", "ATOM",         "ATOMG",        "ATOMS",    "BAR",     "CCTL",      "CGAERRBAR",
	"DEPBAR",  "ERRBAR",  "FENCE",        "HGMMA",        "IGMMA",    "LD",      "LDG",       "LDGDEPBAR",
	"LDGSTS",  "LDS",     "LDSM",         "LDTM",         "MEMBAR",   "PREEXIT", "QGMMA",     "RED",
	"REDG",    "ST",      "STAS",         "STG",          "STS",      "STSM",    "STTM",      "SYNCS",
	"UBLKCP",  "UBLKRED", "UCGABAR_ARV",  "UCGABAR_WAIT", "UTCBAR",   "UTCCP",   "UTCHMMA",   "UTCIMMA",
	"UTCOMMA", "UTCQMMA", "UTMACMDFLUSH", "UTMALDG",      "UTMAREDG", "UTMASTG", "WARPGROUP", "WARPSYNC",
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* one thread at a time chooses the points of kernels */

static int by_name(const void *name, const void *entry)
{
	return strcmp(name, *(const char *const *)entry);
}

static bool is_built_in(const char *mnemonic)
{
	return bsearch(mnemonic, built_in, sizeof(built_in) / sizeof(*built_in), sizeof(*built_in), by_name) != NULL;
}

static struct delay delay_of(const struct delay_choice *c)
{
	static const enum delay_mode modes[] = {[CONFIG_RANDOM] = DELAY_RANDOM,
						[CONFIG_FIXED] = DELAY_FIXED,
						[CONFIG_CLUSTER] = DELAY_CLUSTER,
						[CONFIG_CLUSTER_FIXED] = DELAY_CLUSTER_FIXED};

	return (struct delay){modes[c->mode], c->max_ns, c->min_ns, c->seed, c->block};
}

struct kernel_code {
	struct foreign_code as_foreign;
	const struct cubin *cubin;
	const struct cubin_kernel *kernel;
	struct text_checksum *sum;
};

static bool has_checksum(const struct foreign_code *code, uint64_t checksum)
{
	const struct kernel_code *of = (const void *)code;

	if (!of->sum->asked)
		*of->sum = text_checksum(of->cubin, of->kernel);
	return of->sum->known && (checksum == of->sum->padded || checksum == of->sum->bare);
}

static const char *mnemonic_at(const struct foreign_code *code, uint64_t pc)
{
	const struct kernel_code *of = (const void *)code;
	struct instruction i;

	if (pc % SASS_INSTRUCTION || of->kernel->size < SASS_INSTRUCTION || pc > of->kernel->size - SASS_INSTRUCTION)
		return NULL;
	memcpy(&i, of->cubin->bytes + of->kernel->code + pc, sizeof(i));
	return code_mnemonic(of->cubin->architecture, i);
}

/* Chooses the delay points of a kernel. Returns NULL, or why it has none. */
static const char *plan(const struct cubin *c, const struct cubin_kernel *k, struct delay_kernel *to, struct patch *patch)
{
	struct patch_point *points = malloc(k->size / SASS_INSTRUCTION * sizeof(*points) + 1);
	struct patch_kernel *p = NULL;
	const char *why = points ? patch_open(c, k, &p) : "no host memory";

	for (uint32_t at = 0; !why && at + SASS_INSTRUCTION <= k->size; at += SASS_INSTRUCTION) {
		struct delay_choice choice;
		struct instruction i;
		memcpy(&i, c->bytes + k->code + at, sizeof(i));
		const char *mnemonic = code_mnemonic(c->architecture, i);
		if (!mnemonic || !delay_point(to, at, mnemonic, is_built_in(mnemonic), &choice))
			continue;
		struct patch_point point = {at, delay_of(&choice)};
		if (patch_refused(p, at, &point.delay))
			delay_point_left(to);
		else
			points[patch->count++] = point;
	}
	if (p)
		patch_close(p);
	patch->points = points;
	return why;
}

static uint8_t *put_in(const struct cubin *c, size_t *new_size)
{
	struct patch *patches = calloc(c->kernel_count + 1, sizeof(*patches));
	struct delay_kernel **kernels = calloc(c->kernel_count + 1, sizeof(struct delay_kernel *));
	uint8_t *out = NULL;
	bool any = false;

	for (size_t i = 0; patches && kernels && i < c->kernel_count; i++) {
		const struct cubin_kernel *k = &c->kernels[i];
		uint64_t sum;
		if (!kernel_checksum(c, k->section, &sum)) {
			session_warn("no delays in %.120s: its code has no checksum", k->name);
			continue;
		}
		struct text_checksum text = {.asked = false};
		struct kernel_code code = {{has_checksum, mnemonic_at}, c, k, &text};
		if (!(kernels[i] = delay_kernel(k->name, sum, &code.as_foreign)))
			continue;
		if ((patches[i].everywhere = delays_are_empty())) {
			any = true;
			continue;
		}
		patches[i].refused = plan(c, k, kernels[i], &patches[i]);
		any |= !patches[i].refused && patches[i].count;
		if (patches[i].refused)
			patches[i].count = 0;
	}
	if (any)
		out = patch_apply(c, patches, new_size);
	for (size_t i = 0; patches && kernels && i < c->kernel_count; i++) {
		if (kernels[i])
			delay_kernel_done(kernels[i], patches[i].refused ? patches[i].refused
						      : any && !out      ? "the cubin could not be rebuilt"
									 : NULL);
		free((void *)patches[i].points);
	}
	free(patches);
	free(kernels);
	return out;
}

static uint8_t *put_in_image(const void *image, size_t size, size_t *new_size)
{
	struct cubin c;
	const char *why = cubin_open(&c, image, size);
	uint8_t *out = NULL;

	if (why) {
		session_warn("no delays in a module: %s", why);
	} else {
		if (code_known(c.architecture))
			out = put_in(&c, new_size);
		else
			session_warn("no delays in kernels for sm_%u: its machine code is unknown", c.architecture);
		cubin_close(&c);
	}
	return out;
}

uint8_t *delay_cubin(const void *image, size_t size, size_t *new_size)
{
	void *copy = NULL;

	if (!delays_in_kernels())
		return NULL;
	if ((uintptr_t)image % _Alignof(Elf64_Shdr)) { /* checksums need an aligned image */
		if (!(copy = malloc(size)))
			return NULL;
		image = memcpy(copy, image, size);
	}
	pthread_mutex_lock(&lock);
	uint8_t *out = put_in_image(image, size, new_size);
	pthread_mutex_unlock(&lock);
	free(copy);
	return out;
}
