/*
 * Preloaded before the recorder, a disk without limits: large writes succeed at once and go
 * nowhere. What is left of the time is what it takes to bring contents from the ring to the host.
 * The run's data files are holes, so nothing can be read back from it.
 */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#define LARGE 65536

ssize_t pwrite(int file, const void *data, size_t size, off_t offset)
{
	if (size >= LARGE)
		return (ssize_t)size;
	return syscall(SYS_pwrite64, file, data, size, offset);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t offset) __attribute__((alias("pwrite")));
