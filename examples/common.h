/*
 * What the examples share: error checks, options, test data, a checksum, and, for those on the
 * driver API, a context and a kernel in one line each. Valid C11 and CUDA C++.
 */
#ifndef EXAMPLES_COMMON_H
#define EXAMPLES_COMMON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO_STEP (-1L)
#define BLOCKS(count) (((count) + 255) / 256) /* of 256 threads, for one thread an element */
#define UNUSED __attribute__((unused))

/* An option that one program has: it takes a number, or is a flag. */
struct own_option {
	const char *name;
	long *number;
	bool *flag;
};

/* Defaults before read_options, what the user chose after. */
struct options {
	long size;    /* elements */
	long steps;
	long seed;
	long perturb; /* step at which one input value is changed, NO_STEP for none */
	bool fixed;   /* run the correct twin of a program that shows a mistake */
	bool can_perturb, can_fix;
	const char *steps_name;       /* what --steps is called here, NULL for that */
	const struct own_option *own; /* up to one without a name, or NULL */
};

/* status: 0 where it was asked for. */
UNUSED static void usage(const char *program, const struct options *o, int status)
{
	FILE *to = status ? stderr : stdout;

	fprintf(to, "usage: %s [--size N] [%s N] [--seed N]%s%s", program, o->steps_name,
		o->can_perturb ? " [--perturb STEP]" : "", o->can_fix ? " [--fixed]" : "");
	for (const struct own_option *own = o->own; own && own->name; own++)
		fprintf(to, " [%s%s]", own->name, own->number ? " N" : "");
	fputs("\n", to);
	exit(status);
}

/* Where an option's value goes: a number's, or else a flag's; neither where there is no such option. */
UNUSED static struct own_option find_option(struct options *o, const char *name)
{
	struct own_option known[] = {
		{"--size", &o->size, NULL}, {o->steps_name, &o->steps, NULL}, {"--seed", &o->seed, NULL},
		{o->can_perturb ? "--perturb" : "", &o->perturb, NULL}, {o->can_fix ? "--fixed" : "", NULL, &o->fixed},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (*known[i].name && !strcmp(name, known[i].name))
			return known[i];
	for (const struct own_option *own = o->own; own && own->name; own++)
		if (!strcmp(name, own->name))
			return *own;
	return (struct own_option){NULL, NULL, NULL};
}

UNUSED static struct options read_options(int argc, char **argv, struct options o)
{
	o.perturb = NO_STEP;
	if (!o.steps_name)
		o.steps_name = "--steps";
	for (int i = 1; i < argc; i++) {
		struct own_option option = find_option(&o, argv[i]);
		char *end = NULL;

		if (option.number && i + 1 < argc) {
			*option.number = strtol(argv[++i], &end, 10);
			if (end == argv[i] || *end || *option.number < 0)
				usage(argv[0], &o, 2);
		} else if (option.flag) {
			*option.flag = true;
		} else {
			usage(argv[0], &o, strcmp(argv[i], "--help") ? 2 : 0);
		}
	}
	if (o.size < 1 || o.size > 1L << 30)
		usage(argv[0], &o, 2);
	return o;
}

/* The next value of a small generator, in [0, 1) with 24 significant bits. */
UNUSED static float next_random(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return (float)(*state >> 8) * (1.0f / 16777216.0f);
}

UNUSED static float *random_floats(long count, long seed)
{
	float *values = (float *)malloc((size_t)count * sizeof(*values));
	uint32_t state = (uint32_t)seed;

	if (!values) {
		fputs("out of memory\n", stderr);
		exit(1);
	}
	for (long i = 0; i < count; i++)
		values[i] = next_random(&state);
	return values;
}

/* FNV-1a, 64 bits. */
UNUSED static uint64_t checksum(const void *data, size_t bytes)
{
	const unsigned char *p = (const unsigned char *)data;
	uint64_t h = 0xcbf29ce484222325u;

	while (bytes--)
		h = (h ^ *p++) * 0x100000001b3u;
	return h;
}

#ifdef __CUDACC__

#define CHECK(call) check((call), #call, __FILE__, __LINE__)

static void check(cudaError_t r, const char *call, const char *file, int line)
{
	if (r == cudaSuccess)
		return;
	fprintf(stderr, "%s:%d: %s: %s\n", file, line, call, cudaGetErrorName(r));
	exit(1);
}

#else

#include <cuda.h>

#define CHECK(call) check((call), #call, __FILE__, __LINE__)

static void check(CUresult r, const char *call, const char *file, int line)
{
	const char *name = "unknown error";

	if (r == CUDA_SUCCESS)
		return;
	cuGetErrorName(r, &name);
	fprintf(stderr, "%s:%d: %s: %s\n", file, line, call, name);
	exit(1);
}

/* Puts the text of a file beside the program's source into the program as a string. */
#define EMBED(name, file) \
	__asm__(".pushsection .rodata\n" #name ":\n.incbin \"" file "\"\n.byte 0\n.popsection\n"); \
	extern const char name[] __asm__(#name)

/* Makes the first device's primary context current. */
UNUSED static CUdevice start_device(void)
{
	CUdevice device;
	CUcontext context;

	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuDevicePrimaryCtxRetain(&context, device));
	CHECK(cuCtxSetCurrent(context));
	return device;
}

UNUSED static CUfunction kernel(CUmodule module, const char *name)
{
	CUfunction f;

	CHECK(cuModuleGetFunction(&f, module, name));
	return f;
}

/* One thread for each of count elements. */
UNUSED static void launch(CUfunction f, long count, CUstream stream, void **params)
{
	CHECK(cuLaunchKernel(f, (unsigned)BLOCKS(count), 1, 1, 256, 1, 1, 0, stream, params, NULL));
}

/* A list of a kernel's arguments for launch(). */
#define PARAMS(...) ((void *[]){__VA_ARGS__})

#endif
#endif
