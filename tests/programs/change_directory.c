/* The program changes its directory, before it starts the driver and after. */
#include "program.h"

#include <unistd.h>

int main(void)
{
	if (chdir("/tmp"))
		return 1;
	start();
	struct work w = begin_work();
	do_step(&w);
	if (chdir("/"))
		return 1;
	do_step(&w);
	return 0;
}
