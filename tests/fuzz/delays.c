/*
 * Delay files, and with them the JSON reader.
 */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "options/delay_config.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int file = -1;
	static char path[64];
	char why[400] = "";

	if (file < 0) {
		file = memfd_create("delays", MFD_CLOEXEC);
		snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	}
	if (ftruncate(file, 0) || pwrite(file, data, size, 0) != (ssize_t)size)
		abort();
	struct delay_config *c = config_load(path, why, sizeof(why));
	if (!c && (!*why || strchr(why, '\n')))
		abort();
	for (size_t i = 0; c && i < c->kernel_count; i++)
		for (size_t k = 0; k < c->kernels[i].count; k++)
			if (!config_find_point(&c->kernels[i], c->kernels[i].points[k].pc))
				abort();
	for (size_t i = 0; c && i < c->launch_count; i++)
		config_find_launch(c, c->launches[i].stream, c->launches[i].number);
	config_free(c);
	return 0;
}
