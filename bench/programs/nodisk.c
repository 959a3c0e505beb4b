/*
 * Preloaded before the recorder, a disk without limits: what is written to a run's data files
 * succeeds at once and goes nowhere. What is left of the time is what it takes to bring contents
 * from the ring to the host. The data files are holes, so nothing can be read back from the run.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#define LARGE 65536

static int is_data(int file)
{
	char link[64], path[4096];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", file);
	n = readlink(link, path, sizeof(path) - 1);
	path[n < 0 ? 0 : n] = 0;
	return strstr(path, "/data-") != NULL;
}

ssize_t pwrite(int file, const void *data, size_t size, off_t offset)
{
	if (size >= LARGE && is_data(file))
		return (ssize_t)size;
	return syscall(SYS_pwrite64, file, data, size, offset);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t offset) __attribute__((alias("pwrite")));
