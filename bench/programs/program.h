/*
 * What the benchmark's programs share beyond the examples' common.h: numbers from the command
 * line, a clock, order statistics, the process's memory.
 */
#ifndef BENCH_PROGRAM_H
#define BENCH_PROGRAM_H

#include "common.h"

#include <time.h>

UNUSED static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The number after a word of the command line, else what is usual. */
UNUSED static uint64_t number(int argc, char **argv, const char *word, uint64_t usual)
{
	for (int i = 1; i + 1 < argc; i++)
		if (!strcmp(argv[i], word))
			return strtoull(argv[i + 1], NULL, 10);
	return usual;
}

UNUSED static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

UNUSED static uint64_t *room(uint64_t count)
{
	uint64_t *values = (uint64_t *)calloc(count + 1, sizeof(*values));

	if (!values) {
		fputs("out of memory\n", stderr);
		exit(1);
	}
	return values;
}

UNUSED static void print_list(const char *name, const uint64_t *values, uint64_t count)
{
	printf("\"%s\": [", name);
	for (uint64_t i = 0; i < count; i++)
		printf("%s%llu", i ? ", " : "", (unsigned long long)values[i]);
	printf("]");
}

/* A line of /proc/self/status, in bytes; 0 where the kernel has none such. */
UNUSED static uint64_t status_bytes(const char *key)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[256];
	uint64_t kib = 0;

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, key, strlen(key)))
			kib = strtoull(line + strlen(key), NULL, 10);
	if (f)
		fclose(f);
	return kib << 10;
}

#endif
