/* A call after the driver's exit handlers: from a file stream that is flushed last. */
#include "program.h"

#include <unistd.h>

static ssize_t late(void *unused, const char *text, size_t size)
{
	int count;
	char line[40];

	(void)unused, (void)text;
	int length = snprintf(line, sizeof(line), "late %d\n", (int)cuDeviceGetCount(&count));
	return write(1, line, (size_t)length) == length ? (ssize_t)size : -1;
}

int main(void)
{
	int count;

	printf("before %d\n", (int)cuDeviceGetCount(&count));
	printf("init %d\n", (int)cuInit(0));
	printf("count %d\n", (int)cuDeviceGetCount(&count));
	fflush(stdout);
	fputs("something to flush", fopencookie(NULL, "w", (cookie_io_functions_t){.write = late}));
	return 0;
}
