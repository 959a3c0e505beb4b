/*
 * What the test programs share. Each program shows one behaviour and prints a transcript of it,
 * which is the same on every device: no addresses, handles, times or sizes of device memory.
 * A line that begins with "~ " is the exception: the same for every run on one machine, recorded
 * or not, but different between machines.
 */
#ifndef TEST_PROGRAM_H
#define TEST_PROGRAM_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

#define UNUSED __attribute__((unused))
#define PARAMS(...) ((void *[]){__VA_ARGS__})

UNUSED static const char *result_name(CUresult r)
{
	const char *name = NULL;

	cuGetErrorName(r, &name);
	return name ? name : "an unknown result";
}

/* Makes a call whose result is part of the transcript. */
#define SHOW(call) show_result(#call, (call))

UNUSED static CUresult show_result(const char *call, CUresult r)
{
	printf("%s -> %s\n", call, result_name(r));
	return r;
}

/* Makes a call that must succeed. */
#define OK(call) require_success(#call, (call), __LINE__)

UNUSED static void require_success(const char *call, CUresult r, int line)
{
	if (r == CUDA_SUCCESS)
		return;
	printf("line %d: %s -> %s\n", line, call, result_name(r));
	fflush(stdout);
	exit(1);
}

/* Makes device 0's primary context current. */
UNUSED static CUdevice start(void)
{
	CUdevice device;
	CUcontext context;

	OK(cuInit(0));
	OK(cuDeviceGet(&device, 0));
	OK(cuDevicePrimaryCtxRetain(&context, device));
	OK(cuCtxSetCurrent(context));
	return device;
}

UNUSED static CUmodule load_kernels(void)
{
	CUmodule module;

	OK(cuModuleLoadData(&module, KERNELS));
	return module;
}

UNUSED static CUfunction get_kernel(CUmodule module, const char *name)
{
	CUfunction f;

	OK(cuModuleGetFunction(&f, module, name));
	return f;
}

/* One thread for each of n elements, at least, in blocks of 64. */
UNUSED static CUresult launch(CUfunction f, unsigned n, CUstream stream, void **params)
{
	return cuLaunchKernel(f, (n + 63) / 64, 1, 1, 64, 1, 1, 0, stream, params, NULL);
}

UNUSED static CUdeviceptr allocate(size_t bytes)
{
	CUdeviceptr p;

	OK(cuMemAlloc(&p, bytes));
	return p;
}

/* FNV-1a, 64 bits. */
UNUSED static uint64_t hash_bytes(const void *data, size_t bytes)
{
	const unsigned char *p = data;
	uint64_t h = 0xcbf29ce484222325u;

	while (bytes--)
		h = (h ^ *p++) * 0x100000001b3u;
	return h;
}

/* Bytes that differ from one position and from one seed to the next. */
UNUSED static void fill_pattern(void *data, size_t bytes, unsigned seed)
{
	unsigned char *p = data;
	uint32_t state = seed * 2654435761u + 1;

	for (size_t i = 0; i < bytes; i++) {
		state = state * 1664525u + 1013904223u;
		p[i] = (unsigned char)(state >> 24);
	}
}

UNUSED static void *pattern(size_t bytes, unsigned seed)
{
	void *p = malloc(bytes ? bytes : 1);

	fill_pattern(p, bytes, seed);
	return p;
}

/* Prints a hash of device memory; the context is synchronised by the copy. */
UNUSED static void print_device(const char *name, CUdeviceptr p, size_t bytes)
{
	void *copy = malloc(bytes ? bytes : 1);

	OK(cuMemcpyDtoH(copy, p, bytes));
	printf("%s: %zu bytes, %016llx\n", name, bytes, (unsigned long long)hash_bytes(copy, bytes));
	free(copy);
}

UNUSED static void print_host(const char *name, const void *p, size_t bytes)
{
	printf("%s: %zu bytes, %016llx\n", name, bytes, (unsigned long long)hash_bytes(p, bytes));
}

UNUSED static void print_words(const char *name, CUdeviceptr p, unsigned count)
{
	uint32_t words[64];

	OK(cuMemcpyDtoH(words, p, count * sizeof(*words)));
	printf("%s:", name);
	for (unsigned i = 0; i < count; i++)
		printf(" %u", words[i]);
	printf("\n");
}

/* A few steps of work with a wait after each, for programs about what comes after. */
struct work {
	CUdeviceptr data;
	CUfunction mix;
	unsigned step;
};

UNUSED static struct work begin_work(void)
{
	struct work w = {.data = allocate(200000), .mix = get_kernel(load_kernels(), "mix")};

	OK(cuMemsetD8(w.data, 1, 200000));
	return w;
}

UNUSED static void do_step(struct work *w)
{
	unsigned n = 5000, rounds = ++w->step;
	uint32_t first;

	OK(launch(w->mix, n, NULL, PARAMS(&w->data, &n, &rounds)));
	OK(cuCtxSynchronize());
	OK(cuMemcpyDtoH(&first, w->data, sizeof(first)));
	printf("step %u: %u\n", w->step, first);
	fflush(stdout);
}

#endif
