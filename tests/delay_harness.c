/*
 * Puts delays into a cubin as a recording would: delay_harness CUBIN OUT FOLDER; options are those of
 * the environment. Writes OUT where anything is late, delays.json into FOLDER, and what a run would be
 * told on standard output.
 */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "delay/image.h"
#include "delay/points.h"
#include "options/option_limits.h"
#include "options/options.h"
#include "session/session.h"

struct options options;

void session_warn(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
}

static const char *given(const char *name)
{
	const char *value = getenv(name);

	return value ? value : "";
}

static void *contents(const char *path, size_t *size)
{
	FILE *f = fopen(path, "rb");
	char *bytes = malloc(1 << 24);

	*size = f && bytes ? fread(bytes, 1, 1 << 24, f) : 0;
	if (f)
		fclose(f);
	return bytes;
}

/* A program sees none of the recorder's children. */
static void child_ended(int number)
{
	(void)number;
	_exit(3);
}

int main(int argc, char **argv)
{
	const char *kernel = given("TT_DELAY_KERNEL"), *mode = given("TT_DELAY_MODE");
	const char *block = given("TT_DELAY_CLUSTER_BLOCK");
	size_t size, made = 0;
	char why[200];

	if (argc != 4)
		return 2;
	signal(SIGCHLD, child_ended);
	options.delay_ns = (uint32_t)atoi(given("TT_DELAY"));
	options.delay_cluster_block = *block ? (uint32_t)atoi(block) + 1 : 0;
	options.delay_seed = (uint64_t)atoll(given("TT_DELAY_SEED"));
	choice_parse(mode, LIMIT_DELAY_MODE, &options.delay_mode);
	strcpy(options.delay_patterns, given("TT_DELAY_PATTERNS"));
	strcpy(options.nvdisasm, given("TT_NVDISASM"));
	strcpy(options.kernel_filters, given("TT_KERNEL_FILTERS"));
	strcpy(options.delay_load, given("TT_DELAY_LOAD"));
	if (*kernel && !expressions_add(&options.delay_kernel, "", kernel, strlen(kernel), why, sizeof(why)))
		return 2;
	delays_open();
	void *image = contents(argv[1], &size);
	uint8_t *out = delay_cubin(image, size, &made);
	FILE *f = out ? fopen(argv[2], "wb") : NULL;
	if (f) {
		fwrite(out, 1, made, f);
		fclose(f);
	}
	struct folder folder;
	if (folder_find(&folder, argv[3])) {
		delays_write(&folder);
		folder_free(&folder);
	}
	free(out);
	free(image);
	return 0;
}
