/* A program with a SIGINT handler of its own, which prints and exits with 3. */
#include "program.h"

#include <signal.h>

static void interrupted(int number)
{
	printf("interrupted by %d\n", number);
	exit(3);
}

int main(void)
{
	signal(SIGINT, interrupted);
	start();
	struct work w = begin_work();
	do_step(&w);
	do_step(&w);
	raise(SIGINT);
	printf("never here\n");
	return 0;
}
