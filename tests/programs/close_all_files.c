/* Closes every file descriptor above standard error before the work starts, as daemons do. */
#include "program.h"

#include <unistd.h>

int main(void)
{
	for (int fd = 3; fd < 1024; fd++)
		close(fd);
	start();
	struct work w = begin_work();
	do_step(&w);
	do_step(&w);
	OK(cuMemFree(w.data));
	return 0;
}
