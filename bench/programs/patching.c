/*
 * patching CUBIN RUNS: how long a cubin takes to be read, and all its instructions that can be late
 * to be sent on a detour. Prints JSON: instructions, moved, and ms of each run.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "sass/patch.h"

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* What a module's load does. */
static void patch(const void *image, size_t size, unsigned *instructions, unsigned *moved)
{
	struct cubin c;
	size_t made;
	unsigned all = 0, late = 0;

	if (cubin_open(&c, image, size))
		exit(1);
	struct patch *patches = calloc(c.kernel_count, sizeof(*patches));
	for (size_t i = 0; i < c.kernel_count; i++)
		patches[i].everywhere = true;
	free(patch_apply(&c, patches, &made));
	for (size_t i = 0; i < c.kernel_count; i++) {
		all += (unsigned)(c.kernels[i].size / SASS_INSTRUCTION);
		late += patches[i].moved;
	}
	free(patches);
	*instructions = all;
	*moved = late;
	cubin_close(&c);
}

int main(int argc, char **argv)
{
	FILE *f = argc == 3 ? fopen(argv[1], "rb") : NULL;
	unsigned instructions = 0, moved = 0;
	void *image = malloc(1 << 24);

	if (!f || !image)
		return 2;
	size_t size = fread(image, 1, 1 << 24, f);
	printf("{\"ms\": [");
	for (int i = 0, runs = atoi(argv[2]); i < runs; i++) {
		double began = now();
		patch(image, size, &instructions, &moved);
		printf("%s%.6f", i ? ", " : "", now() - began);
	}
	printf("], \"instructions\": %u, \"moved\": %u}\n", instructions, moved);
	return 0;
}
